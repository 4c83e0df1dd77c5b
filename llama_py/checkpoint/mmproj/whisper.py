"""Audio encoders with the names of Whisper (conversion/ultravox.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Renames, Tensors, add_dims
from llama_py.checkpoint.media_names import name_whisper

PROJECTOR = "audio.multi_modal_projector"
WHISPER = {
    **name_whisper("audio_tower"),
    f"{PROJECTOR}.linear": "mm.a.fc",
    f"{PROJECTOR}.linear_1": "mm.a.mlp.1",
    f"{PROJECTOR}.linear_2": "mm.a.mlp.2",
    f"{PROJECTOR}.ln_pre": "mm.a.norm_pre",
    f"{PROJECTOR}.ln_mid": "mm.a.norm_mid",
}
OLD_NAMES = {
    "hidden_size": "d_model",
    "intermediate_size": "encoder_ffn_dim",
    "num_attention_heads": "encoder_attention_heads",
}
CONVOLUTIONS = r"a\.conv1d\.\d\.weight"


class WhisperConverter(MediaConverter):
    classes: ClassVar[tuple[str, ...]] = ("Qwen2AudioForConditionalGeneration",)
    encoders = ("audio",)
    names = WHISPER
    renames: ClassVar[Renames] = ((r"^multi_modal_projector", PROJECTOR),)
    audio_defaults: ClassVar[Mapping[str, Any]] = {
        "num_mel_bins": 128, "encoder_layers": 32, "d_model": 1280, "encoder_ffn_dim": 5120,
        "encoder_attention_heads": 20,
    }  # fmt: skip
    in_f16 = CONVOLUTIONS
    projector = "qwen2a"

    def read_audio(self) -> Config:
        found = super().read_audio()
        if "hidden_size" not in found and "intermediate_size" not in found:
            found |= {new: found[old] for new, old in OLD_NAMES.items()}
        return found

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": self.projector,
            "audio.num_mel_bins": self.audio["num_mel_bins"],
            f"audio.{EPSILON}": self.audio.get("layer_norm_eps", 1e-5),
        })  # fmt: skip
        if (factor := self.stack_factor()) is not None:
            self.put({"audio.projector.stack_factor": factor})

    def stack_factor(self) -> int | None:
        """Return how many neighboring results become one; None: no key."""
        return None

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.endswith(("conv1.bias", "conv2.bias")):
            array = add_dims(array, 1)
        yield from super().tensors(name, array, layer)


class UltravoxConverter(WhisperConverter):
    classes = ("UltravoxModel",)
    projector = "ultravox"

    def stack_factor(self) -> int:
        return int(self.need(self.whole, "stack_factor"))


class VoxtralConverter(WhisperConverter):
    classes = ("VoxtralForConditionalGeneration",)
    projector = "voxtral"
    audio_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
        "num_attention_heads": 20, "num_mel_bins": 128,
    }  # fmt: skip

    def stack_factor(self) -> int:
        return 4


class AudioFlamingoConverter(WhisperConverter):
    classes = ("AudioFlamingo3ForConditionalGeneration",)
    projector = "musicflamingo"
    audio_defaults = VoxtralConverter.audio_defaults
    in_f16 = ""
    in_f32 = CONVOLUTIONS


class MeralionConverter(WhisperConverter):
    classes = ("MERaLiON2ForConditionalGeneration",)
    projector = "meralion"
    names = {
        **WHISPER,
        "ln_speech": "mm.a.norm_pre",
        "speech_audio_adapter.mlp_adapter.{}": "mm.a.mlp.{}",
        "speech_audio_adapter.gate_proj": "mm.a.mlp.1",
        "speech_audio_adapter.pool_proj": "mm.a.mlp.2",
        "speech_audio_adapter.out_proj": "mm.a.mlp.3",
    }
    renames = ((r"^speech_encoder\.", "audio_tower."),)
    drops = r"^text_decoder\.|^speech_audio_adapter\.mlp_adapter\.[1-9]"

    def read_audio(self) -> Config:
        found = {**self.audio_defaults, **self.section("speech_config")}
        return {**found, **{new: found[old] for new, old in OLD_NAMES.items()}}

    def stack_factor(self) -> int:
        return int(self.whole.get("speech_mlp_scale_factor", 15))


class GlmAsrConverter(WhisperConverter):
    classes = ("GlmasrModel",)
    projector = "glma"
    renames = (
        (r"^audio_encoder\.whisper\.", "audio_tower."),
        (r"^audio_encoder\.(layer_norm\.|proj\.|adapting\.)", rf"{PROJECTOR}.\1"),
        (rf"^({PROJECTOR})\.adapting\.", r"\1."),
        (rf"^({PROJECTOR})\.layer_norm\.", r"\1.ln_pre."),
        (rf"^({PROJECTOR})\.0\.", r"\1.linear_1."),
        (rf"^({PROJECTOR})\.2\.", r"\1.linear_2."),
    )
    drops = rf"^(model|lm_head)\.|^{PROJECTOR}\.proj\."

    def stack_factor(self) -> int:
        return int(self.need(self.whole, "merge_factor"))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.startswith("audio_encoder.audio_bos_eos_token."):
            yield "v.boi", array.rows(0, 1).reshape(-1)
            yield "v.eoi", array.rows(1, 2).reshape(-1)
        else:
            yield from super().tensors(name, array, layer)
