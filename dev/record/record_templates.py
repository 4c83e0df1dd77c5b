#!/usr/bin/env python3
"""Record llama-server's prompts for test conversations, with each chat template of a folder.

    python -m dev.record.record_templates llama.cpp/build/bin/llama-server FOLDER

Templates and prompts are written to tests/data/chat/templates.json.xz. The server runs the demo
model with different tokens as BOS and EOS, so that a prompt shows which of the two it contains.
Without arguments, the prompts of llama-cpp-python for its named templates are written to
names.json.xz.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import lzma
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from llama_py import load_tokenizer

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "chat"
MODEL = ROOT / "llama_py" / "data" / "demo.gguf"
BOS, EOS = "GLOUCESTER", "NORTHUMBERLAND"  # two tokens of the demo model
TOKENS = load_tokenizer(MODEL).vocab.texts
SECONDS = 60.0  # time limit for a server's start

USER = {"role": "user", "content": "What's 2 < 3, in <b>bold</b>?\n"}
SYSTEM = {"role": "system", "content": 'You are "Émile" & co.'}
ASSISTANT = {"role": "assistant", "content": "Yes: it's *true*."}
AGAIN = {"role": "user", "content": " And 3 < 2? "}
TOOLS = [
    {"type": "function", "function": {
        "name": "weather", "description": "The \"weather\" in a city, e.g. Zürich",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "its name"},
                "days": {"type": "integer", "default": 3},
                "unit": {"type": "string", "enum": ["C", "F"]},
            },
            "required": ["city"],
        },
    }},
    {"type": "function", "function": {
        "name": "now", "description": "What time it is",
        "parameters": {"type": "object", "properties": {}},
    }},
]  # fmt: skip
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "type": "function",
            "id": "call00001",
            "function": {"name": "weather", "arguments": '{"city": "Zürich", "days": 2}'},
        }
    ],
}
DICT_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "type": "function",
            "id": "call00001",
            "function": {
                "name": "weather",
                "arguments": {"city": "Bern", "at": [46.95, 7.0], "now": True},
            },
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": '{"C": 21.5}'}
THOUGHT = {**ASSISTANT, "reasoning_content": "Two is less\nthan three."}
PARTS = {"role": "user", "content": [{"type": "text", "text": text} for text in ("One.", "2.")]}

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "user": {"messages": [USER]},
    "system": {"messages": [SYSTEM, USER]},
    "turns": {"messages": [SYSTEM, USER, ASSISTANT, AGAIN]},
    "tools": {"messages": [SYSTEM, USER], "tools": TOOLS},
    "tool calls": {"messages": [USER, CALL, RESULT, ASSISTANT, AGAIN], "tools": TOOLS},
    "tool result": {"messages": [SYSTEM, USER, CALL, RESULT], "tools": TOOLS},
    "dictionary arguments": {"messages": [USER, DICT_CALL, RESULT], "tools": TOOLS[:1]},
    "thoughts": {"messages": [USER, THOUGHT, AGAIN]},
    "no thinking": {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}},
    "parts": {"messages": [PARTS]},
    "no prompt": {"messages": [USER, ASSISTANT, AGAIN], "add_generation_prompt": False},
}


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("server", type=Path, nargs="?")
    p.add_argument("folder", type=Path, nargs="?", help="folder of chat templates (*.jinja)")
    args = p.parse_args()
    if args.folder is None:
        write("names.json.xz", named())
        return
    templates = {}
    for path in sorted(args.folder.glob("*.jinja")):
        templates[path.stem] = found = recorded(args.server, path)
        refused = [name for name, text in found["prompts"].items() if not isinstance(text, str)]
        print(path.stem, f"refuses {', '.join(refused)}" if refused else "", flush=True)
    data = {
        "day": datetime.date.today().isoformat(),
        "bos": BOS,
        "eos": EOS,
        "conversations": CONVERSATIONS,
        "templates": templates,
    }
    write("templates.json.xz", data)


def write(name: str, data: Any) -> None:
    path, text = DATA / name, json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{path}: {path.stat().st_size} bytes")


SAID = {"s": " Be \n", "u": " Hi? ", "a": " Yes.\n", "t": "Result"}
ROLES = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
TURNS = ("u", "su", "suau", "ua", "uasu", "suatu", "ssu")


def turns(letters: str) -> list[dict[str, str]]:
    """Return a conversation with messages of the given roles."""
    return [{"role": ROLES[c], "content": SAID[c]} for c in letters]


def named() -> dict[str, Any]:
    """Return conversations by the letters of their roles, and prompts by template.

    A conversation has two prompts: with and without the beginning of a response.
    """
    import llama_cpp

    names = (ctypes.c_char_p * 200)()
    n = llama_cpp.llama_chat_builtin_templates(
        ctypes.cast(names, ctypes.POINTER(ctypes.c_char_p)), len(names)
    )
    found = {}
    for name in names[:n]:
        prompts = [applied(name, turns(t), add) for t in TURNS for add in (True, False)]
        found[name.decode()] = prompts
    return {"conversations": [turns(t) for t in TURNS], "prompts": found}


def applied(name: bytes, messages: list[dict[str, str]], add: bool) -> str:
    import llama_cpp

    kind, out = llama_cpp.llama_chat_message, ctypes.create_string_buffer(10_000)
    chat = [kind(m["role"].encode(), m["content"].encode()) for m in messages]
    array = (kind * len(chat))(*chat)
    n = llama_cpp.llama_chat_apply_template(name, array, len(chat), add, out, len(out))
    return out.raw[:n].decode()


def recorded(server: Path, template: Path) -> dict[str, Any]:
    """Return a template's source, caps (capabilities that the server lists) and prompts.

    Prompts are by conversation. A rejected prompt is {"error": ...}; if the server does not start,
    all prompts are errors.
    """
    source = template.read_bytes().decode()
    port = free_port()
    ids = {"bos": TOKENS.index(BOS), "eos": TOKENS.index(EOS)}
    kv = [f"tokenizer.ggml.{name}_token_id=int:{id}" for name, id in ids.items()]
    command = [
        str(server),
        "-m",
        str(MODEL),
        "--port",
        str(port),
        "-c",
        "256",
        "-t",
        "1",
        "--no-warmup",
        "--no-webui",
        "--jinja",
        "--chat-template-file",
        str(template),
        "--override-kv",
        ",".join(kv),
    ]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            if not started(process, port):
                log.seek(0)
                error = {"error": next((line for line in log if "rror" in line), "?").strip()}
                prompts: Any = dict.fromkeys(CONVERSATIONS, error)
                return {"source": source, "caps": {}, "prompts": prompts}
            caps = asked(port, "props", None)["chat_template_caps"]
            prompts = {name: prompt(port, body) for name, body in CONVERSATIONS.items()}
        finally:
            process.kill()
            process.wait()
    return {"source": source, "caps": caps, "prompts": prompts}


def prompt(port: int, body: dict[str, Any]) -> Any:
    found = asked(port, "apply-template", body)
    return found["prompt"] if "prompt" in found else {"error": found["error"]["message"]}


def started(process: subprocess.Popen[bytes], port: int) -> bool:
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        try:
            if asked(port, "health", None).get("status") == "ok":
                return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


def asked(port: int, what: str, body: dict[str, Any] | None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{what}", data)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as e:
        found = json.load(e)
    return found


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
