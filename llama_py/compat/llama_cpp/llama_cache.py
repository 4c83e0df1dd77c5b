"""Caches of states between completions, with llama-cpp-python's names.

The memory of a `Llama` already has the last text, and the prefix cache earlier ones, so that a
cache is useful between objects and processes only.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from llama_py.compat.llama_cpp._state import LlamaState
from llama_py.decoding.prefix_cache.tree import common
from llama_py.support.whole_file import replace_file

__all__ = ["BaseLlamaCache", "LlamaCache", "LlamaDiskCache", "LlamaRAMCache"]

CAPACITY = 2 << 30  # bytes
Key = tuple[int, ...]


def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the length of the longest common start of two lists of tokens."""
    return common(tuple(a), tuple(b))


class BaseLlamaCache(ABC):
    """States of texts, by their tokens; a lookup returns the longest common start."""

    def __init__(self, capacity_bytes: int = CAPACITY) -> None:
        """Store at most capacity_bytes."""
        self.capacity_bytes = capacity_bytes

    @property
    @abstractmethod
    def cache_size(self) -> int:
        """Bytes of all states."""

    @abstractmethod
    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        """Return the state with the longest common start; KeyError without one."""

    @abstractmethod
    def __contains__(self, key: Sequence[int]) -> bool:
        """Return True if a state has a common start."""

    @abstractmethod
    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        """Store a state. The oldest states are evicted beyond the capacity."""


class LlamaRAMCache(BaseLlamaCache):
    """Cache of states in memory."""

    def __init__(self, capacity_bytes: int = CAPACITY) -> None:
        """Store at most capacity_bytes."""
        super().__init__(capacity_bytes)
        self.cache_state: OrderedDict[Key, LlamaState] = OrderedDict()

    @property
    def cache_size(self) -> int:
        """Bytes of all states."""
        return sum(state.llama_state_size for state in self.cache_state.values())

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        """Return the state with the longest common start; KeyError without one."""
        found = _find(self.cache_state, key)
        if found is None:
            raise KeyError("no cached state has a common start")
        self.cache_state.move_to_end(found)
        return self.cache_state[found]

    def __contains__(self, key: Sequence[int]) -> bool:
        """Return True if a state has a common start."""
        return _find(self.cache_state, key) is not None

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        """Store a state. The oldest states are evicted beyond the capacity."""
        self.cache_state.pop(tuple(key), None)
        self.cache_state[tuple(key)] = value
        while self.cache_state and self.cache_size > self.capacity_bytes:
            self.cache_state.popitem(last=False)


LlamaCache = LlamaRAMCache


class LlamaDiskCache(BaseLlamaCache):
    """Cache in a folder: one NumPy file (.npz) per text, without pickled objects."""

    def __init__(
        self, cache_dir: str = ".cache/llama_cache", capacity_bytes: int = CAPACITY
    ) -> None:
        """Use a folder, created if it is missing, with all its files."""
        super().__init__(capacity_bytes)
        self.folder = Path(cache_dir)
        self.folder.mkdir(parents=True, exist_ok=True)

    def _paths(self) -> list[Path]:
        """Return the files, the oldest first."""
        return sorted(self.folder.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)

    def _tokens(self) -> dict[Key, Path]:
        found = {}
        for path in self._paths():
            with np.load(path, allow_pickle=False) as data:
                found[tuple(data["tokens"].tolist())] = path
        return found

    @property
    def cache_size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self._paths())

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        """Return the state with the longest common start; KeyError without one."""
        paths = self._tokens()
        found = _find(paths, key)
        if found is None:
            raise KeyError("no cached state has a common start")
        paths[found].touch()
        with np.load(paths[found], allow_pickle=False) as data:
            state = data["state"].tobytes()
            return LlamaState(
                data["tokens"], data["scores"], len(found), state, len(state), int(data["seed"])
            )

    def __contains__(self, key: Sequence[int]) -> bool:
        """Return True if a state has a common start."""
        return _find(self._tokens(), key) is not None

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        """Store a state. The oldest files are deleted beyond the capacity."""
        tokens, data = np.asarray(key, np.intc), io.BytesIO()
        state = np.frombuffer(value.llama_state, np.uint8)
        np.savez(data, tokens=tokens, scores=value.scores, state=state, seed=value.seed)
        name = hashlib.sha256(tokens.tobytes()).hexdigest()
        replace_file(self.folder / f"{name}.npz", [data.getvalue()])
        for path in self._paths():
            if self.cache_size <= self.capacity_bytes:
                return
            path.unlink()


def _find(keys: Iterable[Key], wanted: Sequence[int]) -> Key | None:
    """Return the key with the longest common start, the last of several; None without one."""
    best, most = None, 0
    for key in keys:
        if (n := longest_token_prefix(key, wanted)) and n >= most:
            best, most = key, n
    return best
