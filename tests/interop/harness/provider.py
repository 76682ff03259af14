#!/usr/bin/env python3
"""A language model on loopback that costs nothing and thinks nothing, for the tests with real coding agents.

It speaks as much of OpenAI's chat completions and of Anthropic's messages as those agents need, streamed. To a
message that is a transit/1 envelope it answers with a call of the tool send_message, or chat_reply for an event, if it
was offered that; to `run COMMAND` with a call of the tool bash; to anything else, and to the result of a tool, with a
word. While the file that --hold names is there, it lets requests wait, which is how a test keeps an agent at work.

The first line on stdout is its URL. Each request is a line in the file that --log names.
"""

import argparse
import json
import os
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENVELOPE = re.compile(r'^<transit from="([^"]*)" id="((?:tx|dlv)_[0-9a-f]{12})" ([^\n]*)>$', re.MULTILINE)


def texts(content):
    """The texts of a message, in whatever form it has."""
    if isinstance(content, str):
        return [content]
    return [part.get("text", "") for part in content or [] if part.get("type") in ("text", "input_text")]


def calls(message):
    """The tools that a message calls: their names, and their arguments as text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    own = [(part["name"], json.dumps(part["input"])) for part in parts if part.get("type") == "tool_use"]
    functions = [call["function"] for call in message.get("tool_calls") or []]
    return own + [(function["name"], function["arguments"]) for function in functions]


def tool_names(request):
    """The names of the tools that are offered."""
    return [tool.get("name") or tool.get("function", {}).get("name", "") for tool in request.get("tools") or []]


def reply_to(envelope):
    """The tool that answers an envelope, and its arguments."""
    sender, its_id, rest = envelope
    message = f"the model answers {its_id}"
    if not its_id.startswith("dlv_"):
        return "send_message", {"to": sender, "message": message, "reply_to": its_id}
    conversation = re.search(r'conversation_id="([^"]*)"', rest)[1]
    return "chat_reply", {"delivery_id": its_id, "conversation_id": conversation, "message": message}


def decide(request):
    """What to answer: ("text", words) or ("call", tool, arguments)."""
    messages = request.get("messages", [])
    newest = messages[-1] if messages else {}
    order = re.match(r"run (.+)", "".join(texts(newest.get("content"))))
    if newest.get("role") == "user" and order and "bash" in tool_names(request):
        return ("call", "bash", {"command": order[1], "description": "what was asked for"})
    found = [envelope for message in messages for envelope in ENVELOPE.findall("\n".join(texts(message.get("content"))))]
    if not found:
        return ("text", "I have read it.")
    wanted, arguments = reply_to(found[-1])
    # Not by what stands behind it: an envelope that came in the middle of a turn is always put last.
    called = [call for message in messages for call in calls(message)]
    shown = len({envelope for envelope in found if envelope[1] == found[-1][1]})
    if sum(found[-1][1] in text and "ToolSearch" not in name for name, text in called) >= shown:
        return ("text", "I have answered.")
    names = tool_names(request)
    tool = next((name for name in names if name.endswith(wanted)), None)
    if tool:
        return ("call", tool, arguments)
    # OMP mounts the tools of its MCP servers as files, which are called by writing to them.
    mounted = re.search(rf"mcp__\w*{wanted}\b", json.dumps(messages))
    if mounted and "write" in names:
        return ("call", "write", {"path": f"xd://{mounted[0]}", "content": json.dumps(arguments)})
    # Claude Code offers the tools of its MCP servers only once they were searched for.
    if "ToolSearch" in names and "ToolSearch" not in [name for name, _ in called]:
        return ("call", "ToolSearch", {"query": wanted, "max_results": 5})
    return ("text", "I have read it.")


def chat_completions(request, answer):
    """The events of OpenAI's chat completions."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": request.get("model", "")}

    def chunk(delta, reason=None):
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    if answer[0] == "text":
        yield chunk({"role": "assistant", "content": answer[1]})
        yield chunk({}, "stop")
    else:
        function = {"name": answer[1], "arguments": json.dumps(answer[2])}
        call = {"index": 0, "id": f"call_{time.monotonic_ns()}", "type": "function", "function": function}
        yield chunk({"role": "assistant", "content": None, "tool_calls": [call]})
        yield chunk({}, "tool_calls")
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    yield {**base, "choices": [], "usage": usage}


def messages(request, answer):
    """The events of Anthropic's messages."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model", "")}
    usage = {"input_tokens": 10, "output_tokens": 1}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    if answer[0] == "text":
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": answer[1]}
    else:
        block = {"type": "tool_use", "id": f"toolu_{time.monotonic_ns()}", "name": answer[1], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer[2])}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if answer[0] == "text" else "tool_use"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Says nothing: stderr is for what goes wrong."""

    def answer_json(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        self.answer_json({"object": "list", "data": [{"id": "fake-1", "object": "model"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        answer = decide(request)
        if self.server.log:
            with open(self.server.log, "a", encoding="utf-8") as log:
                log.write(json.dumps({"path": self.path, "answer": answer, "request": request}) + "\n")
        if self.path.split("?")[0].endswith("/count_tokens"):
            return self.answer_json({"input_tokens": 10})
        while self.server.hold and os.path.exists(self.server.hold):
            time.sleep(0.05)
        is_openai = self.path.split("?")[0].endswith("/chat/completions")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            for event in (chat_completions if is_openai else messages)(request, answer):
                name = "" if is_openai else f"event: {event['type']}\n"
                self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            if is_openai:
                self.wfile.write(b"data: [DONE]\n\n")
        except BrokenPipeError:
            pass  # the agent was interrupted
        self.close_connection = True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hold", help="let requests wait while this file is there")
    parser.add_argument("--log", help="append each request to this file, a line of JSON each")
    args = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.hold, server.log = args.hold, args.log
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
