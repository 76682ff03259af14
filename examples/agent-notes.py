#!/usr/bin/env python3
"""An agent that keeps every text that it is sent, and answers how many it has.

    agent-notes.py notes.db

A text is acknowledged once it is in the database and synced, so that none is lost, and one that comes twice is in
there once. Nothing is needed but Python's own library and the programs of Transit.
"""

import json
import sqlite3
import subprocess
import sys

NAME = "notes"


def main(path):
    notes = sqlite3.connect(path, isolation_level=None)
    notes.execute("PRAGMA synchronous = FULL")
    notes.execute("CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, sender TEXT, text TEXT, answered INTEGER)")

    listen = ["transit-agent", "listen", "--name", NAME]
    agent = subprocess.Popen(listen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
    for line in agent.stdout:
        heard = json.loads(line)
        if heard["t"] == "registered":
            print("listening as", heard["address"], file=sys.stderr)
        elif heard["t"] == "deliver":
            answer = {"t": "deliver_ack", "id": heard["id"]}
            try:
                take(notes, heard["id"], heard["envelope"])
            except (sqlite3.Error, subprocess.CalledProcessError) as err:
                print(heard["id"], "is to come again:", err, file=sys.stderr)
                answer |= {"t": "deliver_nak", "code": "notes_failed", "retryable": True}
            agent.stdin.write(json.dumps(answer) + "\n")
            agent.stdin.flush()
    return agent.wait()


def take(notes, id, envelope):
    """Keeps a text and answers it. Whatever is done already is not done again."""
    parsed = json.loads(run(["transit-envelope", "parse"], envelope))
    text = parsed["body"]
    if parsed.get("truncated"):
        full = run(["transit-agent", "call", "--as", NAME, "read_message", json.dumps({"id": id})])
        # Between its opening tag and the line that says whether it is settled.
        text = full.partition(">\n")[2].rpartition("\n[")[0]
    row = (id, parsed["from"], text)
    notes.execute("INSERT INTO notes VALUES (?, ?, ?, 0) ON CONFLICT DO NOTHING", row)
    (answered,) = notes.execute("SELECT answered FROM notes WHERE id = ?", [id]).fetchone()
    # An answer to an answer would be answered too, and so on.
    if not answered and parsed["kind"] == "dm" and "reply_to" not in parsed:
        (count,) = notes.execute("SELECT count(*) FROM notes").fetchone()
        run(["transit-send", parsed["from"], "--as", NAME, "--reply-to", id], f"That makes {count}.")
        notes.execute("UPDATE notes SET answered = 1 WHERE id = ?", [id])


def run(command, text=""):
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return done.stdout


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: agent-notes.py DATABASE", file=sys.stderr)
        sys.exit(64)
    sys.exit(main(sys.argv[1]))
