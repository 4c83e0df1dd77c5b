"""What a file may be quantized to (llama.h:enum llama_ftype, quantize.cpp:QUANT_OPTIONS)."""

from __future__ import annotations

from dataclasses import dataclass

from ggml_py.errors import GGUFError
from ggml_py.types import BY_NAME, GGMLType

GUESSED = 1024  # added to the number of a file that does not say it (LLAMA_FTYPE_GUESSED)


@dataclass(frozen=True)
class FileType:
    """A mix of types.

    name    as it is asked for
    number  general.file_type
    type    what a tensor gets unless there is a rule for it; None: all stay as they are
    """

    name: str
    number: int
    type: GGMLType | None

    @property
    def copies(self) -> bool:
        return self.type is None


_TABLE = (
    ("F32", 0, "f32"), ("F16", 1, "f16"), ("BF16", 32, "bf16"),
    ("Q8_0", 7, "q8_0"), ("Q6_K", 18, "q6_K"),
    ("Q5_K_M", 17, "q5_K"), ("Q5_K_S", 16, "q5_K"), ("Q5_1", 9, "q5_1"), ("Q5_0", 8, "q5_0"),
    ("Q4_K_M", 15, "q4_K"), ("Q4_K_S", 14, "q4_K"), ("IQ4_NL", 25, "iq4_nl"),
    ("IQ4_XS", 30, "iq4_xs"), ("Q4_1", 3, "q4_1"), ("Q4_0", 2, "q4_0"),
    ("MXFP4_MOE", 38, "mxfp4"),
    ("Q3_K_L", 13, "q3_K"), ("Q3_K_M", 12, "q3_K"), ("Q3_K_S", 11, "q3_K"),
    ("IQ3_M", 27, "iq3_s"), ("IQ3_S", 26, "iq3_s"), ("IQ3_XS", 22, "iq3_s"),
    ("IQ3_XXS", 23, "iq3_xxs"),
    ("Q2_K", 10, "q2_K"), ("Q2_K_S", 21, "q2_K"), ("Q2_0", 41, "q2_0"),
    ("IQ2_M", 29, "iq2_s"), ("IQ2_S", 28, "iq2_xs"), ("IQ2_XS", 20, "iq2_xs"),
    ("IQ2_XXS", 19, "iq2_xxs"), ("TQ2_0", 37, "tq2_0"), ("TQ1_0", 36, "tq1_0"),
    ("IQ1_M", 31, "iq1_m"), ("IQ1_S", 24, "iq1_s"), ("Q1_0", 40, "q1_0"),
)  # fmt: skip
_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

FILE_TYPES = {name: FileType(name, number, BY_NAME[of]) for name, number, of in _TABLE}
COPY = FileType("COPY", 0, None)


def file_type(text: str) -> FileType:
    """By its name, in any case, or its number. ValueError for what is none."""
    name = text.strip().upper()
    name = _ALIASES.get(name, name)
    if name == COPY.name:
        return COPY
    found = FILE_TYPES.get(name)
    if found is None and name.isdecimal():
        found = next((t for t in FILE_TYPES.values() if t.number == int(name)), None)
    if found is None:
        raise ValueError(
            f"{text!r} is no type of files; there are {', '.join(FILE_TYPES)} and {COPY.name}"
        )
    return found


def tensor_type(text: str) -> GGMLType:
    """A type of tensors by its name, in any case. ValueError for what is none."""
    found = next((t for t in BY_NAME.values() if t.name.lower() == text.strip().lower()), None)
    if found is None:
        raise ValueError(f"{text!r} is no type of tensors; there are {', '.join(BY_NAME)}")
    return found


def guessed(types: list[GGMLType]) -> int:
    """general.file_type of a file that does not say it: by the type of most of its tensors."""
    if not types:
        raise GGUFError("there are no tensors to quantize; give the GGUF file of a model")
    most = max(dict.fromkeys(types), key=types.count)
    medium = next((t for t in FILE_TYPES.values() if t.type == most), FILE_TYPES["F32"])
    return medium.number | GUESSED
