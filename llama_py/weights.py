"""Weights: the tensors a model declares against those of its file, and their place on a device.

    w = WeightLoader(file.tensors, where)
    tok = w.tensor("token_embd.weight", n_embd, n_vocab, use="GET_ROWS")
    for il in range(n_layer):
        t = w.layer(il)
        t.norm("attn_norm", n_embd)                                # layer.attn_norm, a Tensor
        t.matrix("attn_output", n_embd, n_embd, bias=True)         # layer.attn_output, a Linear
    w.finish()             # every missing, unused and misshapen tensor in one WeightsError
    w.place(lambda weight, uses: device)

Shapes are in ggml's order, ne[0] first. Nothing is allocated before `finish` has passed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ggml_py.backend import Device
from ggml_py.errors import WeightsError
from ggml_py.tensor import FLAG_WEIGHT, Tensor, shape4
from ggml_py.types import F32
from llama_py.gguf_file import TensorInfo

_MAX_LISTED = 10

Progress = Callable[[int, int, str], None]
DeviceOf = Callable[[Tensor, Sequence[str]], Device]
Bias = Literal[False, True, "needed"]


@dataclass(slots=True)
class Linear:
    """A matrix with what may come with it: y = scale * (weight x) + bias.

    weight [n_in, n_out] or, of experts, [n_in, n_out, n_expert]; bias [n_out]; scale [1], or one
    per expert.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: Tensor | None = None


class Layer:
    """The weights of one layer by their names in the file: `blk.3.attn_q.weight` is `layer.attn_q`.

    Optional ones that the file does not have are None.
    """

    def __init__(self, il: int) -> None:
        self.il = il

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(k for k in vars(self) if k != "il")
        raise AttributeError(f"layer {self.il} declares no weight {name!r}; it has: {known}")

    def get(self, name: str) -> Any:
        """The weight, or None when the file does not have it or the model does not declare it."""
        return vars(self).get(name)


class WeightLoader:
    """Collects declarations, checks them against the file, and places what was declared.

    sizes  bytes of weights by the name of the device they were placed on
    """

    def __init__(self, infos: Mapping[str, TensorInfo], where: str) -> None:
        self.infos = infos
        self.where = where
        self.layers: list[Layer] = []
        self.sizes: dict[str, int] = {}
        self._declared: dict[str, tuple[Tensor, list[str]]] = {}
        self._tied: list[tuple[Tensor, Tensor, str]] = []
        self._skipped: set[str] = set()
        self._missing: list[str] = []
        self._misshapen: list[str] = []
        # Tensors that are made up as they are declared (models/tiny), instead of a file's.
        self._invent = getattr(infos, "declare", None)

    def has(self, name: str) -> bool:
        return name in self.infos

    def tensor(self, name: str, *ne: int, use: str, other: tuple[int, ...] = ()) -> Tensor:
        """A tensor that must be there; `use` names the op that reads it, `other` is another shape
        that it may have.

        The answer is a stand-in when it is missing or misshapen: `finish` will raise.
        """
        if self._invent:
            self._invent(name, ne, True)
        found = self.optional(name, *ne, use=use, other=other)
        if found is None:
            self._missing.append(name)
            return Tensor(F32, (1,), name=name)
        return found

    def optional(self, name: str, *ne: int, use: str, other: tuple[int, ...] = ()) -> Tensor | None:
        """A tensor that may be missing. Naming one again gives the same tensor another use."""
        if self._invent:
            self._invent(name, ne, False)
        info = self.infos.get(name)
        if info is None:
            return None
        if name in self._declared:
            t, uses = self._declared[name]
            uses.append(use)
            return t
        if tuple(info.ne) not in (shape4(ne), shape4(other or ne)):
            self._misshapen.append(
                f"tensor {name!r} has wrong shape; expected {_shape(ne)}, got {_shape(info.ne)}"
            )
        t = Tensor(info.type, info.ne, name=name)
        self._declared[name] = (t, [use])
        return t

    def linear(
        self, stem: str, ne: tuple[int, ...], *, use: str = "", bias: Bias = False,
        scaled: bool = True, optional: bool = False,
    ) -> Linear | None:  # fmt: skip
        """`stem`.weight with `stem`.scale and, if the model knows one, `stem`.bias where there.

        use      the op that reads it, if not MUL_MAT, or MUL_MAT_ID for [n_in, n_out, n_expert]
        bias     "needed": it must be there
        scaled   False: the scale is left out, as llama.cpp does in some of its graphs
        """
        if optional and not self.has(f"{stem}.weight"):
            return None
        experts = len(ne) > 2
        use = use or ("MUL_MAT_ID" if experts else "MUL_MAT")
        linear = Linear(self.tensor(f"{stem}.weight", *ne, use=use))
        if scaled:
            scale = (ne[2], "REPEAT") if experts else (1, "MUL")
            linear.scale = self._scale(stem, *scale)
        else:
            self._skip(f"{stem}.scale", f"{stem}.input_scale")
        if bias:
            declare = self.tensor if bias == "needed" else self.optional
            linear.bias = declare(f"{stem}.bias", *ne[1:], use="ADD_ID" if experts else "ADD")
        return linear

    def output(self, n_embd: int, n_vocab: int, bias: bool = False) -> Linear:
        """The head: `output.weight`, else the token embeddings once more (tied weights)."""
        if self.has("output.weight"):
            head = Linear(self.tensor("output.weight", n_embd, n_vocab, use="MUL_MAT"))
            if head.weight.type.name == "nvfp4":
                head.scale = self._scale("output", 1, "MUL")
        else:
            head = Linear(self._tie("token_embd.weight", "MUL_MAT"))
        if bias:
            head.bias = self.optional("output.bias", n_vocab, use="ADD")
        return head

    def layer(self, il: int) -> LayerLoader:
        """The declarations of layer il, into a new Layer at the end of `layers`."""
        self.layers.append(Layer(il))
        return LayerLoader(self, self.layers[-1])

    def skip_layers(self, layers: Iterable[int]) -> None:
        """Tensors of these layers are in the file for a reason, but are not wanted now."""
        prefixes = tuple(f"blk.{il}." for il in layers)
        self._skipped.update(name for name in self.infos if name.startswith(prefixes))

    def finish(self) -> None:
        """Raise WeightsError if declarations and file do not match."""
        used = self._declared.keys() | self._skipped
        unused = [name for name in self.infos if name not in used]
        problems = [
            text
            for text in (
                _list("missing", self._missing),
                _list("unused", unused),
                _list("misshapen", self._misshapen),
            )
            if text
        ]
        if problems:
            raise WeightsError(
                f"{self.where}: tensors do not fit the model: {'; '.join(problems)}; "
                f"convert the model again, or use the version this file was made for"
            )

    def place(self, device_of: DeviceOf, progress: Progress | None = None) -> None:
        """Give every declared tensor its bytes: the file's own where the device can read them.

        device_of   the device for a weight, by the ops that read it
        """
        total, done = self.n_bytes, 0
        declared = [(t, tuple(dict.fromkeys(uses))) for t, uses in self._declared.values()]
        where = {id(t): device_of(t, uses) for t, uses in declared}
        for t, _ in declared:
            self._put(t, where[id(t)])
        for copy, original, use in self._tied:
            device = where[id(copy)] = device_of(copy, (use,))
            if device is where[id(original)]:
                copy.buffer, copy.offset = original.buffer, original.offset
                copy.flags |= FLAG_WEIGHT
            else:
                self._put(copy, device)
        for copy, _, use in self._tied:
            where[id(copy)].prepare_weight(copy, (use,))
        for t, uses in declared:
            where[id(t)].prepare_weight(t, uses)
            done += self.infos[t.name].nbytes
            if progress is not None:
                progress(done, total, t.name)

    def _put(self, t: Tensor, device: Device) -> None:
        info = self.infos[t.name]
        buffer = device.wrap(info.data)
        if buffer is None:
            buffer = device.alloc(info.nbytes)
            buffer.write(0, info.data)
        t.buffer, t.offset = buffer, 0
        t.flags |= FLAG_WEIGHT
        self.sizes[device.name] = self.sizes.get(device.name, 0) + info.nbytes

    @property
    def n_bytes(self) -> int:
        """Bytes of the declared tensors in the file."""
        return sum(self.infos[name].nbytes for name in self._declared)

    @property
    def n_params(self) -> int:
        """Elements of the declared tensors."""
        return sum(math.prod(self.infos[name].ne) for name in self._declared)

    def _skip(self, *names: str) -> None:
        self._skipped.update(name for name in names if self.has(name))

    def _scale(self, stem: str, n: int, use: str) -> Tensor | None:
        # The scale of activations is for kernels that quantize them; no graph reads it.
        self._skip(f"{stem}.input_scale")
        return self.optional(f"{stem}.scale", n, use=use)

    def _tie(self, name: str, use: str) -> Tensor:
        """A second tensor on the bytes of a declared one; a device may lay it out differently."""
        if name not in self._declared:
            return Tensor(F32, (1,), name=name)
        original, _ = self._declared[name]
        copy = Tensor(original.type, original.ne, name=name)
        self._tied.append((copy, original, use))
        return copy


class LayerLoader:
    """Declares the weights of one layer; names are the file's without the prefix `blk.N.`.

    The attribute of `Layer` is the name less `.weight` or `.bias`, dots as underscores.
    """

    def __init__(self, loader: WeightLoader, layer: Layer) -> None:
        self.loader = loader
        self.values = layer
        self.prefix = f"blk.{layer.il}."

    def has(self, name: str) -> bool:
        return self.loader.has(self.prefix + name)

    def tensor(
        self, name: str, *ne: int, use: str, optional: bool = False, other: tuple[int, ...] = ()
    ) -> None:
        """A tensor read by op `use`, by its whole name: `ssm_a`, `ssm_dt.bias`."""
        declare = self.loader.optional if optional else self.loader.tensor
        stem = name.removesuffix(".weight").removesuffix(".bias")
        self._set(stem, declare(self.prefix + name, *ne, use=use, other=other))

    def norm(self, stem: str, n: int, optional: bool = False) -> None:
        """The weight that a normalised row is multiplied with."""
        self.tensor(f"{stem}.weight", n, use="MUL", optional=optional)

    def matrix(
        self, stem: str, *ne: int, use: str = "", bias: Bias = False, scaled: bool = True,
        optional: bool = False,
    ) -> None:  # fmt: skip
        """A Linear: ne [n_in, n_out], of experts [n_in, n_out, n_expert]."""
        name = self.prefix + stem
        linear = self.loader.linear(name, ne, use=use, bias=bias, scaled=scaled, optional=optional)
        self._set(stem, linear)

    def gated_ffn(
        self, n_embd: int, n_ff: int, kind: str = "", *, scaled: bool = True, optional: bool = False
    ) -> None:
        """ffn_gate, ffn_up and ffn_down, of kind "", or "_shexp" for experts that see every token.

        optional   all three may be missing, but no single one
        """
        optional = optional and not self.has(f"ffn_up{kind}.weight")
        self.matrix(f"ffn_gate{kind}", n_embd, n_ff, scaled=scaled, optional=optional)
        self.matrix(f"ffn_up{kind}", n_embd, n_ff, scaled=scaled, optional=optional)
        self.matrix(f"ffn_down{kind}", n_ff, n_embd, scaled=scaled, optional=optional)

    def qkv(self, n_embd: int, n_q: int, n_k: int, n_v: int, *, scaled: bool = True) -> None:
        """Query, key and value projections: attn_qkv, or attn_q, attn_k and attn_v; biases optional
        (llama-model.cpp:create_tensor_qkv)."""
        sizes = {"attn_q": n_q, "attn_k": n_k, "attn_v": n_v}
        fused = self.has("attn_qkv.weight")
        self._set("attn_qkv", None)
        if fused:
            self.matrix("attn_qkv", n_embd, n_q + n_k + n_v, bias=True, scaled=scaled)
        for stem, n in sizes.items():
            if fused and not self.has("attn_qkv.bias"):
                # Old files have one matrix but three biases.
                self.tensor(f"{stem}.bias", n, use="CONCAT", optional=True)
            elif not fused:
                self.matrix(stem, n_embd, n, bias=True, scaled=scaled)

    def gate_up_exps(self, n_embd: int, n_ff: int, n_expert: int, *, scaled: bool = True) -> None:
        """Gate and up projections of the experts, in one tensor or in two
        (llama-model.cpp:create_tensor_gate_up_exps)."""
        merged = self.has("ffn_gate_up_exps.weight")
        self._set("ffn_gate_up_exps", None)
        if merged:
            self.matrix("ffn_gate_up_exps", n_embd, 2 * n_ff, n_expert, scaled=scaled)
        else:
            self.matrix("ffn_gate_exps", n_embd, n_ff, n_expert, scaled=scaled)
            self.matrix("ffn_up_exps", n_embd, n_ff, n_expert, scaled=scaled)

    def _set(self, stem: str, value: Tensor | Linear | None) -> None:
        setattr(self.values, stem.replace(".", "_"), value)


def _shape(ne: Iterable[int]) -> str:
    """ne as ggml prints it, without the ones that only fill up to four."""
    sizes = list(ne)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return ", ".join(map(str, sizes))


def _list(what: str, items: list[str]) -> str:
    """`3 missing: a, b, c`, cut after ten; empty for no items."""
    if not items:
        return ""
    more = f", and {len(items) - _MAX_LISTED} more" if len(items) > _MAX_LISTED else ""
    return f"{len(items)} {what}: {', '.join(items[:_MAX_LISTED])}{more}"
