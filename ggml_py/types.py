"""Tensor types: ggml's ids, names, block sizes and bytes (ggml.h:enum ggml_type,
ggml.c:type_traits).

The table is data, not code: `ggml_ref/quants` and `ggml_cpu/quants` implement the formats.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GGMLType:
    """One element type. A row of n elements takes `n // block_size * type_size` bytes."""

    id: int
    name: str
    block_size: int
    type_size: int

    @property
    def is_quantized(self) -> bool:
        return self.block_size > 1

    def row_size(self, n: int) -> int:
        """Return the bytes of a row of n elements (ggml_row_size)."""
        return n // self.block_size * self.type_size

    def tensor_size(self, ne: tuple[int, ...]) -> int:
        """Return the bytes of a contiguous tensor, given its four sizes."""
        return self.row_size(ne[0]) * ne[1] * ne[2] * ne[3]

    def __str__(self) -> str:
        return self.name


_TABLE = (
    (0, "f32", 1, 4), (1, "f16", 1, 2), (2, "q4_0", 32, 18), (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22), (7, "q5_1", 32, 24), (8, "q8_0", 32, 34), (9, "q8_1", 32, 36),
    (10, "q2_K", 256, 84), (11, "q3_K", 256, 110), (12, "q4_K", 256, 144),
    (13, "q5_K", 256, 176), (14, "q6_K", 256, 210), (15, "q8_K", 256, 292),
    (16, "iq2_xxs", 256, 66), (17, "iq2_xs", 256, 74), (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50), (20, "iq4_nl", 32, 18), (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82), (23, "iq4_xs", 256, 136), (24, "i8", 1, 1), (25, "i16", 1, 2),
    (26, "i32", 1, 4), (27, "i64", 1, 8), (28, "f64", 1, 8), (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2), (34, "tq1_0", 256, 54), (35, "tq2_0", 256, 66), (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36), (41, "q1_0", 128, 18), (42, "q2_0", 64, 18),
    (142, "pq2_0", 128, 34), (143, "ptq1_0", 128, 28),  # of PrismML's llama.cpp
    # Of ik_llama.cpp. A scale at the start of its rows is at the start of each block here.
    (133, "q6_0", 32, 26), (134, "iq1_bn", 64, 15), (135, "iq2_bn", 64, 20),
    (137, "iq2_k", 256, 76), (138, "iq3_k", 256, 110), (139, "iq4_k", 256, 144),
    (140, "iq5_k", 256, 176), (141, "iq6_k", 256, 212), (144, "iq4_ks", 256, 140),
    (145, "iq2_ks", 256, 72), (146, "iq4_kss", 256, 132), (151, "q8_kv", 32, 36),
    (152, "iq5_ks", 256, 172), (153, "iq2_kt", 256, 72), (154, "iq3_kt", 256, 104),
    (155, "iq4_kt", 256, 132), (156, "iq3_ks", 256, 104), (157, "iq2_kl", 256, 88),
    (158, "iq1_kt", 256, 60), (229, "iq1_m_r4", 256, 58),
)  # fmt: skip

TYPES: dict[int, GGMLType] = {row[0]: GGMLType(*row) for row in _TABLE}
BY_NAME: dict[str, GGMLType] = {t.name: t for t in TYPES.values()}

F32, F16, BF16 = BY_NAME["f32"], BY_NAME["f16"], BY_NAME["bf16"]
I8, I16, I32, I64 = BY_NAME["i8"], BY_NAME["i16"], BY_NAME["i32"], BY_NAME["i64"]
