"""Files of models as large as one likes: metadata and tensor infos, and behind them a hole."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dev import tiny_models as tiny
from dev.tiny_models._invent import shapes
from dev.torture.fuzz.gguf_bytes import array, kv, string, u32, u64
from ggml_py.types import BY_NAME, GGMLType

ALIGNMENT = 32
# A qwen3moe of 235B parameters, 22B of them active; a deepseek2 of 671B, 37B active.
QWEN3MOE = {
    "block_count": 94,
    "embedding_length": 4096,
    "feed_forward_length": 12288,
    "attention.head_count": 64,
    "attention.head_count_kv": 4,
    "attention.key_length": 128,
    "attention.value_length": 128,
    "expert_count": 128,
    "expert_used_count": 8,
    "expert_feed_forward_length": 1536,
    "context_length": 40960,
}
QWEN35MOE = {
    "block_count": 60, "embedding_length": 4096, "attention.head_count": 32,
    "attention.head_count_kv": 2, "attention.key_length": 256, "attention.value_length": 256,
    "rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0], "expert_count": 512,
    "expert_used_count": 10, "expert_feed_forward_length": 1024,
    "expert_shared_feed_forward_length": 1024, "ssm.conv_kernel": 4, "ssm.inner_size": 8192,
    "ssm.state_size": 128, "ssm.time_step_rank": 64, "ssm.group_count": 16,
    "full_attention_interval": 4, "context_length": 262144,
}  # fmt: skip
N_VOCAB = 151936


def write(
    path: Path,
    arch: str,
    variant: str,
    keys: Mapping[str, Any],
    *,
    n_vocab: int = N_VOCAB,
    matrices: str = "q6_K",
    experts: str = "q6_K",
) -> int:
    """A file of such a model; returns its size. It takes no more room than its head."""
    found = tiny.find(arch, variant)
    own = {k: v for k, v in found.keys.items() if not k.startswith("attention.recurrent")}
    without = [*found.without, "*.scale", "*.bias"]
    made = tiny.Tiny(keys={**own, **keys, "vocab_size": n_vocab}, without=without)
    infos, offset = [], 0
    for name, ne in shapes(arch, made).items():
        kind = _type_of(name, ne, matrices, experts)
        infos.append(_info(name, ne, kind, offset))
        offset += -(-_size(kind, ne) // ALIGNMENT) * ALIGNMENT
    pairs = [_pair(key, value) for key, value in tiny.metadata(arch, made).items()]
    head = b"".join([b"GGUF", u32(3), u64(len(infos)), u64(len(pairs)), *pairs, *infos])
    start = -(-len(head) // ALIGNMENT) * ALIGNMENT
    with path.open("wb") as file:
        file.write(head)
        file.truncate(start + offset)
    return start + offset


def _type_of(name: str, ne: tuple[int, ...], matrices: str, experts: str) -> GGMLType:
    if ne[1] == 1 or ne[0] % 256 or "ffn_gate_inp" in name or "conv1d" in name:
        return BY_NAME["f32"]
    return BY_NAME[experts if "_exps." in name else matrices]


def _size(kind: GGMLType, ne: tuple[int, ...]) -> int:
    return kind.row_size(ne[0]) * ne[1] * ne[2] * ne[3]


def _info(name: str, ne: tuple[int, ...], kind: GGMLType, offset: int) -> bytes:
    n = max([i + 1 for i in range(4) if ne[i] > 1], default=1)
    sizes = struct.pack(f"<{n}q", *ne[:n])
    return string(name) + u32(n) + sizes + u32(kind.id) + u64(offset)


def _pair(key: str, value: Any) -> bytes:
    if isinstance(value, (list, tuple)):
        return kv(key, "arr", array(_kind(value[0]), value))
    return kv(key, _kind(value), value)


def _kind(value: Any) -> str:
    return {bool: "bool", int: "u32", float: "f32", str: "str"}[type(value)]
