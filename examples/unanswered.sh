#!/bin/sh
# Names what was said on a wire and has no answer: a message without its send_ack, a delivery without its
# deliver_ack. Ends with 1 when there is any, so that a monitor can run it, or a person:
#
#   transitd run --wire-log frames.ndjson
#   watch -n 10 unanswered.sh frames.ndjson
set -eu

waiting=$(transit-wire-dump --stats --json "$@" | jq -r '
  .times[] | select(.unanswered > 0)
  | "\(.unanswered) \(.from) without \(.to): \(.waiting[:10] | join(", "))"')
[ -n "$waiting" ] || exit 0
printf '%s\n' "$waiting"
exit 1
