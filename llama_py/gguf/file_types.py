"""File types of quantized models (llama.h:enum llama_ftype, quantize.cpp:QUANT_OPTIONS)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ggml_py.errors import GGUFError
from ggml_py.types import BY_NAME, GGMLType

GUESSED = 1024  # added to the number if the file does not specify it (LLAMA_FTYPE_GUESSED)


@dataclass(frozen=True)
class FileType:
    """A file type: a mix of tensor types.

    name    name for users
    number  general.file_type
    type    type of a tensor unless a rule applies; None: all tensors are copied
    words   llama.cpp's name (llama-model-loader.cpp:llama_ftype_name)
    """

    name: str
    number: int
    type: GGMLType | None
    words: str = ""

    @property
    def copies(self) -> bool:
        return self.type is None


_TABLE = (
    ("F32", 0, "f32", "all F32"), ("F16", 1, "f16"), ("BF16", 32, "bf16"),
    ("Q8_0", 7, "q8_0"), ("Q6_K", 18, "q6_K"),
    ("Q5_K_M", 17, "q5_K", "Q5_K - Medium"), ("Q5_K_S", 16, "q5_K", "Q5_K - Small"),
    ("Q5_1", 9, "q5_1"), ("Q5_0", 8, "q5_0"),
    ("Q4_K_M", 15, "q4_K", "Q4_K - Medium"), ("Q4_K_S", 14, "q4_K", "Q4_K - Small"),
    ("IQ4_NL", 25, "iq4_nl", "IQ4_NL - 4.5 bpw"), ("IQ4_XS", 30, "iq4_xs", "IQ4_XS - 4.25 bpw"),
    ("Q4_1", 3, "q4_1"), ("Q4_0", 2, "q4_0"), ("MXFP4_MOE", 38, "mxfp4", "MXFP4 MoE"),
    ("Q3_K_L", 13, "q3_K", "Q3_K - Large"), ("Q3_K_M", 12, "q3_K", "Q3_K - Medium"),
    ("Q3_K_S", 11, "q3_K", "Q3_K - Small"), ("IQ3_M", 27, "iq3_s", "IQ3_S mix - 3.66 bpw"),
    ("IQ3_S", 26, "iq3_s", "IQ3_S - 3.4375 bpw"), ("IQ3_XS", 22, "iq3_s", "IQ3_XS - 3.3 bpw"),
    ("IQ3_XXS", 23, "iq3_xxs", "IQ3_XXS - 3.0625 bpw"),
    ("Q2_K", 10, "q2_K", "Q2_K - Medium"), ("Q2_K_S", 21, "q2_K", "Q2_K - Small"),
    ("Q2_0", 41, "q2_0"), ("IQ2_M", 29, "iq2_s", "IQ2_M - 2.7 bpw"),
    ("IQ2_S", 28, "iq2_xs", "IQ2_S - 2.5 bpw"), ("IQ2_XS", 20, "iq2_xs", "IQ2_XS - 2.3125 bpw"),
    ("IQ2_XXS", 19, "iq2_xxs", "IQ2_XXS - 2.0625 bpw"),
    ("TQ2_0", 37, "tq2_0", "TQ2_0 - 2.06 bpw ternary"),
    ("TQ1_0", 36, "tq1_0", "TQ1_0 - 1.69 bpw ternary"),
    ("IQ1_M", 31, "iq1_m", "IQ1_M - 1.75 bpw"), ("IQ1_S", 24, "iq1_s", "IQ1_S - 1.5625 bpw"),
    ("Q1_0", 40, "q1_0"),
)  # fmt: skip
_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

FILE_TYPES = {
    name: FileType(name, number, BY_NAME[of], *(words or (name,)))
    for name, number, of, *words in _TABLE
}
COPY = FileType("COPY", 0, None)
# Of ik_llama.cpp (its llama.h), without the interleaved types.
_IK_TABLE = (
    ("Q6_0", 135), ("IQ1_BN", 136), ("IQ2_BN", 137), ("IQ2_K", 138), ("IQ3_K", 139),
    ("IQ4_K", 140), ("IQ6_K", 142), ("IQ4_KS", 145), ("IQ2_KS", 147), ("IQ4_KSS", 148),
    ("Q8_KV", 149), ("IQ5_KS", 150), ("IQ2_KT", 151), ("IQ3_KT", 152), ("IQ4_KT", 153),
    ("IQ3_KS", 154), ("IQ2_KL", 155), ("IQ1_KT", 156), ("IQ1_M_R4", 231),
)  # fmt: skip
# File types that llama-py only reads.
READ_ONLY = (
    FileType("NVFP4", 39, BY_NAME["nvfp4"], "NVFP4"),
    FileType("PQ2_0", 141, BY_NAME["pq2_0"], "PQ2_0 of PrismML, or IQ5_K of ik_llama.cpp"),
    FileType("PTQ1_0", 143, BY_NAME["ptq1_0"], "PTQ1_0"),
    *(FileType(name, number, BY_NAME[name.lower()], name) for name, number in _IK_TABLE),
)


def file_type(text: str) -> FileType:
    """Return the file type of a name, in any case, or of a number. ValueError for another text."""
    name = text.strip().upper()
    name = _ALIASES.get(name, name)
    if name == COPY.name:
        return COPY
    found = FILE_TYPES.get(name)
    if found is None and name.isdecimal():
        found = next((t for t in FILE_TYPES.values() if t.number == int(name)), None)
    if found is None:
        raise ValueError(f"unknown file type {text!r}; known: {', '.join(FILE_TYPES)}, {COPY.name}")
    return found


def tensor_type(text: str) -> GGMLType:
    """Return the tensor type with this name, in any case; ValueError if it is unknown."""
    found = next((t for t in BY_NAME.values() if t.name.lower() == text.strip().lower()), None)
    if found is None:
        raise ValueError(f"unknown tensor type {text!r}; known: {', '.join(BY_NAME)}")
    return found


def guess_type(tensors: Mapping[str, GGMLType]) -> int:
    """Return general.file_type of a file without it: the most frequent tensor type, if equal the
    first to reach that count (llama_model_loader's constructor).

    tensors  types by name
    Raises GGUFError for an empty mapping.
    """
    if not tensors:
        raise GGUFError("no tensors to quantize; use the GGUF file of a model")
    counts: Counter[GGMLType] = Counter()
    most, n_most = None, 0
    for name in sorted(tensors, key=_by_layer):
        kind = tensors[name]
        counts[kind] += 1
        if counts[kind] > n_most:
            most, n_most = kind, counts[kind]
    medium = next((t for t in _KNOWN if t.type == most), FILE_TYPES["F32"])
    return medium.number | GUESSED


def file_type_text(number: int) -> str:
    """Return llama.cpp's text for general.file_type: "Q4_K - Medium", "(guessed) all F32"."""
    found = next((t.words for t in _KNOWN if t.number == number & ~GUESSED), None)
    return ("(guessed) " if number & GUESSED else "") + (found or "unknown, may not work")


_KNOWN = (*FILE_TYPES.values(), *READ_ONLY)


def _by_layer(name: str) -> tuple[int, bytes]:
    """Return a key that sorts tensors like llama.cpp (weight_name_comparer)."""
    layer = re.match(r"blk\.(\d+)\.", name)
    return (int(layer[1]) if layer else -1), name.encode("utf-8", "surrogateescape")
