"""The random numbers of C++ (std::mt19937): a seed gives the tokens that it gives in llama.cpp."""

from __future__ import annotations

import numpy as np

_ONE = 2.0**32


class Mt19937:
    """A generator by its seed, 0..2^32 - 1."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.reset()

    def reset(self) -> None:
        """Back to the first number."""
        self._bits = np.random.MT19937(0)
        # NumPy's new way to seed spreads the seed otherwise than C++ does, its old one does not
        np.random.RandomState(self._bits).seed(self.seed)

    def copy(self) -> Mt19937:
        """One that goes on with the same numbers."""
        other = Mt19937(self.seed)
        other._bits.state = self._bits.state
        return other

    def double(self) -> float:
        """0 <= x < 1, of two 32-bit numbers (std::uniform_real_distribution<double>)."""
        low, high = self._next(), self._next()
        return min((low + high * _ONE) / _ONE**2, 1 - 2.0**-53)

    def single(self) -> float:
        """0 <= x < 1, of one (std::uniform_real_distribution<float>)."""
        return min(float(np.float32(self._next())) / _ONE, 1 - 2.0**-24)

    def _next(self) -> int:
        return int(self._bits.random_raw())
