"""Windows within which positions are scaled as in layers without."""

from __future__ import annotations

from llama_py.gguf.keys import Keys
from llama_py.hparams import WindowedHParams


class ScaledWindows(WindowedHParams):
    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_scale_swa = self.rope_freq_scale_train
