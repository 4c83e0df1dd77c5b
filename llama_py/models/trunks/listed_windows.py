"""Sliding windows in layers that the file lists in an array; only these layers have RoPE."""

from __future__ import annotations

from llama_py.gguf.keys import Keys
from llama_py.hparams.layer_shape import Rope
from llama_py.models.trunks.flagged_windows import FlaggedWindows
from llama_py.models.trunks.scaled_windows import ScaledWindows


class ListedWindows(FlaggedWindows):
    """The first layer's number of rotated dimensions is all layers', like in llama.cpp."""

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.n_rot = self.n_rot_swa = self.n_rot_swa if self.swa_layers[0] else self.n_rot

    def _pattern(self, keys: Keys) -> tuple[bool, ...]:
        key = "attention.sliding_window_pattern"
        if keys.has(key) and not keys.is_array(key):
            raise keys.error(key, "must be an array with one value per layer")
        return keys.flags(key, self.n_layer) + (False,) * self.n_layer_nextn

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if self.swa_layers[il] else None


class ModelRopeWindows(ListedWindows, ScaledWindows):
    """RoPE is the whole model's; a frequency base for windows is ignored, like in llama.cpp."""

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.rope_freq_base_swa = self.rope_freq_base_train
