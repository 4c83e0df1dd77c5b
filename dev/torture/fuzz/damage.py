"""Damage to bytes without a structure: numbers that are too large, parts that are missing."""

from __future__ import annotations

from random import Random

from dev.torture.fuzz.gguf_bytes import u32, u64
from dev.torture.fuzz.numbers import HUGE


def damaged(rng: Random, data: bytes, head: int = 600) -> tuple[str, bytes]:
    """Return a description, and bytes with one to three changes, mostly in the first `head`."""
    told, content = [], bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        most = len(content)
        at = (
            rng.randrange(max(min(head, most), 1))
            if rng.random() < 0.7
            else rng.randrange(most + 1)
        )
        at -= at % rng.choice((1, 4, 4, 8))
        what = rng.randrange(7)
        if what < 2:
            raw = u64(rng.choice(HUGE)) if what else u32(rng.choice(HUGE) % 2**32)
            content[at : at + len(raw)] = raw
            told.append(f"{raw.hex()} at {at}")
        elif what == 2:
            content[at : at + 1] = bytes([rng.choice((0, 1, 127, 128, 255))])
            told.append(f"a byte at {at}")
        elif what == 3:
            content = content[:at]
            told.append(f"cut at {at}")
        elif what == 4:
            n = rng.choice((1, 4, 8, 100))
            del content[at : at + n]
            told.append(f"{n} bytes gone at {at}")
        elif what == 5:
            content[at:at] = u64(rng.choice(HUGE))
            told.append(f"a number more at {at}")
        else:
            n = rng.choice((4, 8, 64))
            content[at : at + n] = rng.randbytes(n)
            told.append(f"{n} random bytes at {at}")
        if not content:
            break
    return ", ".join(told), bytes(content)
