#!/usr/bin/env python3
"""Run llama-server's tests against llama-py-server, with tiny models instead of the real models.

    python -m dev.torture.server_suite LLAMA.CPP [-n 2] [pytest's arguments ...]

LLAMA.CPP is llama.cpp's source tree, which has the tests. Models have random weights and the
vocabularies of that tree. A temporary folder has the models as a Hub cache, and a local server
replaces the Hub and the websites of images. The tests start a program in that folder as
llama-server; the program starts llama-py-server. Needs pytest, Pillow and the packages of
tools/server/tests/requirements.txt in that tree. Prints one line per test file with the number of
passed, failed and skipped tests, then one line per failed test with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dev import tiny_models as tiny
from dev import tiny_vision as eyes
from llama_py.gguf.file import GGUFFile
from llama_py_tools.gguf.parts import split
from tests.cli.hub_server import hub

# Tiny model, its vocabulary, and extra metadata, by the repository and file that a test requests.
MODELS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
IMAGES = "https://huggingface.co/ggml-org/tinygemma3-GGUF/resolve/main/test"
FETCHED = "ggml-org/test-model-router-download"
PARTS = "tinyllamas/split/stories15M-q8_0"
PRESETS = "ggml-org/test-preset-ci"
PRESET = b"""
[tinygemma3-preset]
hf = ggml-org/tinygemma3-GGUF
[stories260K-test]
hf = ggml-org/test-model-stories260K
"""
LENGTH = 2048  # training context of the models
COMMIT = "0" * 40

# Program that the tests start as llama-server: it requests a server from a process with all
# modules loaded, and exits with that server.
PROGRAM = """#!{python} -SE
import json, os, signal, socket, sys

made = socket.socket(socket.AF_UNIX)
made.connect({address!r})
made.sendall(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode() + b"\\n")
told = made.makefile()
pid = int(told.readline())
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
sys.exit(int(told.readline() or 1))
"""
# Replaces match_regex: models with random weights cannot generate the expected text, so the tests
# check only constraints of grammars and schemas.
NOT_LOOKED_AT = """

_match_regex = match_regex


def match_regex(regex: str, text: str) -> bool:
    return not regex.startswith(('"', "a{")) or _match_regex(regex, text)
"""
MODEL_FLAGS = ("--model", "--hf-repo", "--model-url", "--models-dir")


def make_servers(address: str) -> None:
    """Fork a server for each connection, in a separate process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    from llama_py_server import app, command  # noqa: F401  # imported for all servers
    from llama_py_server.routes import leases
    from llama_py_server.wire import listen  # noqa: F401

    slow = leases.lease

    async def lease(request: Any, shelf: Any) -> Any:
        """Delay requests to a router's models if a variable is set, as the tests expect.

        Follows server-models.cpp:debug_fake_timing.
        """
        found = await slow(request, shelf)
        if shelf.several and found is not None and "LLAMA_SERVER_DEBUG_FAKE_TIMING" in os.environ:
            await asyncio.sleep(2)
        return found

    leases.lease = lease
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address)
        door.listen()
        while True:
            made, _ = door.accept()
            if os.fork() == 0:
                door.close()
                serve(made)
            made.close()


def serve(made: socket.socket) -> None:
    """Run one server in a child, until it or the connected process ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    asked = made.makefile()
    argv, environment, folder = json.loads(asked.readline())
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    made.sendall(f"{os.getpid()}\n".encode())
    threading.Thread(target=lambda: (asked.read(), os._exit(1)), daemon=True).start()
    from llama_py_server import command

    code = 1
    try:
        if not set(argv) & set(MODEL_FLAGS):
            argv.append("--models-cached")
        code = command.main([*argv, "--no-warmup", "--media-urls", "any"])
    except SystemExit as e:
        code = int(e.code or 0)
    finally:
        made.sendall(f"{code}\n".encode())
        os._exit(code)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=Path, help="llama.cpp's source")
    args, more = parser.parse_known_args()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_cache(args.tree, root / "hub")
        tests = copied(args.tree, root)
        asked = stack.enter_context(hub(served(root / "hub"), commit=COMMIT))
        program = root / "llama-server"
        address = str(root / "door")
        program.write_text(PROGRAM.format(python=sys.executable, address=address))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        environment = {
            **os.environ,
            "LLAMA_SERVER_BIN_PATH": str(program),
            "HF_HUB_CACHE": str(root / "hub"),
            "HF_ENDPOINT": asked[0],
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1",
            "LLAMA_CACHE": str(root / "none"),
        }
        os.environ |= {n: v for n, v in environment.items() if n.startswith("HF_")}
        maker = os.fork()
        if maker == 0:
            make_servers(address)
        serve_images(tests / "unit")
        report = root / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *more]
        done = subprocess.run(command, cwd=tests, env=environment)
        os.kill(maker, signal.SIGKILL)
        if report.exists():
            show(report)
    return done.returncode


def make_cache(tree: Path, hub: Path) -> None:
    """Write all models, in the file layout of the Hub's cache."""
    for asked, model in MODELS.items():
        repo, _, name = asked.partition(":")
        root = hub / f"models--{repo.replace('/', '--')}"
        path = root / "snapshots" / COMMIT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / "main").write_text(COMMIT)
        arch, _, variant = model["tiny"].rpartition("-")
        write(path, arch, variant, tree / "models" / model["vocabulary"], model.get("more", {}))
        if "eyes" in model:
            eyes.write(model["eyes"], path.parent)


def served(cache: Path) -> dict[str, dict[str, bytes]]:
    """Return the files of the local Hub: cached models, a model that is not cached, and presets."""
    found = {}
    for asked in MODELS:
        repo = asked.partition(":")[0]
        top = cache / f"models--{repo.replace('/', '--')}" / "snapshots" / COMMIT
        files = (path for path in top.rglob("*") if path.is_file())
        found[repo] = {path.relative_to(top).as_posix(): path.read_bytes() for path in files}
    small = found["ggml-org/test-model-stories260K"]["stories260K-F32.gguf"]
    found["ggml-org/models"] |= in_parts(small, cache.parent)
    more = {FETCHED: {"router-download-F16.gguf": small}, PRESETS: {"preset.ini": PRESET}}
    return found | more


def in_parts(model: bytes, folder: Path) -> dict[str, bytes]:
    """Return the model in three shards."""
    whole = folder / "whole.gguf"
    whole.write_bytes(model)
    with GGUFFile.open(whole) as file:
        most = -(-len(file.tensors) // 3)
    split(str(whole), str(folder / "part"), most, 0, False, False, False)
    parts = sorted(folder.glob("part-*.gguf"))
    return {f"{PARTS}{path.name[4:]}": path.read_bytes() for path in parts}


def write(path: Path, arch: str, variant: str, vocabulary: Path, more: dict[str, Any]) -> None:
    """Write a tiny model with the vocabulary of another file."""
    found = tiny.find(arch, variant)
    with GGUFFile.open(vocabulary) as file:
        words = {k: v for k, v in file.metadata.items() if k.startswith("tokenizer.")}
    listed = {f"/{k}": v.tolist() if hasattr(v, "tolist") else v for k, v in words.items()}
    keys = {
        **found.keys,
        "vocab_size": len(listed["/tokenizer.ggml.tokens"]),
        "context_length": LENGTH,
        **listed,
        **more,
    }
    tiny.write_file(path, arch, replace(found, keys=keys))


def serve_images(tests: Path) -> None:
    """Serve images from this process to the tests, for any URL."""

    class Images(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(image(self.path))

        def log_message(self, *_: Any) -> None:
            """Suppress the log of requests."""

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Images)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    for path in tests.glob("*.py"):
        text = path.read_text()
        path.write_text(text.replace(IMAGES, f"http://127.0.0.1:{made.server_port}"))


def image(name: str) -> bytes:
    """Return a PNG with pixels that depend on its name."""
    from PIL import Image

    rng, out = np.random.default_rng([*name.encode()]), io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(out, "PNG")
    return out.getvalue()


def copied(tree: Path, root: Path) -> Path:
    """Copy the tests' folder, since tests write files there and read adjacent templates."""
    tests = root / "tools" / "server" / "tests"
    shutil.copytree(tree / "tools" / "server" / "tests", tests)
    (tests / "tmp").mkdir(exist_ok=True)
    with (tests / "utils.py").open("a") as utils:
        utils.write(NOT_LOOKED_AT)
    media = root / "tools" / "mtmd"
    media.mkdir()
    shutil.copy(tree / "tools" / "mtmd" / "test-1.jpeg", media)
    (root / "models").symlink_to((tree / "models").resolve())
    return tests


def show(report: Path) -> None:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    why: list[str] = []
    for case in ET.parse(report).iter("testcase"):
        file = (case.get("classname") or "").rpartition(".")[2]
        bad = next((x for x in case if x.tag in ("failure", "error", "skipped")), None)
        kind = "passed" if bad is None else "skipped" if bad.tag == "skipped" else "failed"
        counts[file][kind] += 1
        if bad is not None:
            words = " ".join((bad.get("message") or "").split())
            why.append(f"{file}::{case.get('name')} {kind}: {words[:200]}")
    print("| file | passed | failed | skipped |\n|---|---|---|---|")
    for file, n in sorted(counts.items()):
        print(f"| `{file}` | {n['passed']} | {n['failed']} | {n['skipped']} |")
    print(*why, sep="\n")


if __name__ == "__main__":
    sys.exit(main())
