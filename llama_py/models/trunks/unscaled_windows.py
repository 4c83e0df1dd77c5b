"""Sliding-window layers with RoPE as trained, without scale factor or YaRN."""

from __future__ import annotations

from dataclasses import replace

from llama_py.gguf.keys import Keys
from llama_py.hparams import WindowedHParams
from llama_py.hparams.layer_shape import Rope


class UnscaledWindows(WindowedHParams):
    n_pattern = 4

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_base_swa = self.rope_freq_base_train  # no graph reads the file's

    def rope(self, il: int) -> Rope | None:
        rope = super().rope(il)
        return replace(rope, yarn=False) if rope and self.swa_layers[il] else rope
