"""The compiling child process: one JSON job per line on stdin, one result per line on stdout."""

from __future__ import annotations

import binascii
import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from queue import SimpleQueue

from ggml_cpu.children import CHANGED
from ggml_cpu.codegen import object_code
from ggml_cpu.fingerprints import file_name
from ggml_cpu.kernel import REGISTRY
from ggml_py.errors import BackendError

GARBAGE = 2_000_000  # new objects between two garbage collections


def serve() -> None:
    """Compile the kernels requested on stdin until it ends; write object code or an error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    jobs = _jobs()
    # Numba raises and catches about a thousand errors while it types a kernel. Do not color them:
    # with colorama installed, that is a twentieth of the work.
    os.environ["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"
    import_module("ggml_cpu.frontend")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    gc.disable()  # most objects are permanent; collecting takes a fifth of the time
    for line in jobs:
        failure, code = _answer(**json.loads(line))
        text = binascii.b2a_base64(code, newline=False).decode()
        answers.write(json.dumps([failure, text]) + "\n")
        answers.flush()
        if gc.get_count()[0] > GARBAGE:
            gc.collect()


def _jobs() -> Iterator[str]:
    """Yield the lines of stdin.

    When stdin closes, because the parent ended or was killed, exit at once, even while compiling.
    """
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return iter(lines.get, None)


def _answer(module: str, source: str, kernel: str, file: str) -> tuple[str, bytes]:
    try:
        _import(module, source)
        declared = REGISTRY.kernels.get(kernel)
        if declared is None or file_name(declared) != file:
            return f"kernel {kernel}: {module} {CHANGED}", b""
        return "", object_code(declared)
    except BackendError as error:
        return str(error), b""
    except Exception as error:
        return f"kernel {kernel} ({module}): {type(error).__name__}: {error}", b""


def _import(module: str, source: str) -> None:
    """Import a module by name, or from its file if that fails (test modules)."""
    if module in sys.modules:
        return
    try:
        import_module(module)
    except ImportError:
        spec = spec_from_file_location(module, source)
        if spec is None or spec.loader is None:
            raise
        sys.modules[module] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
