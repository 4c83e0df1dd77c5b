"""Key-values of a new GGUF file, in order, with the types that llama.cpp's converter writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ggml_py.errors import GGUFError, ModelError
from llama_py.gguf.write import encode

FLOATS = ("epsilon", "_base", "_base_swa", "factor", "softcapping", "_bias", "_kqv", "_scale")
# beginnings of keys that no architecture has
OTHERS = ("general.", "tokenizer.", "adapter.", "diffusion.", "xielu.")


class KeyValues:
    """Metadata of a file in the order of its writing.

    arch    prefix of the model's keys
    stored  encoded values, by full name
    """

    def __init__(self, arch: str) -> None:
        self.arch = arch
        self.stored: dict[str, bytes] = {}
        self.add("str", "general.architecture", arch)

    def add(self, kind: str, key: str, value: Any) -> None:
        """Set a value; a key that exists keeps its place. A key that does not begin like
        OTHERS belongs to the architecture.

        Raises ModelError if the value is not of this kind.
        """
        name = key if key.startswith(OTHERS) else f"{self.arch}.{key}"
        try:
            self.stored[name] = encode(kind, value)
        except GGUFError as e:
            raise ModelError(f"config.json gives {name} an invalid value: {e}") from None

    def set_all(self, values: Mapping[str, Any]) -> None:
        """Set values of the kinds that their keys have; None is refused. See `add`."""
        for key, value in values.items():
            if isinstance(value, list | tuple):
                self.array(key, value)
            else:
                self.add(_kind(key, value), key, value)

    def u32(self, key: str, value: Any) -> None:
        self.add("u32", key, value)

    def f32(self, key: str, value: Any) -> None:
        self.add("f32", key, value)

    def text(self, key: str, value: Any) -> None:
        """Set a text; an empty one is not written, as in gguf-py."""
        if value != "":
            self.add("str", key, value)

    def boolean(self, key: str, value: Any) -> None:
        self.add("bool", key, bool(value))

    def count(self, key: str, value: int | Sequence[int]) -> None:
        """Set an integer, or one for each layer."""
        self.array(key, value) if isinstance(value, list | tuple) else self.u32(key, value)

    def array(self, key: str, values: Sequence[Any]) -> None:
        """Set an array with the type of its first value; an empty array is not written."""
        if not isinstance(values, list | tuple):
            raise ModelError(f"config.json must give {key} a list, got {str(values)[:50]}")
        if not values:
            return
        first = values[0]
        kind = (
            "bool" if isinstance(first, bool)
            else "i32" if isinstance(first, int)
            else "f32" if isinstance(first, float)
            else "str"
        )  # fmt: skip
        self.add(f"arr[{kind}]", key, values)


def _kind(key: str, value: Any) -> str:
    if isinstance(value, str | bool):
        return "str" if isinstance(value, str) else "bool"
    return "f32" if key.endswith(FLOATS) else "u32"
