"""Graphs of ik_llama.cpp (commit 8337e4cd), recorded through its built libllama.so.

Only node lists are recorded: ik_llama.cpp computes delta nets of other head sizes differently.
"""

from __future__ import annotations

import ctypes
import json
import lzma
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from dev.record.golden.store import DATA
from dev.tiny_models import Tiny, every, find, write_file
from dev.tiny_models._invent import shapes
from ggml_py.inspection.dump import Record
from llama_py.batch import Batch
from llama_py.models import architecture
from llama_py_tools.graph.peer import native_batch

PER_STEP = 1  # llama.h:LLAMA_SPEC_CKPT_PER_STEP
END, OLD = ".ik.xz", "_old"
N_STEPS = 4  # tokens with checkpoints
LETTERS = {
    "u": ctypes.c_uint32,
    "i": ctypes.c_int32,
    "f": ctypes.c_float,
    "p": ctypes.c_void_p,
    "b": ctypes.c_bool,
}


def _struct(name: str, fields: str) -> type[ctypes.Structure]:
    """Create a C struct. fields: `u n_ctx`, or `u*4` for four unchanged fields."""
    found: list[tuple[str, Any]] = []
    for i, field in enumerate(fields.split(", ")):
        kind, _, own = field.partition(" ")
        letter, _, count = kind.partition("*")
        type_ = LETTERS[letter]
        found.append((own or f"_{i}", type_ * int(count) if count else type_))
    return type(name, (ctypes.Structure,), {"_fields_": found})


ModelParams = _struct(
    "ModelParams", "p, i n_gpu_layers, i*13, b, i*10, p*7, b*14"
)  # llama.h:struct llama_model_params
ContextParams = _struct(
    "ContextParams",
    "u, u n_ctx, u n_batch, u n_ubatch, u n_seq_max, u n_threads, u n_threads_batch, i*5, f*6, u,"
    " f, p cb_eval, p, i*13, b*3, b flash_attn, i*2, b*5, b graph_reuse, b*3, i*2, f, b*2, i, b*5,"
    " i, p*4",
)  # llama.h:struct llama_context_params


class _Tensor(ctypes.Structure):
    """Beginning of ggml.h:struct ggml_tensor."""


_Tensor._fields_ = [
    ("type", ctypes.c_int),
    ("backend", ctypes.c_int),
    ("buffer", ctypes.c_void_p),
    ("ne", ctypes.c_int64 * 4),
    ("nb", ctypes.c_size_t * 4),
    ("op", ctypes.c_int),
    ("op_params", ctypes.c_int32 * 16),
    ("flags", ctypes.c_int32),
    ("grad", ctypes.c_void_p),
    ("src", ctypes.POINTER(_Tensor) * 16),
    ("view_src", ctypes.POINTER(_Tensor)),
    ("view_offs", ctypes.c_size_t),
    ("data", ctypes.c_void_p),
    ("name", ctypes.c_char * 64),
    ("extra", ctypes.c_void_p),
]


class Batched(ctypes.Structure):
    """C struct llama.h:struct llama_batch."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
        ("all", ctypes.c_int32 * 3),
    )


class Ik:
    """Model in ik_llama.cpp; `nodes` has the last batch's nodes."""

    def __init__(self, library: Path, path: Path) -> None:
        self.api = api = ctypes.CDLL(str(library))
        ggml = ctypes.CDLL(str(_beside(library, "libggml.so")))
        self._op_desc, self._type_name = ggml.ggml_op_desc, ggml.ggml_type_name
        for function in (self._op_desc, self._type_name):
            function.restype = ctypes.c_char_p
        api.llama_model_default_params.restype = ModelParams
        api.llama_context_default_params.restype = ContextParams
        api.llama_model_load_from_file.restype = api.llama_init_from_model.restype = ctypes.c_void_p
        api.llama_model_load_from_file.argtypes = [ctypes.c_char_p, ModelParams]
        api.llama_init_from_model.argtypes = [ctypes.c_void_p, ContextParams]
        self.nodes: list[Record] = []
        node = ctypes.POINTER(_Tensor)
        kind = ctypes.CFUNCTYPE(ctypes.c_bool, node, ctypes.c_bool, ctypes.c_void_p)
        self._callback = kind(self._node)
        model: Any = api.llama_model_default_params()
        model.n_gpu_layers = 0
        how: Any = api.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch, how.n_seq_max = 256, 64, 64, 4
        how.n_threads = how.n_threads_batch = 1
        how.cb_eval = ctypes.cast(self._callback, ctypes.c_void_p).value
        how.graph_reuse = False
        self.model = api.llama_model_load_from_file(str(path).encode(), model)
        self.ctx = ctypes.c_void_p(api.llama_init_from_model(self.model, how))

    def run(self, batch: Batch) -> list[Record]:
        """Run a batch with explicit positions and outputs; return its nodes."""
        self.nodes = []
        keep, native = native_batch(Batched, batch)
        code = self.api.llama_decode(self.ctx, native)
        del keep
        if code:
            raise SystemExit(f"ik_llama.cpp: llama_decode returned {code}")
        return self.nodes

    def checkpoints(self) -> None:
        """Enable checkpoints of several tokens of sequence 0."""
        self.api.llama_spec_ckpt_init(self.ctx, PER_STEP, N_STEPS)
        self.api.llama_spec_ckpt_save(self.ctx, 0)

    def _node(self, node: Any, ask: bool, _: Any) -> bool:
        if not ask:
            t = node[0]
            kind = self._type_name(t.type).decode()
            self.nodes.append(
                {
                    "name": _name(t),
                    "op": self._op_desc(node).decode(),
                    "type": kind,
                    "ne": list(t.ne),
                    "nb": list(t.nb),
                    "offs": t.view_offs,
                    "view_src": _name(t.view_src[0]) if t.view_src else "",
                    "params": list(t.op_params),
                    "src": [
                        {"k": k, "name": _name(s[0]), "ne": list(s[0].ne), "nb": list(s[0].nb)}
                        for k, s in enumerate(t.src)
                        if s
                    ],
                }
            )
        return True


def _beside(library: Path, name: str) -> Path:
    """Return another library of the same build."""
    return next(iter(sorted(library.resolve().parents[1].rglob(name))))


def _name(t: Any) -> str:
    return bytes(t.name).decode(errors="ignore")


def batches() -> dict[str, Batch]:
    """Return the batches in order; the last one runs with checkpoints."""
    return {
        "prompt": _batch([0] * 5, range(5)),
        "tokens": _batch([0] * 3, range(5, 8)),
        "token": _batch([0], [8]),
        "mixed": _batch([2, 0, 1], [0, 9, 0]),
        "checkpoints": _batch([0] * 3, range(10, 13)),
    }


def models() -> list[tuple[str, str]]:
    """Return (architecture, variant) pairs with states in slots; `_old` has older matrices."""
    found = []
    for arch, variant in every():
        if variant != "mtp" and architecture(arch).in_slots and not find(arch, variant).newest:
            names = (variant, f"{variant}{OLD}")
            plain, old = (shapes(arch, _tiny(arch, name)) for name in names)
            found += [(arch, name) for name in names[: 1 if plain == old else 2]]
    return found


def write(arch: str, variant: str, folder: Path) -> Path:
    return write_file(folder / f"{arch}-{variant}-ik.gguf", arch, _tiny(arch, variant))


def _tiny(arch: str, variant: str) -> Tiny:
    """Return a tiny model for ik_llama.cpp.

    Every fourth layer is attention, regardless of the file. The model has no vocabulary, and no
    tensors unknown to ik_llama.cpp.
    """
    found = find(arch, variant.removesuffix(OLD))
    keep = [*found.keep, "*.ssm_in.weight"] if variant.endswith(OLD) else found.keep
    keys = {
        **found.keys,
        "block_count": 4,
        "attention.recurrent_layers": [True, True, True, False],
        "/tokenizer.ggml.model": "no_vocab",
    }
    return replace(found, keys=keys, keep=keep, without=[*found.without, "*.scale", "*.bias"])


def _batch(seqs: list[int], pos: Any) -> Batch:
    n = len(seqs)
    return Batch([1] * n, pos=list(pos), seq_ids=[(s,) for s in seqs], outputs=[True] * n)


def record(library: Path, arch: str, variant: str, path: Path) -> int:
    """Run one model and store its nodes; return the file's size in bytes."""
    engine = Ik(library, path)
    lists = {}
    for name, batch in batches().items():
        if name == "checkpoints":
            engine.checkpoints()
        lists[name] = engine.run(batch)
    text = json.dumps(lists, separators=(",", ":")).encode()
    return _file(arch, variant).write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def recorded() -> list[str]:
    """Return the names of the models with node lists."""
    return sorted(f"{p.parent.name}-{p.name[: -len(END)]}" for p in DATA.glob(f"*/*{END}"))


@cache
def nodes(arch: str, variant: str) -> Mapping[str, list[Record]]:
    """Return the recorded node lists by batch."""
    found: dict[str, list[Record]] = json.loads(lzma.decompress(_file(arch, variant).read_bytes()))
    return found


def _file(arch: str, variant: str) -> Path:
    return DATA / arch / f"{variant}{END}"
