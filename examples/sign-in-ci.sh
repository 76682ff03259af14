#!/bin/sh
# Tells an agent how a build ended, from a CI job that has nothing but curl, jq and transit-sign.
#
#   sign-in-ci.sh https://transit.example.org/ingest/ci BUILD passed|failed <build.log
#
# The CI system puts the source's secret into the variable TRANSIT_SECRET. The key of the event is made from the
# build, so that a job that runs twice tells it once. Where there is a spool, transit-send does all of this.
set -eu
[ $# -eq 3 ] || { echo "usage: sign-in-ci.sh URL BUILD passed|failed <LOG" >&2; exit 64; }
url=$1 build=$2 outcome=$3

body=$(mktemp)
trap 'rm -f "$body"' EXIT

# The end of the log, by far short enough for a body of 64 KiB.
tail -n 40 | tail -c 4000 | jq -Rsc --arg build "$build" --arg outcome "$outcome" '{
  schema: "transit.ingest/1",
  event_key: "build-\($build)-\($outcome)",
  conversation_id: "build-\($build)",
  trigger: (if $outcome == "failed" then "alert" else "info" end),
  content: "Build \($build) \($outcome).\n\n\(.)"
}' >"$body"

# A signature is good for five minutes: time enough for what curl tries again.
transit-sign "$body" |
  curl --silent --show-error --fail-with-body --retry 3 --max-time 60 -H @- --json "@$body" "$url"
