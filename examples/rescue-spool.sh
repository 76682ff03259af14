#!/bin/sh
# Makes a whole spool out of a damaged one, and keeps the damaged one. Stop transitd first.
#
#   rescue-spool.sh
set -eu
data=${TRANSIT_DATA_DIR:-${XDG_DATA_HOME:-$HOME/.local/share}/transit}

if transit-spool check; then
  exit 0
fi
umask 077
kept=$(mktemp -d "$data/damaged.XXXXXX")

# 74: some entries are lost. They are told on stderr; the others are in the file.
status=0
transit-spool export >"$kept/rescued.ndjson" || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 74 ] || exit "$status"

mv "$data"/spool.db* "$kept"
transit-spool import "$kept/rescued.ndjson"
printf 'The damaged spool is in %s\n' "$kept"
