"""Weights: tensors that blocks declare, compared with a file's tensors and placed on devices.

    w = Weights(file.tensors, where)
    token_embd = w.tensor("token_embd.weight", n_embd, n_vocab)
    for il in range(n_layer):
        blk = w.layer(il)                                     # names without `blk.N.`
        norm = blk.norm("attn_norm", n_embd)                  # a Norm
        wo = blk.linear("attn_output", n_embd, n_embd, bias=True)   # a Linear
    w.finish()             # every missing, unused and misshapen tensor in one WeightsError
    w.place(device_of, uses)

Shapes are in ggml's order, ne[0] first. Allocation starts after `finish` has passed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

from ggml_py._moved import Former, former_names
from ggml_py.backend import Bytes, Device, ExpertStats
from ggml_py.errors import WeightsError
from ggml_py.tensor import Tensor, shape4
from ggml_py.types import F32
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.metadata import printable
from llama_py.gguf.tensor_part import TensorCut
from llama_py.graph.linear import ExpertLinear, Linear, Norm, NormKind
from llama_py.params.like import LLAMA_CPP, TRANSFORMERS
from llama_py.weights.declarations import Declarations, DeviceOf, Progress, Readers, TensorFactory
from llama_py.weights.repacking import MemoryLimit

_MAX_LISTED = 10
SCALED_TYPES = ("nvfp4",)  # values are multiplied by a separate scale tensor

Bias = Literal[False, True, "needed", "unread"]
Sections = Sequence[int]


class Weights:
    """Declares tensors by their names without a prefix, which `layer` and `scope` extend.

    sizes   bytes of weights by device name
    il      the layer of this prefix, or -1
    """

    def __init__(self, infos: Mapping[str, TensorInfo], where: str, like: str = LLAMA_CPP) -> None:
        """Create declarations for the tensors of a file or `TensorFactory`; like: a `LIKE`."""
        invent = infos if isinstance(infos, TensorFactory) else None
        self._all = Declarations(infos, where, invent, like)
        self.prefix = ""
        self.il = -1

    def scope(self, prefix: str, il: int = -1) -> Weights:
        """Return declarations in the same file with one more name prefix."""
        part = type(self).__new__(type(self))
        part._all, part.prefix, part.il = self._all, self.prefix + prefix, il
        return part

    def layer(self, il: int, stack: str = "") -> Weights:
        """Return the tensors of layer il; `stack` is "enc." or "dec." if the model has both."""
        return self.scope(f"{stack}blk.{il}.", il)

    def has(self, name: str) -> bool:
        """Return True if the file has the tensor."""
        return self.prefix + name in self._all.infos

    def n_rows(self, name: str, default: int) -> int:
        """Return the rows of a tensor whose size no key has; `default` if it is missing."""
        info = self._all.infos.get(self.prefix + name)
        return default if info is None else info.ne[1]

    def any_ends(self, suffix: str) -> bool:
        """Return True if the file has a tensor name that ends with `suffix`."""
        return any(name.endswith(suffix) for name in self._all.infos)

    def tensor(
        self,
        name: str,
        *ne: int,
        other: tuple[int, ...] = (),
        sections: Sections = (),
        shaped: tuple[int, ...] = (),
    ) -> Tensor:
        """Declare a required tensor; `other` is another allowed shape. `shaped` is the shape of the
        result, which the file may have as well.

        sections   sizes of the sections along the dimension that devices may share:
                   each device has a part of every section. (): a single section

        The result is a placeholder if it is missing or misshapen: `finish` will raise.
        """
        found = self._find(name, ne, other or shaped, True, sections, shaped)
        if found is None:
            self._all.missing.append(self.prefix + name)
            return Tensor(F32, shaped or ne, name=self.prefix + name)
        return found

    def reshaped_tensor(self, name: str, *ne: int) -> Tensor:
        """Declare a tensor [n_in, n_out, n] that may be stored as a matrix [n_in, n_out * n]."""
        flat = (ne[0], ne[1] * ne[2])
        t = self.tensor(name, *ne, other=flat)
        if tuple(t.ne) == shape4(flat):
            t = self._all.tensors[t.name] = Tensor(t.type, ne, name=t.name)
        return t

    def optional_tensor(
        self, name: str, *ne: int, other: tuple[int, ...] = (), sections: Sections = ()
    ) -> Tensor | None:
        """Declare a tensor that may be missing."""
        return self._find(name, ne, other, False, sections)

    def _find(
        self,
        name: str,
        ne: tuple[int, ...],
        other: tuple[int, ...],
        needed: bool,
        sections: Sections = (),
        shaped: tuple[int, ...] = (),
    ) -> Tensor | None:
        name, d = self.prefix + name, self._all
        if d.invent is not None:
            d.invent.declare(name, ne, needed)
        info = d.infos.get(name)
        if info is None:
            return None
        if name in d.tensors:
            return d.tensors[name]
        self._check_shape(info, ne, other)
        d.tensors[name] = Tensor(info.type, shaped or info.ne, name=name)
        return d.tensors[name]

    def _check_shape(
        self, info: TensorInfo, ne: tuple[int, ...], other: tuple[int, ...] = ()
    ) -> None:
        if tuple(info.ne) not in (shape4(ne), shape4(other or ne)):
            self._all.misshapen.append(
                f"tensor {info.name!r} has wrong shape; expected {format_shape(ne)}, "
                f"got {format_shape(info.ne)}"
            )

    def unread_tensor(
        self, name: str, *ne: int, needed: bool = False, sections: Sections = ()
    ) -> Tensor | None:
        """Declare a tensor that llama.cpp loads but does not use in its graph.

        Args:
            name: Name without this object's prefix.
            ne: Shape in ggml's order.
                needed: Other tensors have wrong values without this one, so it is applied anyway.
                sections: See `tensor`.

            Returns:
                The tensor if the graph must apply it: it is needed, or the model is computed like
                transformers. None if the file does not have it or it is ignored.
        """
        d, full = self._all, self.prefix + name
        if d.invent is not None or full not in d.infos:  # recorded models do not have it
            return None
        if needed:
            d.restored[full] = None
        elif d.like != TRANSFORMERS:
            self._check_shape(d.infos[full], ne)
            d.ignored[full] = None
            return None
        return self._find(name, ne, (), False, sections)

    def norm(self, stem: str, *ne: int, kind: NormKind = "rms", bias: Bias = False) -> Norm:
        """Declare a norm: `stem`.weight, and `stem`.bias if it has one."""
        return Norm(self.tensor(f"{stem}.weight", *ne), self.bias(stem, ne, bias), kind)

    def optional_norm(
        self, stem: str, *ne: int, kind: NormKind = "rms", bias: Bias = False
    ) -> Norm | None:
        return self.norm(stem, *ne, kind=kind, bias=bias) if self._has_weight(stem, ne) else None

    def linear(
        self,
        stem: str,
        n_in: int,
        n_out: int,
        *,
        bias: Bias = False,
        scaled: bool = True,
        sections: Sections = (),
    ) -> Linear:
        """Declare a matrix: `stem`.weight, with `stem`.scale and optionally `stem`.bias if present.

        bias     "needed": required
                 "unread": llama.cpp loads it but does not use it (`unread_tensor`)
        scaled   False: the same for the scale, unless the weight's type needs it
        sections  see `tensor`
        """
        weight = self.tensor(f"{stem}.weight", n_in, n_out, sections=sections)
        bias_ = self.bias(stem, (n_out,), bias, sections)
        return Linear(weight, bias_, self.scale(stem, 1, weight, scaled))

    def optional_linear(
        self, stem: str, n_in: int, n_out: int, *, bias: Bias = False, scaled: bool = True
    ) -> Linear | None:
        if not self._has_weight(stem, (n_in, n_out)):
            return None
        return self.linear(stem, n_in, n_out, bias=bias, scaled=scaled)

    def experts(
        self,
        stem: str,
        n_in: int,
        n_out: int,
        n_expert: int,
        *,
        bias: Bias = False,
        scaled: bool = True,
        sections: Sections = (),
    ) -> ExpertLinear:
        """Declare one matrix per expert, with biases and scales as for `linear`."""
        weight = self.tensor(f"{stem}.weight", n_in, n_out, n_expert, sections=sections)
        bias_ = self.bias(stem, (n_out, n_expert), bias, sections)
        return ExpertLinear(weight, bias_, self.scale(stem, n_expert, weight, scaled))

    def output(self, n_embd: int, n_vocab: int, *, bias: Bias = False) -> Linear:
        """Declare the head: `output.weight`, or else the token embeddings (tied weights)."""
        weight = self.optional_tensor("output.weight", n_embd, n_vocab)
        scale = None
        if weight is None:
            weight = self.tied_tensor("token_embd.weight")
        elif weight.type.name in SCALED_TYPES:
            scale = self.scale("output", 1, weight, True)
        return Linear(weight, self.bias("output", (n_vocab,), bias), scale)

    def tied_tensor(self, name: str) -> Tensor:
        """Create a second tensor on the bytes of a declared one, which a device may repack."""
        original = self._all.tensors.get(name)
        if original is None:
            return Tensor(F32, (1,), name=name)
        copy = Tensor(original.type, original.ne, name=name)
        self._all.tied.append((copy, original))
        return copy

    def skip(self, *names: str) -> None:
        """Skip tensors that may be in the file but are not needed."""
        found = (self.prefix + name for name in names)
        self._all.skipped.update(name for name in found if name in self._all.infos)

    def skip_layers(self, layers: Iterable[int]) -> None:
        """Skip all tensors of these layers; the graph does not use them."""
        prefixes = tuple(f"blk.{il}." for il in layers)
        names = (name for name in self._all.infos if name.startswith(prefixes))
        self._all.skipped.update(names)

    def skip_nextn(self, layers: Iterable[int]) -> None:
        """Skip NextN layers, which a file may count but not include.

        Raises:
                WeightsError: A layer has tensors, but no NextN tensors.
        """
        layers = list(layers)
        for il in layers:
            stem = f"blk.{il}."
            names = [name for name in self._all.infos if name.startswith(stem)]
            if names and not any(name.startswith(f"{stem}nextn.") for name in names):
                raise WeightsError(
                    f"{self._all.where}: nextn_predict_layers declares {len(layers)} layers, but "
                    f"layer {il} has no tensor {stem}nextn.*; set nextn_predict_layers to the "
                    "number of NextN layers"
                )
        self.skip_layers(layers)

    def _has_weight(self, stem: str, ne: tuple[int, ...]) -> bool:
        return self._find(f"{stem}.weight", ne, tuple(ne), False) is not None

    def bias(
        self, stem: str, ne: tuple[int, ...], bias: Bias, sections: Sections = ()
    ) -> Tensor | None:
        """Declare `stem`.bias; see `linear` for `bias`."""
        if not bias:
            return None
        if bias == "unread":
            return self.unread_tensor(f"{stem}.bias", *ne, sections=sections)
        declare = self.tensor if bias == "needed" else self.optional_tensor
        return declare(f"{stem}.bias", *ne, sections=sections)

    def scale(self, stem: str, n: int, weight: Tensor, scaled: bool) -> Tensor | None:
        """Declare `stem`.scale of a weight; see `linear` for `scaled`."""
        # Kernels that quantize activations use this scale; no graph reads it.
        self.skip(f"{stem}.input_scale")
        if scaled:
            return self.optional_tensor(f"{stem}.scale", n)
        return self.unread_tensor(f"{stem}.scale", n, needed=weight.type.name in SCALED_TYPES)

    def finish(self) -> None:
        """Raise WeightsError if declarations and file do not match."""
        d = self._all
        if not d.infos and d.invent is None:
            raise WeightsError(
                f"{d.where}: file has a vocabulary but no tensors; use the file of a whole model"
            )
        used = d.tensors.keys() | d.skipped | d.ignored.keys()
        unused = [name for name in d.infos if name not in used]
        problems = [
            text
            for text in (
                _list("missing", d.missing),
                _list("unused", unused),
                _list("misshapen", d.misshapen),
            )
            if text
        ]
        if problems:
            raise WeightsError(
                f"{d.where}: tensors do not fit the model: {'; '.join(problems)}; "
                f"convert the model again, or use the version this file was made for"
            )

    def place(
        self,
        device_of: DeviceOf,
        readers: Readers,
        progress: Progress | None = None,
        limit: MemoryLimit | None = None,
    ) -> None:
        """Give every declared tensor its bytes: the mapped file if the device can read that.

        device_of  the device for a weight, by the nodes that read it
        limit      memory of the host; None: all weights are repacked that can be
        """
        self._all.place(device_of, readers, progress, limit)

    def place_parts(self, cut: Iterable[TensorCut], replaced: Iterable[Tensor]) -> None:
        """Place parts of tensors on devices instead of the whole tensors `replaced`."""
        self._all.cut += cut
        self._all.replaced |= {id(t) for t in replaced}

    def place_rows(self, rows: Iterable[TensorCut], whole: Tensor, device: Device) -> None:
        """Place rows of a matrix on devices instead of `whole`; `device` joins the results."""
        d = self._all
        d.rows += rows
        d.joined.append(TensorCut(whole, device, d.infos[whole.name]))
        d.replaced.add(id(whole))

    def plain_bytes(self, name: str) -> Bytes | None:
        """Return the file's bytes of a tensor or of a device's part; None if unknown."""
        return self._all.plain_bytes(name)

    def replaced_bytes(self, changes: Mapping[str, Bytes]) -> AbstractContextManager[None]:
        """Give tensors other bytes of their types, by name, inside `with`. Contexts must be created
        and closed inside it, since they keep the addresses of weights."""
        return self._all.replaced_bytes(changes)

    def info(self, name: str) -> TensorInfo | None:
        """Return the file's entry of a tensor, or None."""
        return self._all.infos.get(self.prefix + name)

    @property
    def infos(self) -> Mapping[str, TensorInfo]:
        """All entries of the file's tensors."""
        return self._all.infos

    @property
    def used_tensors(self) -> Mapping[str, Tensor]:
        """The tensors of the file that the model uses, by name."""
        return self._all.tensors

    @property
    def reference_engine(self) -> str:
        """Reference engine of the computation, a value of `llama_py.params.like.LIKE`."""
        return self._all.like

    @property
    def ignored_names(self) -> Collection[str]:
        """Names of tensors in the file that the graph ignores, like llama.cpp."""
        return self._all.ignored

    @property
    def restored_names(self) -> Collection[str]:
        """Names of tensors that llama.cpp ignores, but that other weights need."""
        return self._all.restored

    @property
    def source(self) -> str:
        """The file, for messages."""
        return self._all.where

    def release(self) -> None:
        """Release the bytes of all weights."""
        for t in self.all_tensors:
            t.buffer = None

    @property
    def all_tensors(self) -> list[Tensor]:
        """Every tensor that has or gets a buffer, including tied tensors and parts."""
        return self._all.placed_tensors

    @property
    def places(self) -> Mapping[str, Sequence[TensorCut]]:
        """Parts of each tensor by name: one if it is whole, else several that add up."""
        return self._all.places

    @property
    def sizes(self) -> dict[str, int]:
        return self._all.sizes

    @property
    def expert_stats(self) -> ExpertStats | None:
        """Counters of the cache of experts; None if they are not cached."""
        return self._all.experts

    @property
    def n_bytes(self) -> int:
        """Bytes of the declared tensors in the file."""
        return sum(self._all.infos[name].nbytes for name in self._all.tensors)

    @property
    def n_params(self) -> int:
        """Elements of the declared tensors."""
        return sum(math.prod(self._all.infos[name].ne) for name in self._all.tensors)

    all = Former("all_tensors")
    ignored = Former("ignored_names")
    like = Former("reference_engine")
    reshaped = Former("reshaped_tensor")
    restored = Former("restored_names")
    tied = Former("tied_tensor")
    where = Former("source")


def format_shape(ne: Iterable[int]) -> str:
    """Return ne like ggml prints it, without trailing dimensions of size 1."""
    sizes = list(ne)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return ", ".join(map(str, sizes))


def _list(what: str, items: list[str]) -> str:
    """Return `3 missing: a, b, c`, cut after ten names; "" for an empty list."""
    if not items:
        return ""
    more = f", and {len(items) - _MAX_LISTED} more" if len(items) > _MAX_LISTED else ""
    shown = ", ".join(printable(item) for item in items[:_MAX_LISTED])
    return f"{len(items)} {what}: {shown}{more}"


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, shown="format_shape")
