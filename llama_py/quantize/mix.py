"""Types of tensors in a quantization mix (llama-quant.cpp:llama_tensor_get_type_impl).

Rules depend on a tensor's category, on the number of its earlier tensors, and on the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ggml_py.errors import GGUFError
from ggml_py.types import BY_NAME, GGMLType
from llama_py.gguf.file import TensorInfo
from llama_py.quantize.model import QuantizedModel

VERY_LOW = {"IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ2_S", "IQ2_M", "IQ1_M"}
TWO_BITS = {"IQ2_S", "IQ2_M"}  # the larger types among VERY_LOW
EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
OUTPUT = "output.weight"
_KINDS = (
    ("attn_qkv.weight", "attn_v"),
    ("attn_kv_b.weight", "attn_v"),
    ("attn_v.weight", "attn_v"),
    ("attn_k.weight", "attn_k"),
    ("attn_q.weight", "attn_q"),
    ("attn_output.weight", "attn_output"),
    ("ffn_up", "ffn_up"),
    ("ffn_gate", "ffn_gate"),
    ("ffn_down", "ffn_down"),
)


def get_category(name: str) -> str:
    """Return the category of a tensor; "" if no rule needs it (tensor_get_category)."""
    if name == OUTPUT:
        return "output"
    if name in EMBEDDINGS:
        return "embedding"
    return next((kind for part, kind in _KINDS if part in name), "")


def more_bits(i: int, n: int) -> bool:
    """Return True for the first and last eighth of the layers, and every third layer between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


class Mix:
    """Selection of tensor types, for tensors in file order.

    ftype    name of the file type, such as Q4_K_M
    default  type of tensors without a rule
    output, embedding  types of the LM head and the embeddings; None: chosen by the rules
    """

    def __init__(
        self,
        ftype: str,
        default: GGMLType,
        model: QuantizedModel,
        names: Iterable[str],
        has_imatrix: bool,
        output: GGMLType | None = None,
        embedding: GGMLType | None = None,
    ) -> None:
        names = list(names)
        self.ftype, self.default, self.model = ftype, default, model
        self.has_imatrix = has_imatrix
        self.output, self.embedding = output, embedding
        self.tied = OUTPUT not in names
        self.n_values = sum(get_category(name) == "attn_v" for name in names)
        self.seen: dict[str, int] = {}

    def choose(self, t: TensorInfo) -> GGMLType:
        kind = get_category(t.name)
        if self.default.is_quantized and any(x in t.name for x in self.model.rules.least_q8):
            return BY_NAME["q8_0"]
        if kind == "output" or (self.tied and kind == "embedding"):
            return self.output or self._output(t)
        if self.ftype == "MXFP4_MOE":
            return self._mxfp4(t, kind)
        if kind == "embedding":
            return self.embedding or self._get_type(self._embedding())
        if self.ftype in VERY_LOW:
            return self._get_type(self._very_low(kind))
        if kind == "attn_v":
            return self._values()
        chosen = {
            "attn_k": self._keys,
            "attn_q": self._queries,
            "ffn_down": self._choose_ffn_down,
            "attn_output": self._attn_output,
            "ffn_gate": self._choose_ffn_up,
            "ffn_up": self._choose_ffn_up,
        }.get(kind)
        return self._get_type(chosen(t.name, kind)) if chosen else self.default

    def _get_type(self, name: str) -> GGMLType:
        return BY_NAME[name] if name else self.default

    def _count(self, kind: str) -> int:
        """Return the number of earlier tensors of a category, and count this tensor."""
        n = self.seen.get(kind, 0)
        self.seen[kind] = n + 1
        return n

    def _layer(self, name: str, kind: str) -> int:
        """Return the layer of a tensor: counted, or by name in models with experts."""
        n = self._count(kind)
        if self.model.n_expert <= 1:
            return n
        found = re.match(r"blk\.(\d+)\.", name)
        if found is None or int(found[1]) >= self.model.n_layer:
            raise GGUFError(
                f"{name} does not belong to any of the {self.model.n_layer} layers, so no type "
                "can be chosen; set a type with --tensor-type, or use --pure"
            )
        return int(found[1])

    def _output(self, t: TensorInfo) -> GGMLType:
        uneven = t.ne[0] % self.default.block_size != 0
        if self.ftype == "MXFP4_MOE" or self.model.rules.low_mix or uneven:
            return BY_NAME["q8_0"]
        if self.ftype in VERY_LOW or self.ftype == "IQ3_XXS":
            return BY_NAME["q5_K"]
        return self.default if self.default.name == "q8_0" else BY_NAME["q6_K"]

    def _mxfp4(self, t: TensorInfo, kind: str) -> GGMLType:
        experts = t.ne[2] > 1
        if self.model.rules.more_stacks:
            experts = experts and kind.startswith("ffn_")
        return BY_NAME["mxfp4" if experts else "q8_0"]

    def _embedding(self) -> str:
        if self.ftype in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
            return "q2_K"
        if self.ftype in TWO_BITS or self.ftype == "IQ3_XXS":
            return "iq3_s"
        return "q4_K" if self.ftype in ("TQ1_0", "TQ2_0", "Q2_0") else ""

    def _very_low(self, kind: str) -> str:
        more = "iq3_s" if self.ftype in TWO_BITS else "q2_K"
        if kind == "attn_v":
            return "q4_K" if self.model.n_gqa >= 4 or self.model.n_expert >= 4 else more
        if kind == "attn_k" and self.model.n_expert == 8:
            return "q4_K"
        if kind == "ffn_down":
            return more if self._count(kind) < self.model.n_layer // 8 else ""
        if kind == "attn_output":
            if self.model.n_expert == 8:
                return "q5_K"
            if self.ftype in ("IQ1_S", "IQ1_M"):
                return "iq2_xxs"
            return "iq3_s" if self.ftype in TWO_BITS else ""
        return ""

    def _values(self) -> GGMLType:
        chosen = self._get_type(self._values_by_type(self._count("attn_v")))
        if self.model.is_70b and chosen.name in ("q3_K", "q4_K"):
            chosen = BY_NAME["q5_K"]
        return BY_NAME["q8_0"] if self.model.n_expert == 8 else chosen

    def _values_by_type(self, i: int) -> str:
        shared = self.model.n_gqa >= 4
        match self.ftype:
            case "Q2_K":
                return "q4_K" if shared else "q3_K"
            case "Q2_K_S" | "IQ3_XS" | "IQ3_S":
                return "q4_K" if shared else ""
            case "IQ3_XXS":
                return "q4_K" if shared else "iq3_xxs" if self.has_imatrix else "iq3_s"
            case "IQ3_M":
                return "q4_K"
            case "Q3_K_M":
                return "q5_K" if i < 2 else "q4_K"
            case "Q3_K_L":
                return "q5_K"
            case "IQ4_NL" | "IQ4_XS":
                return "q5_K" if shared else ""
            case "Q4_K_M" | "Q5_K_M":
                return "q6_K" if more_bits(i, self.n_values) else ""
            case "Q4_K_S":
                return "q5_K" if i < 4 else ""
        return ""

    def _keys(self, name: str, kind: str) -> str:
        return "q8_0" if self.model.n_expert == 8 else self._queries(name, kind)

    def _queries(self, name: str, kind: str) -> str:
        return {"IQ3_XS": "iq3_xxs", "IQ3_XXS": "iq2_s"}.get(self.ftype, "")

    def _choose_ffn_up(self, name: str, kind: str) -> str:
        i, n = self._layer(name, kind), self.model.n_layer
        return "iq3_xxs" if self.ftype == "IQ3_XS" and n // 8 <= i < 7 * n // 8 else ""

    def _choose_ffn_down(self, name: str, kind: str) -> str:
        i, n = self._layer(name, kind), self.model.n_layer
        low, first, more = self.model.rules.low_mix, i < n // 8, more_bits(i, n)
        match self.ftype:
            case "Q2_K":
                return "q3_K"
            case "Q2_K_S":
                return "q4_K" if first else ""
            case "IQ3_XXS" if not self.has_imatrix:
                return "q4_K" if first else "q3_K"
            case "Q3_K_M":
                return "q5_K" if i < n // 16 else "q4_K" if not low or more else "q3_K"
            case "IQ3_M":
                return "q4_K" if first or (self.model.n_expert == 8 and more) else ""
            case "Q3_K_L":
                return "q4_K" if low else "q5_K"
            case "Q4_K_M" if low:
                return "q6_K" if i < n // 16 else "q5_K" if more else "q4_K"
            case "Q4_K_M" | "Q5_K_M":
                return "q6_K" if more else ""
            case "IQ4_NL" | "IQ4_XS" if not self.has_imatrix:
                return "q5_K" if first else ""
            case "Q4_K_S":
                return "q5_K" if first and not low else ""
            case "Q4_0" | "Q5_0" if self.has_imatrix and first:
                return "q4_1" if self.ftype == "Q4_0" else "q5_1"
        return ""

    def _attn_output(self, name: str, kind: str) -> str:
        if self.model.rules.low_mix:
            return "q4_K" if self.ftype == "Q3_K_L" else ""
        if self.model.n_expert == 8:
            return "q5_K" if self.ftype in _MORE_WITH_EIGHT else ""
        return {
            "Q2_K": "q3_K",
            "IQ3_XXS": "iq3_s",
            "Q3_K_M": "q4_K",
            "Q3_K_L": "q5_K",
            "IQ3_M": "q4_K",
        }.get(self.ftype, "")


_MORE_WITH_EIGHT = {
    "Q2_K",
    "IQ3_XS",
    "IQ3_XXS",
    "Q3_K_S",
    "Q3_K_M",
    "IQ4_NL",
    "Q4_K_S",
    "Q4_K_M",
    "IQ3_S",
    "IQ3_M",
    "IQ4_XS",
}
