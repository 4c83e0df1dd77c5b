"""Quantization of a created model's file, in a separate process with low priority."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from ggml_py.errors import GGMLError
from llama_py.gguf.file_types import FILE_TYPES, FileType, file_type
from llama_py.serving import model_size
from llama_py_server.models.facts import read_facts
from llama_py_server.wire.errors import HTTPError, invalid, without_folders
from llama_py_tools.models import blobs

LOOK = 0.25  # seconds between two checks of progress
SOURCES = ("F32", "F16", "BF16")
_CHILD = (
    "import sys; from llama_py_server.models.quantize_job import quantize_file; "
    "sys.exit(quantize_file(*sys.argv[1:]))"
)
_ERRORS = {1: "invalid_request_error", 2: "unavailable_error"}  # by exit code of the process
_ONE = threading.Lock()  # one quantization at a time: it uses all CPUs


def read_type(name: str, path: str) -> FileType:
    """Return the type to quantize a file to. HTTPError for an unknown type, and for a file that is
    quantized already."""
    try:
        kind = file_type(name)
    except ValueError:
        known = ", ".join(FILE_TYPES)
        raise invalid(f"unsupported quantize type {name[:40]!r}; known: {known}") from None
    facts = read_facts(path)
    if facts is None or facts.kind not in SOURCES:
        now = "not a model" if facts is None else facts.kind
        raise invalid(f"quantization needs a model of type F16, BF16 or F32; this one is {now}")
    return kind


async def quantize(path: str, kind: FileType) -> AsyncGenerator[dict[str, Any], None]:
    """Yield Ollama's progress, and at last the `digest` of the new blob.

    HTTPError if another quantization runs, or if this one fails. The end of the iterator ends it.
    """
    if not _ONE.acquire(blocking=False):
        raise HTTPError("unavailable_error", "another model is being quantized; try again later")
    process = None
    out = blobs.blob_folder() / f"quantize-{os.urandom(8).hex()}.gguf"
    try:
        paths = os.pathsep.join(one for one in sys.path if one)
        out.parent.mkdir(parents=True, exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, path, str(out), kind.name],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        total = model_size(path)
        status = f"quantizing model to {kind.name}"
        while process.poll() is None:
            done = sum(one.stat().st_size for one in out.parent.glob(f"{out.name}*"))
            yield {"status": status, "total": total, "completed": min(done, total)}
            await asyncio.sleep(LOOK)
        said = process.stdout.read().decode("utf-8", "replace").strip() if process.stdout else ""
        if process.returncode:
            why = f"quantization to {kind.name} failed: {without_folders(said[-500:])}"
            raise HTTPError(_ERRORS.get(process.returncode, "server_error"), why)
        yield {"status": status, "total": total, "completed": total, "digest": said}
    finally:
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        for left in out.parent.glob(f"{out.name}*"):
            left.unlink(missing_ok=True)
        _ONE.release()


def quantize_file(path: str, out: str, kind: str) -> int:
    """Quantize a file to a blob and print its digest, in a separate process; return the exit
    code."""
    from ggml_py.machine import host
    from llama_py.quantize.plan import Wishes
    from llama_py_tools.gguf.quantize import quantize

    if hasattr(os, "nice"):
        os.nice(10)
    try:
        n_threads = len(host.logical_cpus())
        quantize(path, out, Wishes(type=file_type(kind)), "", (), (), False, False, n_threads)
        print(blobs.move_file(Path(out)))
    except (GGMLError, OSError) as e:
        print(e)
        return 1 if isinstance(e, GGMLError) else 2
    return 0
