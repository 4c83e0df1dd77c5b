"""The compiling process: a job a line on stdin, an answer a line on stdout."""

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

GARBAGE = 2_000_000  # objects this makes before it looks for garbage


def serve() -> None:
    """Answer until stdin ends: with the object code, or with why there is none."""
    answers, sys.stdout = sys.stdout, sys.stderr
    jobs = _jobs()
    # The thousand errors that Numba raises for itself as it types a kernel are not to be coloured:
    # with colorama installed that is a twentieth of the work.
    os.environ["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"
    import_module("ggml_cpu.frontend")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asked; that ends us if it must
    gc.disable()  # what compiling leaves behind is mostly kept; looking through it takes a fifth
    for line in jobs:
        failure, code = _answer(**json.loads(line))
        text = binascii.b2a_base64(code, newline=False).decode()
        answers.write(json.dumps([failure, text]) + "\n")
        answers.flush()
        if gc.get_count()[0] > GARBAGE:
            gc.collect()


def _jobs() -> Iterator[str]:
    """Yield lines of stdin. If the asking process ends, even killed, this process ends, whatever it
    compiles."""
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
    """Import by name, or from the file where the name is not importable (test modules)."""
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
