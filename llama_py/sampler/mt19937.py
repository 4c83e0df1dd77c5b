"""Random number generator of C++ (std::mt19937), so that seeds give llama.cpp's tokens."""

from __future__ import annotations

from random import Random

import numpy as np

_ONE = 2.0**32
_SIZE = 624  # words of a state
_VERSION = 3  # version of Random.setstate's argument


class Mt19937:
    """A generator by its seed, 0..2^32 - 1."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.reset()

    def reset(self) -> None:
        """Reset to the first number."""
        self._bits = Random()
        # Python initializes the state from a seed differently than C++.
        self._bits.setstate((_VERSION, (*_spread(self.seed), _SIZE), None))

    def copy(self) -> Mt19937:
        """Return a copy that continues with the same numbers."""
        other = Mt19937(self.seed)
        other._bits.setstate(self._bits.getstate())
        return other

    def double(self) -> float:
        """Return 0 <= x < 1 from two 32-bit numbers (std::uniform_real_distribution<double>)."""
        low, high = self._next(), self._next()
        return min((low + high * _ONE) / _ONE**2, 1 - 2.0**-53)

    def single(self) -> float:
        """Return 0 <= x < 1 from one 32-bit number (std::uniform_real_distribution<float>)."""
        return min(float(np.float32(self._next())) / _ONE, 1 - 2.0**-24)

    def uniform_int(self, n: int) -> int:
        """Return an integer 0 <= x < n (libstdc++'s uniform_int_distribution, Lemire's method)."""
        product = self._next() * n
        while product % 2**32 < 2**32 % n:
            product = self._next() * n
        return product >> 32

    def _next(self) -> int:
        return self._bits.getrandbits(32)


def _spread(seed: int) -> list[int]:
    """Return the initial state of a seed (std::mersenne_twister_engine::seed)."""
    words = [seed]
    for i in range(1, _SIZE):
        last = words[-1]
        words.append((1812433253 * (last ^ last >> 30) + i) & 0xFFFFFFFF)
    return words
