"""Sliding windows in layers that the file lists, with heads of the same sizes as other layers."""

from __future__ import annotations

from llama_py.gguf.keys import Keys, uint
from llama_py.hparams import WindowedHParams


class FlaggedWindows(WindowedHParams):
    n_swa: int = uint("attention.sliding_window", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        for x in ("key", "value"):
            size = getattr(self, f"n_embd_head_{x[0]}")
            if getattr(self, f"n_embd_head_{x[0]}_swa") != size:
                raise keys.error(f"attention.{x}_length_swa", f"must be {x}_length = {size}")

    def _pattern(self, keys: Keys) -> tuple[bool, ...]:
        return keys.flags("attention.sliding_window_pattern", self.n_layer_all)
