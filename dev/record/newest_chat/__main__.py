#!/usr/bin/env python3
"""Record how a newer llama-server renders and parses chats, build b11549.

    pip install -t DIR xllamacpp==2026.10.11549
    python -m dev.record.newest_chat DIR

Templates are in this folder, cases in cases.py. For each case, a model writes the case's text after
any prompt, so the server parses that text. The records are tests/data/chat/newest.json.xz.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from dev.record.newest_chat.cases import cases
from dev.record.newest_chat.scripted import LOGIT, write_script

ROOT = Path(__file__).parents[3]
OUT = ROOT / "tests" / "data" / "chat" / "newest.json.xz"
TEMPLATES = Path(__file__).parent
SECONDS, TRIES = 20, 5  # a server may hang at its start
MARK = "RECORDED "
N_CTX = 16384


def main() -> None:
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("folder", type=Path, help="with the package xllamacpp")
    p.add_argument("--case", action="store_true", help="record the case of the standard input")
    args = p.parse_args()
    sys.path.append(str(args.folder.resolve()))
    if args.case:
        print(MARK + json.dumps(record_case(json.load(sys.stdin))), flush=True)
        os._exit(0)  # the server's threads may not end
    templates = {one.stem: one.read_text().rstrip("\n") for one in TEMPLATES.glob("*.jinja")}
    found = []
    for name, body, text in cases():
        case = {"template": name, "body": body, "text": text}
        found.append(case | run({**case, "source": templates[name]}, args.folder))
        print(len(found), name, repr(text)[:60], flush=True)
    recorded = {"build": "b11549", "templates": templates, "cases": found}
    text = json.dumps(recorded, ensure_ascii=False, separators=(",", ":"))
    OUT.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{OUT}: {len(found)} cases")


def run(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the record of a case by another process."""
    command = [sys.executable, "-m", "dev.record.newest_chat", str(folder), "--case"]
    for _ in range(TRIES):
        try:
            done = subprocess.run(
                command,
                input=json.dumps(case),
                capture_output=True,
                text=True,
                timeout=SECONDS,
                cwd=ROOT,
                check=True,
            )
        except subprocess.TimeoutExpired:
            continue
        found: dict[str, Any] = json.loads(done.stdout.partition(MARK)[2])
        return found
    raise SystemExit(f"error: no reply in {SECONDS} s, {TRIES} times; case: {case}")


def record_case(case: dict[str, Any]) -> dict[str, Any]:
    """Return the prompt, and the parsed message and its deltas if the case has a text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.gguf"
        script = write_script(path, case["text"])
        server = serve(path, case["source"])
        url, body = server.listening_address, case["body"]
        prompt = json.loads(post(f"{url}/apply-template", body))["prompt"]
        if not case["text"]:
            return {"prompt": prompt}
        asked = {
            **body,
            "temperature": 0,
            "logit_bias": [[script.first, LOGIT / 2]],
            "max_tokens": script.n + 4,
        }
        whole = json.loads(post(f"{url}/v1/chat/completions", asked))
        events = post(f"{url}/v1/chat/completions", {**asked, "stream": True}).split("\n")
        if whole["usage"]["completion_tokens"] != script.n + 1:  # with the end
            raise SystemExit(f"error: the grammar refuses the text; case: {case}")
    chunks = [json.loads(line[6:]) for line in events if line.startswith("data: {")]
    return {
        "prompt": prompt,
        "message": whole["choices"][0]["message"],
        "deltas": [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]],
    }


def serve(path: Path, template: str) -> Any:
    """Start a server of a model with a chat template."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel, params.verbosity = N_CTX, 1, -1
    params.warmup, params.use_jinja, params.chat_template = False, True, template
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    return xllamacpp.Server(params)


def post(url: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=SECONDS) as reply:
        text: str = reply.read().decode()
    return text


if __name__ == "__main__":
    main()
