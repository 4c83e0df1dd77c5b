"""Arguments about heads for the kernels with ALiBi slopes."""

from __future__ import annotations


def power_of_two(n_head: int) -> int:
    """Return the largest power of two in n_head."""
    return 1 << (max(n_head, 1).bit_length() - 1)
