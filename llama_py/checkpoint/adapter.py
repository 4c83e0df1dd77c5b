"""LoRA adapters of PEFT as GGUF files (llama.cpp's convert_lora_to_gguf.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import Array, LazyArray, NamedArrays
from llama_py.checkpoint.convert import wrap_errors
from llama_py.checkpoint.converter import QUANTIZATION_VERSION, Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder, read_json
from llama_py.checkpoint.metadata import ModelMetadata
from llama_py.checkpoint.models import converter
from llama_py.checkpoint.names import find_layer
from llama_py.checkpoint.output import NewTensor, choose_type, count_parameters
from llama_py.checkpoint.safetensors import read_safetensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PARTS = (
    (".lora_A.weight", "a"),
    (".lora_B.weight", "b"),
    (".lora_embedding_A", "a"),
    (".lora_embedding_B", "b"),
)


def is_adapter(path: str | os.PathLike[str]) -> bool:
    """Return True for a folder with an adapter's configuration."""
    return (Path(path) / CONFIG).is_file()


def plan_adapter(
    path: str | os.PathLike[str],
    base: str | os.PathLike[str],
    options: ConvertOptions | None = None,
) -> tuple[Converter, list[NewTensor]]:
    """Return a converter with the keys of an adapter's file, and its tensors.

    path  folder of the adapter;  base  folder with config.json of the model that it changes

    Raises ModelError for invalid folders, and for an adapter of tensors without a low-rank form in
    GGUF.
    """
    with wrap_errors(path):
        folder = Path(path)
        options = replace(options or ConvertOptions(outtype="f32"), nextn=False)
        config = read_json(folder / CONFIG)
        alpha = config.get("lora_alpha")
        if not isinstance(alpha, int | float):
            raise ModelError(
                f"{folder / CONFIG}: lora_alpha must be a number, got {str(alpha)[:50]!r}"
            )
        model = CheckpointFolder(Path(base))
        chosen = converter(model.model_name)(model, options)
        stored = dict(_read(folder, chosen))
        _, type_ = chosen.choose_type(stored)
        made = list[NewTensor]()
        for name, array in stored.items():
            for new, values in _parts(chosen, name, array):
                made.append(NewTensor(new, choose_type(new, values, type_), values))
        out, counts = chosen.out, count_parameters(made)
        out.text("general.type", "adapter")
        out.text("adapter.type", "lora")
        described = ModelMetadata(
            model.change_path(folder), counts.total, options.name, options.overrides
        )
        described.write(out, "")
        chosen.file_name = f"{described.file_stem}-{str(type_).upper()}-LoRA.gguf"
        out.f32("adapter.lora.alpha", float(alpha))
        if tokens := config.get("alora_invocation_tokens"):
            out.add("arr[u32]", "adapter.alora.invocation_tokens", tokens)
        out.u32("general.quantization_version", QUANTIZATION_VERSION)
        return chosen, made


def _parts(chosen: Converter, name: str, array: LazyArray) -> NamedArrays:
    """Yield the tensors of a changed matrix, or of a norm."""
    for new, values in chosen.tensors(name, array, find_layer(name)):
        if not isinstance(values, LowRankArray):
            yield new, values
            continue
        a = values.a.transpose() if "token_embd.weight" in new else values.a
        yield f"{new}.lora_a", a
        yield f"{new}.lora_b", values.b


def _read(folder: Path, chosen: Converter) -> NamedArrays:
    """Yield norms, then changed matrices, by the names of the model."""
    path, pairs = folder / WEIGHTS, dict[str, dict[str, LazyArray]]()
    if not path.is_file():
        raise ModelError(f"{path}: no such file; save the adapter as safetensors")
    tensors = read_safetensors(path)
    for stored in sorted(tensors.values(), key=lambda t: t.offset):
        name = stored.name.replace("base_model.model.", "")
        suffix, part = next((p for p in PARTS if name.endswith(p[0])), ("", ""))
        name = name.removesuffix(suffix) + (".weight" if suffix else "")
        selected = chosen.select(name)
        if selected is None or name.endswith(".base_layer.weight"):
            continue
        array = LazyArray.from_stored(stored)
        if part:
            pairs.setdefault(selected, {})[part] = array
        elif "_layernorm" in name or ".norm" in name:
            yield selected, array
        else:
            raise ModelError(
                f"{path}: tensor {stored.name[:100]!r} must be lora_A or lora_B; adapters with "
                "whole matrices, such as new embeddings, cannot be converted"
            )
    for name, pair in pairs.items():
        if len(pair) < 2:
            (part,) = pair
            raise ModelError(
                f"{path}: {name} must have lora_A and lora_B, got only lora_{part.upper()}; save "
                "the adapter again"
            )
        yield name, LowRankArray(pair["a"], pair["b"])


class LowRankArray(LazyArray):
    """A matrix b @ a of low rank. Operations change the factors.

    a  [..., rank, n_in];  b  [..., n_out, rank]

    Raises ModelError for an operation without such a result.
    """

    def __init__(self, a: LazyArray, b: LazyArray) -> None:
        if a.ndim != b.ndim or a.ndim < 2 or a.shape[-2] != b.shape[-1]:
            raise ModelError(
                f"lora_A {list(a.shape)} and lora_B {list(b.shape)} do not fit; "
                "they must be [rank, n_in] and [n_out, rank]"
            )
        super().__init__((*b.shape[:-1], a.shape[-1]), a.dtype, self._product, a.stored)
        self.a, self.b, self.rank = a, b, b.shape[-1]

    def _product(self) -> Array:
        made: Array = self.b.read() @ self.a.read()
        return made

    def reshape(self, *shape: int) -> LazyArray:
        n = int(np.prod(self.shape)) // max(int(np.prod([s for s in shape if s >= 0])), 1)
        found = tuple(n if s < 0 else s for s in shape)
        if len(found) < 2 or found[-1] != self.shape[-1]:
            raise self._error(f"the shape {list(found)}")
        a = self.a.reshape(*[1] * (len(found) - 2), self.rank, found[-1])
        return LowRankArray(a, self.b.reshape(*found[:-1], self.rank))

    def transpose(self, *axes: int) -> LazyArray:
        order = axes or tuple(range(self.ndim))[::-1]
        if order[-1] == self.ndim - 1 and all(n == 1 for n in self.a.shape[:-2]):
            return LowRankArray(self.a, self.b.transpose(*order))
        if order == (1, 0):
            return LowRankArray(self.b.transpose(), self.a.transpose())
        raise self._error(f"its dimensions in the order {[*order]}")

    def rows(self, start: int, end: int | None = None, axis: int = 0) -> LazyArray:
        return self._change_axis(axis, lambda part, axis: part.rows(start, end, axis))

    def take(self, indices: Sequence[int], axis: int) -> LazyArray:
        return self._change_axis(axis, lambda part, axis: part.take(indices, axis))

    def _change_axis(self, axis: int, change: Callable[[LazyArray, int], LazyArray]) -> LazyArray:
        """Change a dimension in the factors that have it."""
        axis %= self.ndim
        if axis == self.ndim - 1:
            return LowRankArray(change(self.a, axis), self.b)
        has_both = axis < self.ndim - 2 and self.a.shape[axis] > 1
        return LowRankArray(change(self.a, axis) if has_both else self.a, change(self.b, axis))

    def concat(self, others: Sequence[LazyArray], axis: int) -> LazyArray:
        pairs = [one for one in (self, *others) if isinstance(one, LowRankArray)]
        first, b = self.a.read(), [one.b for one in pairs]
        if len(pairs) <= len(others) or axis == self.ndim - 1:
            raise self._error("a part of another matrix")
        is_shared = all(n == 1 for n in self.a.shape[:-2])
        if is_shared and all(np.array_equal(first, one.a.read()) for one in pairs[1:]):
            return LowRankArray(self.a, b[0].concat(b[1:], axis))
        if self.ndim == 2:
            raise self._error("a part of a matrix with other inputs")
        return LowRankArray(
            self.a.concat([one.a for one in pairs[1:]], axis), b[0].concat(b[1:], axis)
        )

    def stack(self, others: Sequence[LazyArray]) -> LazyArray:
        pairs = [one for one in others if isinstance(one, LowRankArray)]
        if len(pairs) < len(others):
            raise self._error("an expert among others without an adapter")
        return LowRankArray(
            self.a.stack([one.a for one in pairs]), self.b.stack([one.b for one in pairs])
        )

    def map(self, function: Callable[[Array], Array]) -> LazyArray:
        raise self._error("values that are changed one by one")

    def _error(self, what: str) -> ModelError:
        return ModelError(
            f"an adapter's matrix of shape {list(self.shape)} cannot have {what} in GGUF; merge "
            "the adapter with its model, and convert the result"
        )
