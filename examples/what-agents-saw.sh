#!/bin/sh
# Lists the envelopes that a host's agents were given, out of a dump of its wire: when, for whom, from whom, and
# the beginning of the text, which is only shown and safe to show.
#
#   what-agents-saw.sh frames.ndjson
set -eu

transit-wire-dump --json --filter t=deliver "$@" |
  jq -r '.frame.envelope' |
  transit-envelope parse |
  jq -r '[.ts, .id, .from, .user // "-", (.body | tojson | .[:60])] | join("  ")'
