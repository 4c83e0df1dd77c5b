"""Vocabularies: the tokenizer's keys of a file; readable ones tokenize and detokenize."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from dev.torture.fuzz.image import Image, pairs_of
from dev.torture.fuzz.kind import Case, Kind
from dev.torture.fuzz.mutate import items, key_gone, key_twice, raw_value, value
from dev.torture.fuzz.numbers import TEXTS
from llama_py import load_tokenizer
from llama_py.tokenizer.models import known_models
from llama_py.tokenizer.pre import PRE_TOKENIZERS

ENDS = ("bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "fim_pre", "prefix")
FLAGS = (
    "add_bos_token",
    "add_eos_token",
    "add_space_prefix",
    "remove_extra_whitespaces",
    "normalizer.lowercase",
    "normalizer.strip_accents",
    "normalizer.nfc",
)
SPECIAL = ("<unk>", "<s>", "</s>", "[CLS]", "[SEP]", "[UNK]", "<|im_end|>")
PIECES = (
    "a",
    "b",
    "ab",
    "abc",
    "\u2581a",
    "\u2581the",
    "\u2581",
    "the",
    "##a",
    "##b",
    "\u00e9",
    " a",
    "12",
)
READ = (
    "",
    " ",
    "the abc",
    "a\u00e9b \U0001f642",
    "<s>ab</s>",
    "\x00\x1b",
    "\udcff a",
    "12345 abab",
    "A" * 50,
)


def vocabulary(model: str) -> dict[str, Any]:
    """Return a small vocabulary of a tokenizer type, as a file's metadata."""
    letters = [chr(c) for c in (*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x144))]
    for form in ("<0x%02X>", "\\x%02x"):
        letters += [form % b for b in range(256)]
    texts = list(dict.fromkeys((*SPECIAL, *letters, *PIECES)))
    types = [3 if t in SPECIAL else 6 if t.startswith("<0x") else 1 for t in texts]
    found = {
        "model": model,
        "pre": "gpt-2",
        "tokens": texts,
        "token_type": types,
        "scores": [-float(i % 17) for i in range(len(texts))],
        "merges": ["a b", "ab c"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "seperator_token_id": 4,
        "precompiled_charsmap": [4, 0, 0, 0, 0, 0, 0, 0, 97, 0],
    }
    return {f"tokenizer.ggml.{key}": v for key, v in found.items()}


class Vocabularies(Kind):
    """vocabularies of every tokenizer"""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.images = {m: Image(pairs_of(vocabulary(m))) for m in known_models()}
        more = [f"{end}_token_id" for end in ENDS]
        named = [f"tokenizer.ggml.{key}" for key in (*more, *FLAGS)]
        self.keys = {
            m: [*(str(p.key) for p in image.pairs), *named, "tokenizer.chat_template"]
            for m, image in self.images.items()
        }

    def case(self, rng: Random) -> Case:
        model = rng.choice(list(self.images))
        image, n = self.images[model].copy(), rng.choice((1, 1, 2, 3))
        told = [model, *(self._change(rng, image, model) for _ in range(n))]
        path = self.folder / "v.gguf"

        def run() -> str:
            path.write_bytes(image.bytes())
            tokenizer = load_tokenizer(path)
            ids = [
                tokenizer.tokenize(text, special, parse)
                for text in READ
                for special, parse in ((True, True), (False, False))
            ]
            for row in ids:
                tokenizer.detokenize(row, True)
            tokenizer.detokenize(range(tokenizer.n_vocab))
            return f"{sum(map(len, ids))} ids"

        return Case("; ".join(told), run)

    def _change(self, rng: Random, image: Image, model: str) -> str:
        keys = self.keys[model]
        what = rng.randrange(12)
        if what == 0:
            pre = image.pair("tokenizer.ggml.pre")
            name = rng.choice([*PRE_TOKENIZERS, *TEXTS])
            if pre is not None:
                pre.kind, pre.value = "str", name
            return f"pre {name!a}"
        if what == 1:
            return self._charsmap(rng, image)
        arrays = [key for key in keys if key.endswith(("tokens", "scores", "merges", "type"))]
        if what < 7:
            return f"items: {items(rng, image, arrays if rng.random() < 0.8 else keys)}"
        if what < 10:
            return f"value: {value(rng, image, keys)}"
        one = rng.choice((key_gone, key_twice, raw_value))
        return f"{one.__name__}: {one(rng, image, keys)}"

    def _charsmap(self, rng: Random, image: Image) -> str:
        """Write random bytes after a size that may be correct."""
        n = 4 * rng.randrange(1, 40)
        size = n if rng.random() < 0.8 else rng.choice((0, 3, 5, 2**31, 2**32 - 1))
        units = b"".join(self._unit(rng, n).to_bytes(4, "little") for _ in range(n // 4))
        raw = size.to_bytes(4, "little") + units + rng.choice((b"", b"x", b"x\0", bytes(40)))
        pair = image.pair("tokenizer.ggml.precompiled_charsmap")
        if pair is not None and hasattr(pair.value, "values"):
            pair.value.kind, pair.value.values = rng.choice(("u8", "u8", "u8", "u32")), list(raw)
        return f"charsmap {raw.hex()}"

    @staticmethod
    def _unit(rng: Random, n: int) -> int:
        if rng.random() < 0.3:
            return rng.getrandbits(32)
        return rng.randrange(n) << 10 | rng.getrandbits(1) << 8 | rng.choice((0, 97, 98, 195))
