#!/bin/sh
# Prints an agent's reply, if it is really from the Worker: for a receiver of callbacks that has written the head of
# the request to one file and its body, byte for byte, to another.
#
#   TRANSIT_SECRET=… verify-reply.sh HEAD BODY
#
# Nothing of the body is looked at before its signature is verified. --explain says on stderr what may be wrong.
set -eu
[ $# -eq 2 ] || { echo "usage: verify-reply.sh HEAD BODY" >&2; exit 64; }
head=$1 body=$2

transit-sign --verify --explain --headers "$head" "$body" >/dev/null
jq -r '"\(.agent): \(.message)"' "$body"
