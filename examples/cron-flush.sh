#!/bin/sh
# Tries what waits in the spool, and mails what has died. For cron, on a host where no transitd runs:
#
#   * * * * * /usr/local/bin/cron-flush.sh admin@example.org
#
# It needs no lock of its own: one flush runs at a time, a second one ends at once, and the lock goes with its
# process, however that ends. An entry is named once, in the run in which it dies, so that it is mailed once.
set -eu
[ $# -eq 1 ] || { echo "usage: cron-flush.sh ADDRESS" >&2; exit 64; }
to=$1

said=$(mktemp)
trap 'rm -f "$said"' EXIT

status=0
transit-spool flush --quiet --deadline 50s 2>"$said" || status=$?

if [ -s "$said" ]; then
  {
    cat "$said"
    printf '\nWhat is dead now (transit-spool retry ID gives one another chance):\n'
    transit-spool list --state dead | tail -n 50
  } | mail -s "transit: entries of the spool on $(uname -n)" "$to"
fi

# 75: something still waits, and the next run tries it. All else is a failure that cron shall mail itself.
[ "$status" -eq 75 ] || exit "$status"
