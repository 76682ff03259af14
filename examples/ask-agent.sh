#!/bin/sh
# Asks an agent, waits for its answer and prints it, so that cron mails it:
#
#   0 7 * * 1-5 /usr/local/bin/ask-agent.sh disk@titan /home
#
# Ends with 75 when no answer has come within the time: 10 minutes, or as many seconds as are given. An answer that is
# late is kept, and the next run prints it first.
set -eu
[ $# -ge 2 ] || { echo "usage: ask-agent.sh NAME@HOST QUESTION [SECONDS]" >&2; exit 64; }
to=$1 question=$2 patience=${3:-600}
name=cron # whoever asks needs an address that an answer can be sent to

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkfifo "$dir/in" "$dir/out"
timeout "$patience" transit-agent listen --name "$name" <"$dir/in" >"$dir/out" &
exec 3>"$dir/in" 4<"$dir/out"

id='' found=''
while [ -z "$found" ] && read -r heard <&4; do
  case $(printf '%s' "$heard" | jq -r .t) in
    registered)
      # Once: it comes again after a daemon that was started anew.
      if [ -z "$id" ]; then
        sent=$(transit-send "$to" --as "$name" -m "$question" --json)
        id=$(printf '%s' "$sent" | jq -r .id)
      fi
      ;;
    deliver)
      answer=$(printf '%s' "$heard" | jq -r .envelope | transit-envelope parse)
      printf '%s' "$answer" | jq -r .body
      [ "$(printf '%s' "$answer" | jq -r .reply_to)" != "$id" ] || found=yes
      # Only now, so that an answer that nobody has seen comes again.
      printf '%s' "$heard" | jq -c '{t: "deliver_ack", id}' >&3
      ;;
  esac
done
exec 3>&- 4<&-
wait $! || true
[ -n "$found" ] || {
  echo "ask-agent.sh: $to has not answered within $patience s" >&2
  exit 75
}
