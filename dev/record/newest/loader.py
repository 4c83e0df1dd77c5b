"""Find the keys and tensors of an architecture from the errors of llama.cpp's loader."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Shape = tuple[int, ...]

MISSING_KEY = re.compile(r"(array )?key not found in model: (\S+)")
WRONG_TYPE = re.compile(r"key (\S+) has wrong type \S+ but expected type (\S+)")
WRONG_ARRAY = re.compile(r"(?:key )?(\S+) (has wrong array length|is not a \S+ array)")
WRONG_LENGTH = re.compile(r"key (\S+) has wrong array length; expected (\d+)")
MISSING_TENSOR = re.compile(r"tensor '([^']+)' not found")
WRONG_SHAPE = re.compile(r"tensor '([^']+)' has wrong shape; expected ([\d, ]+), got")

SUFFIXES = (".weight", ".bias", "", ".scale", ".input_scale")
N_TOKENS = 3
SIZES: dict[str, Any] = {
    "context_length": 64,
    "embedding_length": 32,
    "block_count": 2,
    "feed_forward_length": 48,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 16,
    "attention.value_length": 16,
}
VALUES: dict[str, Any] = {
    "f32": 0.5,
    "u32": 2,
    "i32": [2] * 4,
    "bool": True,
    "str": "none",
    "arr": [1, 1],
}


class Loader:
    """Loads files of an architecture. Each load has a new process, since llama.cpp can abort.

    keys, tensors   of the file: values, and shapes in ggml's order
    """

    def __init__(self, arch: str, keys: Mapping[str, Any], folder: Path) -> None:
        import llama_cpp

        self.api: Any = llama_cpp
        self.arch, self.path = arch, folder / "probe.gguf"
        tensors = {key for key in keys if key.endswith((".weight", ".bias"))}
        values = {**SIZES, **keys}.items()
        self.keys: dict[str, Any] = {f"{arch}.{k}": v for k, v in values if k not in tensors}
        self.tensors: dict[str, Shape] = {name: tuple(keys[name]) for name in tensors}

    def message(self) -> str:
        """Return llama.cpp's error for the file, or ""."""
        self._write({})
        return self.load_apart()

    def load_apart(self) -> str:
        read, write = os.pipe()
        if not (child := os.fork()):
            os.dup2(write, 1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            self._load()
            os._exit(0)
        os.close(write)
        with os.fdopen(read, errors="replace") as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        return said if os.WIFEXITED(status) else said + "llama.cpp aborted"

    def _load(self) -> None:
        def say(level: int, text: bytes, _: Any) -> None:
            if level == 4:
                os.write(1, text)

        callback = self.api.llama_log_callback(say)
        self.api.llama_log_set(callback, None)
        params = self.api.llama_model_default_params()
        params.n_gpu_layers, params.load_mtp = 0, True
        self.api.llama_model_load_from_file(str(self.path).encode(), params)

    def _write(self, more_keys: Mapping[str, Any], more_tensors: Iterable[str] = ()) -> None:
        keys = {**more_keys, **self.keys}
        tensors = {**dict.fromkeys(more_tensors, (1, 1, 1, 7)), **self.tensors}
        w = gguf.GGUFWriter(self.path, self.arch)
        w.add_string("tokenizer.ggml.model", "test")
        w.add_array("tokenizer.ggml.tokens", [f"t{i}" for i in range(N_TOKENS)])
        kinds: dict[type, Any] = {bool: w.add_bool, int: w.add_uint32, float: w.add_float32}
        kinds |= {str: w.add_string, list: w.add_array, np.float64: w.add_float64}
        for key, value in keys.items():
            kinds[type(value)](key, value)
        for name, shape in tensors.items():
            w.add_tensor(name, np.zeros(shape[::-1], np.float32))
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def add_missing(self) -> str:
        """Add missing keys and tensors until the file loads, or until another error.
        -> the error, or \"\""""
        before = ""
        while (said := self.message()) and said != before:
            before = said
            if found := MISSING_KEY.search(said):
                self.keys[found[2]] = [1, 1] if found[1] else 2
            elif found := WRONG_TYPE.search(said):
                self.keys[found[1]] = VALUES.get(found[2], [1, 1])
            elif found := WRONG_LENGTH.search(said):
                self.keys[found[1]] = [1] * int(found[2])
            elif found := MISSING_TENSOR.search(said):
                self.tensors[found[1]] = (1,)
            elif found := WRONG_SHAPE.search(said):
                self.tensors[found[1]] = _shape(found[2])
            else:
                break
        return said

    def optional_keys(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield additional keys with their types. An F64 is an error: no key has this type."""
        self._write({name.replace("%s", self.arch): np.float64(0.5) for name in names})
        yield from self.errors(WRONG_TYPE)

    def optional_tensors(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield additional tensors with their shapes. The given shape is an error."""
        layers = range(self.keys[f"{self.arch}.block_count"])
        each = dict.fromkeys(name.replace("%d", str(i)) for name in names for i in layers)
        self._write({}, [name + end for name in each for end in SUFFIXES])
        yield from self.errors(WRONG_SHAPE)

    def errors(self, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
        """Yield the two groups of each error, and rename the key or tensor in the file."""
        raw = self.path.read_bytes()
        while found := pattern.search(self.load_apart()):
            yield found[1], found[2]
            name = found[1].encode()
            size = len(name).to_bytes(8, "little")
            raw = raw.replace(size + name, size + b"-" + name[1:])
            self.path.write_bytes(raw)


def _shape(said: str) -> Shape:
    return tuple(int(n) for n in said.split(","))


def find_names(library: Path) -> tuple[list[str], list[str]]:
    """Return the patterns of keys and of tensors' names in a library's constants."""
    texts = re.findall(rb"(?<=\0)[a-z%][a-z0-9_.%]{2,50}(?=\0)", library.read_bytes())
    keys = {text.decode() for text in texts if text.startswith(b"%s.")}
    found = {text.decode() for text in texts if b"%s" not in text}
    found |= {name[at.start() :] for name in found for at in re.finditer("blk|[a-z]+$", name)}
    return sorted(keys), sorted(found)


def names_like(said: str, names: Iterable[str]) -> list[str]:
    """Return the names that share words with an error, most words first."""
    reason = said.partition("\n")[0].rpartition(": ")[2]
    words = set(re.findall(r"[a-z]{3,}", reason.lower()))
    shared = {name: len(words.intersection(re.split(r"[._%]+", name))) for name in names}
    return sorted((name for name in shared if shared[name]), key=lambda name: -shared[name])
