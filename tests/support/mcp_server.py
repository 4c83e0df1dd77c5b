"""A small MCP server over stdio, in honest and hostile variants: `python mcp_server.py VARIANT`.

It writes JSON by hand, without the `mcp` package, so that it starts fast and can break each rule.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ADD = {
    "name": "add",
    "description": "Add two integers.",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
ECHO = {
    "name": "echo",
    "description": "Repeat a text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
BARE = {"type": "object"}


def tools(variant: str) -> Any:
    if variant == "controls":
        return [ADD, {"name": "a\x1b[2J\nb", "description": "x\x1b[31my", "inputSchema": BARE}]
    if variant == "many":
        return [{**ADD, "name": f"add{i}"} for i in range(1000)]
    if variant == "deep":
        return [ADD, {**ECHO, "inputSchema": {**BARE, "title": "x" * 100_000}}]
    if variant == "malformed":
        return [{"name": 5}]
    return [ADD, ECHO]


def result(variant: str, call: dict[str, Any]) -> Any:
    given = call.get("arguments") or {}
    if call["name"] == "echo":
        return [{"type": "text", "text": str(given.get("text", ""))}]
    text = str(given.get("a", 0) + given.get("b", 0))
    if variant == "escape":
        text = f"\x1b[2J{text}\x07"
    if variant == "long":
        text = "word " * 200_000
    if variant == "secret":
        text = f"the token is {os.environ['TOKEN']}"
    if variant == "image":
        return [{"type": "image", "data": "aaaa", "mimeType": "image/png"}]
    return [{"type": "text", "text": text}]


def answer(variant: str, message: dict[str, Any]) -> Any:
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        return {
            "protocolVersion": params.get("protocolVersion", "2025-06-18"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": tools(variant)}
    if method == "tools/call":
        return call(variant, params)
    return None


def call(variant: str, params: dict[str, Any]) -> Any:
    if variant == "silent":
        time.sleep(3600)
    if variant == "exits" and params["name"] == "add":
        print(f"no more, {os.environ.get('TOKEN', '')}", file=sys.stderr, flush=True)
        os._exit(3)
    if variant == "huge":
        for _ in range(400):
            sys.stdout.write("x" * (1 << 16))
        sys.stdout.flush()
        time.sleep(3600)
    if variant == "garbage":
        sys.stdout.buffer.write(b'\xff\xfe{"jsonrpc": \n[]\n{"id": 1}\n\0\n')
        sys.stdout.flush()
    if variant == "wrong":
        return {"content": "no list"}
    return {"content": result(variant, params), "isError": variant == "fails"}


def main(variant: str) -> None:
    if variant.startswith("once-"):  # it ends at a call, and then starts as the other variant
        mark = Path(os.environ["MARK"])
        variant = variant.removeprefix("once-") if mark.exists() else "exits"
        mark.touch()
    if variant == "dead":
        print(f"cannot start with {os.environ.get('TOKEN', '')}", file=sys.stderr, flush=True)
        sys.exit(1)
    if variant == "mute":
        time.sleep(3600)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        found = answer(variant, message)
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if found is None:
            reply["error"] = {"code": -32601, "message": "method not found"}
        else:
            reply["result"] = found
        print(json.dumps(reply), flush=True)
        if variant == "leaves" and message["method"] == "tools/call":
            return


if __name__ == "__main__":
    main(sys.argv[1])
