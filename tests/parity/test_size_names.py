"""What a model of a size is called: as the real llama.cpp calls it, which reads only its head."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev import tiny_models as tiny
from dev.record.golden.quantize import Case, write_head
from dev.tiny_models import Tiny
from dev.tiny_models._invent import shapes
from ggml_py.errors import HParamsError
from llama_py.hparams import HParams
from llama_py.models import architecture, known_architectures

llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: '.[parity]'")
pytestmark = pytest.mark.parity

UNKNOWN = 5  # layers that no architecture has a name for
SILENT = llama_cpp.llama_log_callback(lambda *_: None)


def sized(found: Tiny, size: int | tuple[int, int]) -> Tiny:
    """A tiny model with as many layers, and perhaps channels; lists go on as they begin."""
    n_layer, *n_embd = size if isinstance(size, tuple) else (size,)
    n_old = found.keys["block_count"]
    n_new = n_layer + found.keys.get("nextn_predict_layers", 0)
    keys: dict[str, Any] = {
        k: (list(v) * n_new)[:n_new] if isinstance(v, list | tuple) and len(v) == n_old else v
        for k, v in found.keys.items()
    }
    keys["block_count"] = n_new
    if n_embd:
        old, keys["embedding_length"] = keys["embedding_length"], n_embd[0]
        if keys.get("ssm.inner_size") == 2 * old:
            keys["ssm.inner_size"] = 2 * n_embd[0]
    return replace(found, keys=keys)


def desc_there(path: Path) -> str:
    """llama.cpp's words for a file of which it reads only the head; "" if it wants other tensors in
    a model of this size."""
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers, params.use_extra_bufts = 0, False
    params.load_mtp, params.no_alloc, params.load_mode = True, True, 0  # LLAMA_LOAD_MODE_NONE
    llama_cpp.llama_log_set(SILENT, None)
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        return ""
    buffer = llama_cpp.ctypes.create_string_buffer(200)
    llama_cpp.llama_model_desc(model, buffer, 200)
    llama_cpp.llama_model_free(model)
    return str(buffer.value.decode())


@pytest.mark.parametrize("arch", known_architectures())
def test_sizes_have_llama_cpps_names(arch: str, tmp_path: Path) -> None:
    kind = architecture(arch)
    variant = next(v for a, v in tiny.every() if a == arch)
    compared, model = 0, tiny.find(arch, variant)
    if model.unrecorded:
        pytest.skip("llama.cpp cannot run it")
    for size in (UNKNOWN, *kind.sizes):
        made = sized(model, size)
        metadata = tiny.metadata(arch, made)
        with suppress(HParamsError):  # other keys would have to change with the channels
            hp: HParams = kind.HParams(metadata, arch)
            write_head(tmp_path / "head.gguf", Case(metadata, shapes(arch, made), ()), "f32")
            there = desc_there(tmp_path / "head.gguf")
            assert there.startswith(f"{arch} {kind.size_name(hp)} " if there else ""), (size, there)
            compared += bool(there)
    if not compared:
        pytest.skip("other keys would have to change with the number of layers")
