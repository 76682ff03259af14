#!/bin/sh
# Every line of a log that matches becomes an event for an agent, as it is written:
#
#   tail -F /var/log/app.log | log-to-agent.sh ci ' (ERROR|FATAL) '
#
# The source ci is in the configuration. What cannot be sent now is in the spool when its line is printed.
set -eu
[ $# -eq 2 ] || { echo "usage: log-to-agent.sh SOURCE PATTERN <LOG" >&2; exit 64; }
source=$1 pattern=$2

# Two equal lines are two events: each has a key of its own.
grep --line-buffered -E -e "$pattern" |
  jq --unbuffered -Rc '{conversation_id: "log", trigger: "alert", content: .[:4000]}' |
  transit-send "$source" --lines --jobs 2
