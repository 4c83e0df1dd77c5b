"""What the kernels with ALiBi slopes are told of the heads."""

from __future__ import annotations


def power_of_two(n_head: int) -> int:
    """The largest in n_head."""
    return 1 << (max(n_head, 1).bit_length() - 1)
