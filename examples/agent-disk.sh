#!/bin/sh
# An agent that tells how full a disk is, to whoever names a directory on it:
#
#   transit-agent run --name disk -- agent-disk.sh
#
# The envelope is on stdin and its attributes are in the environment. What this exits with is what becomes of the
# message: 0 means that it is done with, 75 brings it again later, anything else refuses it for good.
set -eu
printenv TRANSIT_KIND >/dev/null || { echo "usage: transit-agent run --name NAME -- agent-disk.sh" >&2; exit 64; }

# An answer is not answered, or two such agents would never stop.
[ -z "${TRANSIT_REPLY_TO-}" ] || exit 0

# What others write is data: an argument here, and never a part of a command.
directory=$(transit-envelope parse | jq -r .body)
case $directory in
  /*) answer=$(df -h -- "$directory" 2>&1) || true ;;
  *) answer='Name a directory, like /home.' ;;
esac

reply() {
  jq -n --arg message "$answer" \
    '{delivery_id: env.TRANSIT_ID, conversation_id: env.TRANSIT_CONVERSATION_ID, $message}' |
    transit-agent call chat_reply -
}

# Rather than be left without an answer, the question comes again; that it may be answered twice does no harm.
case $TRANSIT_KIND in
  # 1: the source takes no answers.
  channel) reply || { [ $? -eq 1 ] && transit-agent call mark_handled "{\"delivery_id\":\"$TRANSIT_ID\"}"; } ;;
  room) printf %s "$answer" | transit-send "#$TRANSIT_ROOM" --reply-to "$TRANSIT_ID" ;;
  *) printf %s "$answer" | transit-send "$TRANSIT_FROM" --reply-to "$TRANSIT_ID" ;;
esac >/dev/null || exit 75
