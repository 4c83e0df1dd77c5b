"""Seeded damage to a small file: it opens or it raises GGUFError with one line, nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ggml_py.errors import GGUFError
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.forms import FORMS
from tests.support.gguf_writer import Tensor, array, gguf, kv, u64
from tests.support.ik_forms import stored

SEEDS_PER_KIND = 150
IK = (36, 144, 151, 339)  # types that are unwound
HUGE = (2**16, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1)


def small_file() -> bytes:
    kvs = [
        kv("general.architecture", "str", "llama"),
        kv("general.alignment", "u32", 32),
        kv("llama.block_count", "u32", 2),
        kv("llama.rope.freq_base", "f32", 1e4),
        kv("tokenizer.ggml.add_bos_token", "bool", True),
        kv("tokenizer.ggml.tokens", "arr", array("str", ["<s>", "a", "é", b"\xff"])),
        kv("tokenizer.ggml.token_type", "arr", array("i32", [3, 1, 1, 6])),
        kv("nested", "arr", array("arr", [array("u16", [1, 2]), array("str", ["x"])])),
        kv("big", "u64", 2**40),
    ]
    tensors = [
        Tensor("token_embd.weight", (8, 4), 0, bytes(range(128))),
        Tensor("blk.0.attn_q.weight", (32, 3), 8, bytes(34 * 3)),
        Tensor("output_norm.weight", (8,), 0, bytes(32)),
        *(Tensor(f"ik.{id}", (512, FORMS[id].rows), id, stored(id).tobytes()) for id in IK),
    ]
    return gguf(kvs, tensors)


SMALL = small_file()
HEAD = SMALL.index(bytes(range(16)))  # where the tensor data starts


def flip_bits(rng: random.Random) -> bytes:
    damaged = bytearray(SMALL)
    for _ in range(rng.randint(1, 4)):
        damaged[rng.randrange(HEAD)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def overwrite_byte(rng: random.Random) -> bytes:
    damaged = bytearray(SMALL)
    damaged[rng.randrange(HEAD)] = rng.choice((0, 1, 8, 9, 127, 128, 255))
    return bytes(damaged)


def overwrite_huge(rng: random.Random) -> bytes:
    at = rng.randrange(4, HEAD - 8)
    return SMALL[:at] + u64(rng.choice(HUGE)) + SMALL[at + 8 :]


def insert_huge(rng: random.Random) -> bytes:
    at = rng.randrange(4, HEAD)
    return SMALL[:at] + u64(rng.choice(HUGE)) + SMALL[at:]


def cut_or_repeat(rng: random.Random) -> bytes:
    a, b = sorted(rng.randrange(HEAD) for _ in range(2))
    return SMALL[:a] + SMALL[b:] if rng.random() < 0.5 else SMALL[:b] + SMALL[a:]


def opens(path: Path) -> bool:
    """Open, decode and touch everything; False if it was refused the way it should be."""
    try:
        with GGUFFile.open(path) as file:
            dict(file.metadata)
            for tensor in file.tensors.values():
                assert tensor.data.nbytes == tensor.nbytes
                tensor.data.sum()
    except GGUFError as error:
        assert str(error).startswith(f"{path}: ")
        assert "\n" not in str(error)
        return False
    return True


@pytest.mark.parametrize(
    "damage", [flip_bits, overwrite_byte, overwrite_huge, insert_huge, cut_or_repeat]
)
def test_damaged_head(damage: Callable[[random.Random], bytes], tmp_path: Path) -> None:
    path = tmp_path / "damaged.gguf"
    refused = 0
    for seed in range(SEEDS_PER_KIND):
        path.write_bytes(damage(random.Random(seed)))
        refused += not opens(path)
    assert refused > SEEDS_PER_KIND // 4


def test_undamaged_opens(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    path.write_bytes(SMALL)
    assert opens(path)


def test_cut_anywhere(tmp_path: Path) -> None:
    """Every shorter file is refused (its last tensor needs no padding, which might be missing)."""
    path = tmp_path / "cut.gguf"
    for size in range(len(SMALL)):
        path.write_bytes(SMALL[:size])
        assert not opens(path), f"opened with {size} of {len(SMALL)} bytes"
