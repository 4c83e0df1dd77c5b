"""Encoders of Qwen2.5-Omni, Qwen3-Omni and Qwen3-ASR (conversion/qwenvl.py, qwen3vl.py)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Renames, Tensors, add_dims
from llama_py.checkpoint.media_names import name_whisper
from llama_py.checkpoint.mmproj.qwen import QWEN, Qwen2VLMediaConverter, Qwen3VLMediaConverter
from llama_py.checkpoint.mmproj.whisper import CONVOLUTIONS, OLD_NAMES, WhisperConverter

LENGTH, LONGEST = 1500, 10000.0  # positions, and the longest wavelength
AUDIO = {
    **name_whisper("audio_tower"),
    **{f"audio_tower.conv2d{i}": f"a.conv2d.{i}" for i in range(1, 4)},
    "audio_tower.conv_out": "a.conv_out",
    "audio_tower.proj": "mm.a.fc",
    "audio_tower.proj1": "mm.a.mlp.1",
    "audio_tower.proj2": "mm.a.mlp.2",
}


class ThinkerMediaConverter(MediaConverter):
    """The encoders of a model with its configuration in `thinker_config`."""

    encoders: tuple[str, ...] = ("vision", "audio")
    keeps = r"visual\.|audio_tower\."
    in_f16 = rf"{CONVOLUTIONS}|a\.conv2d\.\d\.weight|a\.conv_out\.weight"
    audio_defaults = WhisperConverter.audio_defaults

    def section(self, *names: str) -> Config:
        thinker = self.whole.get("thinker_config")
        whole, self.whole = self.whole, thinker if isinstance(thinker, dict) else {}
        try:
            return super().section(*names)
        finally:
            self.whole = whole

    def read_audio(self) -> Config:
        found = super().read_audio()
        return {**found, **{new: found[old] for new, old in OLD_NAMES.items()}}

    def audio_keys(self) -> None:
        super().audio_keys()
        self.put({
            "audio.num_mel_bins": self.audio["num_mel_bins"],
            f"audio.{EPSILON}": self.audio.get("layer_norm_eps", 1e-5),
        })  # fmt: skip

    def extra(self) -> Tensors:
        n = self.audio["d_model"] // 2
        yield "a.position_embd.weight", LazyArray.from_values(sinusoids(LENGTH, n))

    def audio_tensors(self, name: str, array: LazyArray) -> Tensors:
        """Yield the tensors of the audio encoder."""
        if name.endswith(("conv1.bias", "conv2.bias")):
            array = add_dims(array, 1)
        elif "conv2d" in name and name.endswith(".bias"):
            array = add_dims(array, 2)
        yield self.rename(name), array


def sinusoids(length: int, n: int) -> Any:
    """Return embeddings of positions, [length, 2 * n]: sines and cosines."""
    step = np.float32(math.log(LONGEST) / (n - 1))
    rates = np.exp((-step * np.arange(n, dtype=np.float32)).astype(np.float64)).astype(np.float32)
    angles = (np.arange(length, dtype=np.float32)[:, None] * rates).astype(np.float64)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


class Qwen25OmniConverter(ThinkerMediaConverter, Qwen2VLMediaConverter):
    classes = ("Qwen2_5OmniModel",)
    names = {**QWEN, **AUDIO}
    renames: ClassVar[Renames] = ((r"^thinker\.", ""),)
    drops = r"audio_bos_eos_token"

    def keys(self) -> None:
        super().keys()
        self.put({"projector_type": "qwen2.5o"})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.startswith("audio_tower."):
            yield from self.audio_tensors(name, array)
        else:
            yield from super().tensors(name, array, layer)


class Qwen3OmniConverter(ThinkerMediaConverter, Qwen3VLMediaConverter):
    classes: ClassVar[tuple[str, ...]] = ("Qwen3OmniMoeForConditionalGeneration",)
    names = {**QWEN, **AUDIO}
    renames: ClassVar[Renames] = (
        (r"^thinker\.", ""),
        (r"^model\.visual\.", "visual."),
        (r"^visual\.merger_list\.", "visual.deepstack_merger_list."),
        (r"(merger.*)\.ln_q", r"\1.norm"),
        (r"(merger.*)\.mlp\.0", r"\1.linear_fc1"),
        (r"(merger.*)\.mlp\.2", r"\1.linear_fc2"),
    )

    def keys(self) -> None:
        MediaConverter.keys(self)
        if "vision" in self.encoders:
            self.qwen3_keys()
            self.put({"vision.projector_type": "qwen3vl_merger"})
        self.put({"audio.projector_type": "qwen3a"})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.startswith("audio_tower."):
            yield from self.audio_tensors(name, array)
        else:
            yield from super().tensors(name, array, layer)


class Qwen3ASRConverter(Qwen3OmniConverter):
    classes = ("Qwen3ASRForConditionalGeneration",)
    encoders = ("audio",)
    keeps = r"audio_tower\."
