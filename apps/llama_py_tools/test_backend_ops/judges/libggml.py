"""Binding of libggml through ctypes: the functions that compute one node, and their struct.

ggml ends the process when a node breaks a rule (GGML_ASSERT). It calls back first. That call never
returns, so its thread sleeps forever and our thread continues.
"""

from __future__ import annotations

import ctypes
import queue
import struct
import threading
from collections.abc import Callable
from ctypes import POINTER, c_bool, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ggml_py.errors import BackendError, UnsupportedOp
from ggml_py.machine.extras import install_hint
from ggml_py.opspec import OP_PARAMS_SIZE

GRAPH_SIZE = 32  # maximum nodes and leaves
MAX_NAMES = 160
# The last name of each enumeration, because ggml does not report the length.
LAST_NAMES = {
    "ggml_op_name": "GLU",
    "ggml_unary_op_name": "TRUNC",
    "ggml_glu_op_name": "SWIGLU_CLAMP",
}


class GgmlTensor(ctypes.Structure):
    """Struct ggml_tensor of ggml.h."""

    _fields_ = (
        ("type", c_int), ("buffer", c_void_p), ("ne", c_int64 * 4), ("nb", c_size_t * 4),
        ("op", c_int), ("op_params", c_int32 * (OP_PARAMS_SIZE // 4)), ("flags", c_int32),
        ("src", c_void_p * 10), ("view_src", c_void_p), ("view_offs", c_size_t), ("data", c_void_p),
        ("name", ctypes.c_char * 64), ("extra", c_void_p), ("padding", ctypes.c_char * 8),
    )  # fmt: skip


class _InitParams(ctypes.Structure):
    """Struct ggml_init_params of ggml.h."""

    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


_AbortCallback = ctypes.CFUNCTYPE(None, c_char_p)

# name: result, arguments; all but the first of libggml-base
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ggml_backend_cpu_init": (c_void_p,),
    "ggml_backend_cpu_set_n_threads": (None, c_void_p, c_int),
    "ggml_backend_free": (None, c_void_p),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "ggml_backend_supports_op": (c_bool, c_void_p, c_void_p),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_free": (None, c_void_p),
    "ggml_glu_op_name": (c_char_p, c_int),
    "ggml_graph_add_node": (None, c_void_p, c_void_p),
    "ggml_graph_overhead_custom": (c_size_t, c_size_t, c_bool),
    "ggml_init": (c_void_p, _InitParams),
    "ggml_new_graph_custom": (c_void_p, c_void_p, c_size_t, c_bool),
    "ggml_new_tensor_2d": (POINTER(GgmlTensor), c_void_p, c_int, c_int64, c_int64),
    "ggml_op_name": (c_char_p, c_int),
    "ggml_scale": (POINTER(GgmlTensor), c_void_p, c_void_p, ctypes.c_float),
    "ggml_set_abort_callback": (c_void_p, _AbortCallback),
    "ggml_type_name": (c_char_p, c_int),
    "ggml_unary_op_name": (c_char_p, c_int),
}


class Ggml:
    """The library; ops: number of each op by its name, of UNARY and GLU by their kinds' names."""

    def __init__(self, directory: Path) -> None:
        # The second needs the first.
        libraries = [
            ctypes.CDLL(str(_file(directory, name)), mode=ctypes.RTLD_GLOBAL)
            for name in ("ggml-base", "ggml-cpu")
        ]
        self._functions = {name: _function(libraries, name) for name in _FUNCTIONS}
        self._answers: queue.SimpleQueue[int | str] = queue.SimpleQueue()
        self._callback = _AbortCallback(self._note_abort)  # must outlive its registration
        self.ops = {name: number for number, name in enumerate(self._names("ggml_op_name"))}
        for op, function in (("UNARY", "ggml_unary_op_name"), ("GLU", "ggml_glu_op_name")):
            self.ops.update(dict.fromkeys(self._names(function), self.ops[op]))
        self._check_layout()
        self._call("ggml_set_abort_callback", self._callback)

    @staticmethod
    @cache
    def load() -> Ggml:
        """Load llama-cpp-python's ggml; BackendError if it is missing, or of an unknown version."""
        spec = find_spec("llama_cpp")
        if spec is None or spec.origin is None:
            raise BackendError(f"--against ggml needs llama-cpp-python: {install_hint('parity')}")
        try:
            return Ggml(Path(spec.origin).parent / "lib")
        except (OSError, AttributeError, KeyError) as e:
            raise BackendError(f"{_find_library()} has no usable libggml: {e}") from e

    def _call(self, name: str, *args: Any) -> Any:
        return self._functions[name](*args)

    def type_name(self, number: int) -> str:
        return str((self._call("ggml_type_name", number) or b"").decode())

    def supports(self, node: int) -> bool:
        """Return True if ggml's CPU backend supports the node at this address."""

        def ask(backend: int) -> int:
            return int(self._call("ggml_backend_supports_op", backend, node))

        return bool(self._run_guarded(ask))

    def compute(self, node: int, times: int = 1, n_threads: int = 1) -> None:
        """Compute the node at this address; UnsupportedOp if ggml refuses or aborts.

        Threads of ggml would not report an abort: use several only for nodes known to work.
        """

        def run(backend: int) -> int:
            self._call("ggml_backend_cpu_set_n_threads", backend, n_threads)
            size = self._call("ggml_graph_overhead_custom", GRAPH_SIZE + times, False)
            context = self._call("ggml_init", _InitParams(size, None, True))
            graph = self._call("ggml_new_graph_custom", context, GRAPH_SIZE + times, False)
            self._call("ggml_build_forward_expand", graph, node)
            for _ in range(times - 1):
                self._call("ggml_graph_add_node", graph, node)
            status = self._call("ggml_backend_graph_compute", backend, graph)
            self._call("ggml_free", context)
            return int(status)

        if status := self._run_guarded(run):
            raise UnsupportedOp(f"status {status}")

    def _run_guarded(self, job: Callable[[int], int]) -> int:
        """Run job(backend) in a separate thread; if ggml aborts, its memory is never freed."""

        def work() -> None:
            backend = self._call("ggml_backend_cpu_init")
            self._call("ggml_backend_cpu_set_n_threads", backend, 1)
            answer = job(backend)
            self._call("ggml_backend_free", backend)
            self._answers.put(answer)

        threading.Thread(target=work, daemon=True).start()
        answer = self._answers.get()
        if isinstance(answer, str):
            raise UnsupportedOp(answer)
        return answer

    def _note_abort(self, message: bytes) -> None:
        text = message.decode(errors="replace")
        self._answers.put(text.rpartition("/")[2].strip())
        threading.Event().wait()

    def _names(self, function: str) -> list[str]:
        names: list[str] = []
        while LAST_NAMES[function] not in names and len(names) < MAX_NAMES:
            names.append(self._call(function, len(names)).decode())
        return names

    def _check_layout(self) -> None:
        """Check the struct layout on a node that ggml makes."""
        context = self._call("ggml_init", _InitParams(1 << 16, None, True))
        a = self._call("ggml_new_tensor_2d", context, 0, 32, 3)
        t = self._call("ggml_scale", context, a, 0.5).contents
        as_expected = (
            (t.type, tuple(t.ne), tuple(t.nb)) == (0, (32, 3, 1, 1), (4, 128, 384, 384))
            and t.op == self.ops.get("SCALE")
            and bytes(t.op_params)[:8] == struct.pack("<2f", 0.5, 0.0)
            and t.src[0] == ctypes.addressof(a.contents)
            and (t.view_src, t.data, t.name) == (None, None, b"")
        )
        self._call("ggml_free", context)
        if not as_expected:
            raise BackendError(
                f"{_find_library()} has an unknown layout of struct ggml_tensor; install a known "
                f"version: {install_hint('parity')}"
            )


def _find_library() -> str:
    return f"llama-cpp-python {version('llama-cpp-python')}"


def _file(directory: Path, name: str) -> Path:
    found = [directory / f for f in (f"lib{name}.so", f"lib{name}.dylib", f"{name}.dll")]
    present = [f for f in found if f.exists()]
    if not present:
        raise FileNotFoundError(f"{found[0]} is missing")
    return present[0]


def _function(libraries: list[ctypes.CDLL], name: str) -> Any:
    result, *arguments = _FUNCTIONS[name]
    library = next((lib for lib in libraries if hasattr(lib, name)), libraries[0])
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function
