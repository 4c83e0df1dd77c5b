"""An adapter from a GGUF file, on the devices of the weights that it changes
(llama-adapter.cpp:llama_adapter_lora_init_impl).

It changes a weight W [n_in, n_out] to W + scale * (B A): `NAME.lora_a` is A [n_in, rank] and
`NAME.lora_b` is B [rank, n_out]; experts have separate A and B, along dimension 2. For token
embeddings [n_embd, n_vocab], A is [rank, n_vocab] and B [rank, n_embd]: rows of A, times B.

If devices have parts of W, each has a separate pair. For columns of W it has the same columns of A,
and the products are partial sums; for rows of W it has the same rows of B.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ggml_py.backend import Device
from ggml_py.errors import ContextError, GGUFError, WeightsError
from ggml_py.ops import get_rows, mul_mat, mul_mat_id
from ggml_py.tensor import FLAG_WEIGHT, Tensor
from ggml_py.types import F32, I32
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.metadata import describe, printable, quote_text
from llama_py.gguf.tensor_part import TensorCut, cuts_blocks

log = logging.getLogger("llama_py")

KIND = ("general.type", "adapter"), ("adapter.type", "lora")
ALPHA = "adapter.lora.alpha"
INVOCATION = "adapter.alora.invocation_tokens"
ENDS = (".lora_a", ".lora_b")
TABLE = "token_embd.weight"  # a row lookup: its A is not transposed
UNREAD = "_norm.weight"  # norms from some converters; llama.cpp ignores them as well
N_TOKENS = 8  # tokens of the products in checks of device support

Base = Mapping[str, Sequence[TensorCut]]  # a model's weights by name, with their placement


@dataclass(frozen=True, slots=True)
class LoraPair:
    """A and B of a weight, or of a device's part; `table` if the graph reads rows of A."""

    parts: tuple[TensorCut, TensorCut]
    table: bool

    @property
    def a(self) -> Tensor:
        return self.parts[0].tensor

    @property
    def b(self) -> Tensor:
        return self.parts[1].tensor

    @property
    def rank(self) -> int:
        return self.b.ne[0]

    def nodes(self) -> Iterator[tuple[TensorCut, Tensor]]:
        """Yield each part with a node like the nodes that will read it."""
        ids = Tensor(I32, (1, N_TOKENS))
        for part in self.parts:
            t = part.tensor
            x = Tensor(F32, (t.ne[0], N_TOKENS))
            if self.table and t is self.a:
                yield part, get_rows(t, Tensor(I32, (N_TOKENS,)))
            elif t.ne[2] > 1:
                yield part, mul_mat_id(t, Tensor(F32, (t.ne[0], 1, N_TOKENS)), ids)
            else:
                yield part, mul_mat(t, x)


class Adapter:
    """A loaded adapter (llama_adapter_lora).

    path, alpha         alpha 0: the scale does not depend on the rank
    invocation_tokens   tokens that start an activated adapter (aLoRA); else ()
    pairs               by the name of the weight or part
    task, prompt_prefix task and prompt prefix in the file, or ""
    """

    def __init__(
        self, path: str | os.PathLike[str], architecture: str, base: Base, host: Device
    ) -> None:
        """base, host: the weights of the model of that architecture, and its last device.

        Raises GGUFError for an invalid adapter, WeightsError for an adapter of another model.
        """
        self.path = str(path)
        with GGUFFile.open(path) as file:
            self._read_metadata(file, architecture)
            infos = dict(file.tensors)
        self.pairs: dict[str, LoraPair] = {}
        for name, found in _by_weight(self.path, infos).items():
            for place, pair in _pairs(self.path, name, found, base):
                self.pairs[place.tensor.name] = pair
        if not self.pairs:
            raise GGUFError(
                f"{path}: no tensors NAME{ENDS[0]} and NAME{ENDS[1]}; use the GGUF file of a "
                "LoRA adapter"
            )
        self._place(host)

    def _read_metadata(self, file: GGUFFile, architecture: str) -> None:
        data = file.metadata
        for key, expected in KIND:
            found = data.get(key)
            if not isinstance(found, str) or found != expected:
                shown = quote_text(found) if isinstance(found, str) else describe(found)
                raise GGUFError(
                    f"{file.path}: not a LoRA adapter: {key} must be {expected!r}, got {shown}; "
                    "convert it with llama.cpp's convert_lora_to_gguf.py"
                )
        if file.architecture != architecture:
            raise WeightsError(
                f"{file.path}: adapter of architecture {quote_text(file.architecture)} does not "
                f"fit the model's architecture {architecture!r}; use an adapter that was trained "
                "with this model"
            )
        alpha = data.get(ALPHA, 0.0)
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not _finite(alpha):
            shown = str(alpha) if isinstance(alpha, float) else describe(alpha)
            raise GGUFError(
                f"{file.path}: {ALPHA} must be a finite number, got {shown}; convert the adapter "
                "again"
            )
        self.alpha = float(alpha)
        self.invocation_tokens = _tokens(file.path, data.get(INVOCATION, ()))
        texts = (data.get(f"adapter.lora.{key}") for key in ("task_name", "prompt_prefix"))
        self.task, self.prompt_prefix = (t if isinstance(t, str) else "" for t in texts)

    def _place(self, host: Device) -> None:
        """Place each part with its weight, or on the host if that device cannot multiply this type.
        The layout is the file's, like in llama.cpp: adapters are small.
        """
        sizes: dict[str, int] = {}
        for pair in self.pairs.values():
            for part, node in pair.nodes():
                t, device = part.tensor, part.device
                if device is not host and (reason := device.why_not(node)):
                    log.info(
                        "%s is computed on %s, because %s does not support it: %s",
                        t.name,
                        host.name,
                        device.name,
                        reason,
                    )
                    device = host
                if device is host and (reason := host.why_not(node)):
                    raise WeightsError(
                        f"{self.path}: {t.name} of type {t.type} cannot be used on {host.name}:"
                        f" {reason}; convert the adapter to f32, f16 or bf16"
                    )
                data = part.data()
                t.buffer = device.wrap(data)
                if t.buffer is None:
                    t.buffer = device.alloc(data.size)
                    t.buffer.write(0, data)
                t.flags |= FLAG_WEIGHT
                sizes[device.name] = sizes.get(device.name, 0) + data.size
        for device_name, size in sizes.items():
            log.info("load_adapter: %12s LoRA buffer size = %8.2f MiB", device_name, size / 2**20)

    def scale(self, pair: LoraPair, scale: float) -> float:
        """Return the factor of B A: scale * alpha / rank, in float32 like llama.cpp.

        Raises ContextError if that is not finite.
        """
        with np.errstate(over="ignore"):
            factor = np.float32(scale)
            if self.alpha:
                factor = factor * np.float32(self.alpha) / np.float32(pair.rank)
        if not np.isfinite(factor):
            raise ContextError(
                f"{self.path}: {pair.a.name}: scale {scale} times alpha = {self.alpha} does not "
                "fit in float32; use a smaller scale"
            )
        return float(factor)

    def tensors(self) -> Iterator[Tensor]:
        for pair in self.pairs.values():
            yield pair.a
            yield pair.b

    def __repr__(self) -> str:
        return f"<Adapter {self.path} of {len(self.pairs)} weights>"


def _finite(x: float) -> bool:
    """Return True if a number is finite, as float32 too."""
    return math.isfinite(x) and abs(x) < float(np.finfo(np.float32).max)


def _tokens(path: object, value: object) -> tuple[int, ...]:
    try:
        array = np.asarray(value)
    except ValueError:  # arrays of different lengths in an array
        array = np.asarray(None)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise GGUFError(
            f"{path}: {INVOCATION} must be an array of token ids; convert the adapter again"
        )
    return tuple(int(t) for t in array)


def _by_weight(path: str, infos: Mapping[str, TensorInfo]) -> dict[str, dict[str, TensorInfo]]:
    """Group the two tensors of each weight, by the ends of their names."""
    found: dict[str, dict[str, TensorInfo]] = {}
    for name, info in infos.items():
        end = next((end for end in ENDS if name.endswith(end)), "")
        if end:
            found.setdefault(name.removesuffix(end), {})[end] = info
        elif name.endswith(UNREAD):
            log.warning("%s: norms cannot have an adapter, so tensor %r is ignored", path, name)
        else:
            ends = " or ".join(ENDS)
            raise GGUFError(f"{path}: unknown tensor {name!r}; names of an adapter end in {ends}")
    return found


def _pairs(
    path: str, name: str, found: Mapping[str, TensorInfo], base: Base
) -> Iterator[tuple[TensorCut, LoraPair]]:
    """Yield the matrices for each placement of the weight."""
    missing = [end for end in ENDS if end not in found]
    if missing:
        shown = printable(name)
        raise GGUFError(f"{path}: tensor {shown}{missing[0]} is missing; convert the adapter again")
    if name not in base:
        raise WeightsError(
            f"{path}: the model has no weight {name!r}; use an adapter that was trained with "
            "this model"
        )
    a, b = (found[end] for end in ENDS)
    w, table = base[name][0].info.ne, name.endswith(TABLE)
    n_in, n_out, *more = w
    rank = b.ne[0]
    expected = (rank, n_out, *more) if table else (n_in, rank, *more)
    if a.ne != expected or b.ne != (rank, n_in if table else n_out, *more):
        raise WeightsError(
            f"{path}: {name} is {list(w)} in the model, which does not fit A {list(a.ne)} and B "
            f"{list(b.ne)}; use an adapter that was trained with this model"
        )
    for place in base[name]:
        yield (
            place,
            LoraPair(
                (_cut_like_weight(path, a, place, 1), _cut_like_weight(path, b, place, 0)), table
            ),
        )


def _cut_like_weight(path: str, info: TensorInfo, place: TensorCut, whole_along: int) -> TensorCut:
    """Cut an A or B like the part of its weight, except along one dimension."""
    end = place.tensor.name.removeprefix(place.info.name)
    dim = None if place.dim == whole_along else place.dim
    if cuts_blocks(info, dim, place.ranges):
        raise WeightsError(
            f"{path}: split_mode graph would cut {info.name}{end} within blocks of "
            f"{info.type.block_size} elements of {info.type}; use an adapter of f32, f16 or "
            "bf16, or split_mode layer"
        )
    ne = list(info.ne)
    if dim is not None:
        ne[dim] = sum(b - a for a, b in place.ranges)
    tensor = Tensor(info.type, tuple(ne), name=f"{info.name}{end}")
    return TensorCut(tensor, place.device, info, dim, place.ranges)
