"""Weights that were rotated before they were stored, described by the keys `prism.hadamard.*`.

A folded weight is W (H S)^T: S is a diagonal of signs, H a block diagonal of Hadamard matrices. The
graph multiplies it by H S x in place of x, so outliers of x are spread before quantization."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ggml_py.errors import HParamsError, WeightsError
from ggml_py.tensor import Tensor
from llama_py.gguf.keys import DeclaredKeys, Keys, flag, text, uint

log = logging.getLogger("llama_py")

PREFIX = "prism.hadamard."
VERSION = f"/{PREFIX}version"
TABLE, HEAD = "token_embd.weight", "output.weight"
HEADS_OUT = "ssm_out.weight"

# Matrices that every graph multiplies by `Linear` or `ExpertLinear`.
_FOLDABLE = re.compile(
    r"output\.weight|blk\.\d+\.(attn_(q|k|v|output|qkv|gate)|ssm_out|ffn_(gate|up|down)(_exps|_shexp)?"
    r"|ffn_gate_up_exps)\.weight"
)


class Hadamard(DeclaredKeys):
    """Rotations of a model's folded weights.

    block     size of H's blocks, a power of two
    grouped   the value heads of delta nets are permuted before `ssm_out`
    tied      the token embeddings are also the head
    signs     S by input width; empty: no signs
    products  names of the weights that the graph multiplies by rotated inputs
    table     the rows of the token embeddings are rotated
    """

    version: int = uint(VERSION, least=1, most=2)
    block: int = uint(f"/{PREFIX}block_size")
    transform: str = text(f"/{PREFIX}transform", choices=("normalized-sylvester-walsh-hadamard",))
    axis: str = text(f"/{PREFIX}axis", choices=("input-last-dimension",))
    sign_mode: str = text(f"/{PREFIX}sign_mode", choices=("identity", "explicit"))
    grouped: bool = flag(f"/{PREFIX}gdn_v_grouped", False)
    tied: bool = flag(f"/{PREFIX}tied_output", False)

    def __init__(self, keys: Keys) -> None:
        super().__init__(keys)
        self._keys = keys
        if self.block < 1 or self.block & (self.block - 1):
            raise self._error("block_size", "must be a power of two")
        if self.tied != (self.version == 2):
            raise self._error("tied_output", "must be true in version 2, and only there")
        self.weights = self._names("weight_names")
        if not self.weights:
            raise self._error("weight_names", "must name a weight")
        for name in self.weights:
            if not _FOLDABLE.fullmatch(name):
                raise self._error("weight_names", f"must not have {name!r}, which cannot be folded")
        inverse = self._names("inverse_weight_names", ())
        if inverse not in ((), (TABLE,)):
            raise self._error("inverse_weight_names", f"must be empty or have {TABLE!r} alone")
        self.table = bool(inverse)
        if self.tied and not self.table:
            raise self._error("inverse_weight_names", f"must have {TABLE!r} if tied_output is true")
        self.signs = self._signs() if self.sign_mode == "explicit" else {}
        self.products = frozenset(self.weights) | ({TABLE} if self.tied else frozenset())

    @classmethod
    def read(cls, keys: Keys) -> Hadamard | None:
        """Read the keys; None without a version, as they have no effect then, like in llama.cpp."""
        if keys.has(VERSION):
            return cls(keys)
        given = [key for key in keys.metadata if key.startswith(PREFIX)]
        if given:
            keys.read.update(given)
            log.warning(
                "%s has no effect without %sversion; if weights are folded, the results are wrong",
                min(given),
                PREFIX,
            )
        return None

    def check(self, arch: str, foldable: bool, tensors: Mapping[str, Tensor]) -> None:
        """Raise HParamsError if the model's tensors do not fit; tensors: the ones it uses."""
        if not foldable:
            raise self._error(
                "version", f"must be missing in a model of architecture {arch!r}, which llama.cpp "
                "does not compute with folded weights"
            )  # fmt: skip
        for name in self.weights:
            if name not in tensors:
                raise self._error("weight_names", f"must not have {name!r}, which is not loaded")
        if self.tied and HEAD in tensors:
            raise self._error("tied_output", f"must be false in a file with {HEAD!r}")
        if self.table and not self.tied and HEAD not in tensors:
            raise self._error("tied_output", f"must be true in a file without {HEAD!r}")
        for name in (*self.weights, *((TABLE,) if self.table else ())):
            self._check_width(name, tensors[name].ne[0])

    def _check_width(self, name: str, width: int) -> None:
        if width % self.block:
            raise self._error("block_size", f"must divide {width}, the input width of {name!r}")
        if self.sign_mode == "explicit" and width not in self.signs:
            raise self._error("sign_widths", f"must have {width}, the input width of {name!r}")

    def check_adapter(self, path: str, names: Iterable[str]) -> None:
        """Raise WeightsError if an adapter changes a folded weight; `names` of its targets."""
        folded = sorted(self.products.union((TABLE,) if self.table else ()).intersection(names))
        if folded:
            raise WeightsError(
                f"{path}: the adapter changes {len(folded)} weights that the model's file has in "
                f"folded form (prism.hadamard.weight_names), such as {folded[0]}; use a file of "
                "the model without folded weights"
            )

    def refuse(self, what: str, remedy: str) -> HParamsError:
        """Return an error: `what` is not possible with folded weights."""
        return HParamsError(
            f"{PREFIX}weight_names has {len(self.weights)} folded weights, and {what}; {remedy}"
        )

    def _signs(self) -> dict[int, npt.NDArray[np.float32]]:
        widths, values = (self._numbers(key) for key in ("sign_widths", "sign_values"))
        if not widths or any(n < 1 or n % self.block for n in widths):
            raise self._error("sign_widths", f"must be multiples of block_size = {self.block}")
        if len(set(widths)) != len(widths):
            raise self._error("sign_widths", "must not repeat a width")
        if len(values) != sum(widths):
            n = sum(widths)
            raise self._error("sign_values", f"must have {n} items, the sum of sign_widths")
        if not set(values) <= {1, -1}:
            raise self._error("sign_values", "items must each be 1 or -1")
        parts = np.split(np.array(values, np.float32), np.cumsum(widths)[:-1])
        return dict(zip(widths, parts, strict=True))

    def _numbers(self, key: str) -> list[int]:
        value = self._keys.get_value(f"/{PREFIX}{key}")
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, list) or not all(type(item) is int for item in items):
            raise self._error(key, "must be an array of integers if sign_mode is explicit")
        return items

    def _names(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._keys.get_value(f"/{PREFIX}{key}", default)
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(items, list | tuple) or not all(isinstance(n, str) for n in items):
            raise self._error(key, "must be an array of strings")
        twice = [name for name, n in Counter(items).items() if n > 1]
        if twice:
            raise self._error(key, f"must not repeat {twice[0]!r}")
        return tuple(items)

    def _error(self, key: str, message: str) -> HParamsError:
        return self._keys.error(f"/{PREFIX}{key}", message)
