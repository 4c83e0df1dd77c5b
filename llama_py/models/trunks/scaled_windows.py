"""Sliding-window layers that use the same RoPE scaling as other layers."""

from __future__ import annotations

from llama_py.gguf.keys import Keys
from llama_py.hparams import WindowedHParams


class ScaledWindows(WindowedHParams):
    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_scale_swa = self.rope_freq_scale_train
