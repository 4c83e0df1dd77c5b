"""Encoders of dots.ocr and dots3-note (conversion/dotsocr.py, dots3.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_py.checkpoint.arrays import LazyArray, stack
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors
from llama_py.checkpoint.media_names import WHISPER_LAYER, name_blocks
from llama_py.checkpoint.mmproj.whisper import OLD_NAMES

FEED_FORWARD = {"mlp.fc1": "ffn_gate", "mlp.fc2": "ffn_down", "mlp.fc3": "ffn_up"}
PARTS = ("fc1", "fc2", "fc3")


class DotsOCRConverter(MediaConverter):
    classes = ("DotsOCRForCausalLM",)
    names = {
        "vision_tower.patch_embed.patchifier.proj": "v.patch_embd",
        "vision_tower.patch_embed.patchifier.norm": "v.pre_ln",
        "vision_tower.post_trunk_norm": "mm.post_norm",
        "vision_tower.merger.ln_q": "mm.input_norm",
        "vision_tower.merger.mlp.{}": "mm.{}",
        **name_blocks("vision_tower.blocks.{}"),
        **name_blocks("vision_tower.blocks.{}", FEED_FORWARD),
    }
    keeps = r"vision_tower\."

    def read_vision(self) -> Config:
        return {**super().read_vision(), "image_size": 0}

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "dots_ocr",
            "vision.image_min_pixels": self.process("min_pixels"),
            "vision.image_max_pixels": self.process("max_pixels"),
            f"vision.{EPSILON}": self.need(self.vision, "rms_norm_eps"),
            "vision.projector.scale_factor": self.need(self.vision, "spatial_merge_size"),
            "use_silu": True,
        })  # fmt: skip


SPEECH = "audio_encoder.dots_encoder.speech_encoder"
VISION_MUST: Mapping[str, Any] = {
    "adapter_type": "patch_merger", "router_scoring_func": "sigmoid", "router_scale": 1.0,
    "temporal_patch_size": 1, "pre_pixel_shuffle": True, "use_bias": False, "use_qk_norm": True,
}  # fmt: skip
AUDIO_MUST: Mapping[str, Any] = {
    "use_conv2d_stem": True, "use_rope": True, "use_rms_norm": True, "use_causal": False,
    "merge_factor": 1, "chunk_seconds": 60,
}  # fmt: skip
# Values of settings that config.json lacks
ABSENT: Mapping[str, Any] = {
    "router_scoring_func": "sigmoid", "router_scale": 1.0, "temporal_patch_size": 1,
    "merge_factor": 1, "use_bias": False, "use_causal": False,
}  # fmt: skip


class Dots3NoteMediaConverter(MediaConverter):
    classes = ("Dots3NoteForCausalLM", "Dots3NoteForConditionalGeneration")
    encoders = ("vision", "audio")
    names = {
        "vision_encoder.patch_embed.proj": "v.patch_embd",
        "vision_encoder.patch_embed.norm": "v.pre_ln",
        "vision_encoder.post_trunk_norm": "mm.post_norm",
        "vision_encoder.adapter.ln_q": "mm.input_norm",
        "vision_encoder.adapter.mlp.{}": "mm.{}",
        **name_blocks("vision_encoder.blocks.{}"),
        **name_blocks("vision_encoder.blocks.{}", {
            **FEED_FORWARD, "mlp.gate_weight": "ffn_gate_inp", "mlp.router_bias": "exp_probs_b",
            **{m.replace("mlp", "mlp.experts"): f"{t}_exps" for m, t in FEED_FORWARD.items()}}),
        **{f"{SPEECH}.conv2d{i}": f"a.conv2d.{i}" for i in range(1, 4)},
        f"{SPEECH}.conv_out": "a.conv_out",
        f"{SPEECH}.layer_norm": "a.post_ln",
        **name_blocks(f"{SPEECH}.layers.{{}}", {
            **WHISPER_LAYER, "fc1_gate": "ffn_gate", "fc1_up": "ffn_up"}, "a.blk.{}"),
        "audio_encoder.audio_adapter.norm": "mm.a.norm_pre",
        "audio_encoder.audio_adapter.proj.{}": "mm.a.mlp.{}",
    }  # fmt: skip
    renames = (
        (r"(\.gate_weight|\.router_bias)$", r"\1.weight"),
        (r"(audio_adapter)\.proj\.0\.", r"\1.norm."),
    )
    keeps = r"(vision|audio)_encoder\."
    in_f32 = r"\.(ffn_gate_inp|exp_probs_b)\.|a\.conv2d|a\.conv_out"

    def read_vision(self) -> Config:
        self.processor |= self.processor.get("vision_config") or {}
        found = super().read_vision()
        self._check(found, VISION_MUST)
        self.n_experts = [max(0, n) for n in self.need(found, "pyramid_num_routed")]
        return {**found, "hidden_size": self.need(found, "embed_dim"), "image_size": 0}

    def read_audio(self) -> Config:
        found = self.section("audio_config")
        self._check(found, AUDIO_MUST)
        whisper = self.need(found, "whisper_config")
        rope = found.get("rope_parameters") or {}
        self._check(whisper, {"activation_function": "swiglu"})
        self._check(rope, {"partial_rotary_factor": 0.5, "rope_theta": 10000.0})
        sizes = {new: self.need(whisper, old) for new, old in OLD_NAMES.items()}
        return {**found, **sizes, "num_hidden_layers": self.need(whisper, "encoder_layers")}

    def _check(self, found: Mapping[str, Any], must: Mapping[str, Any]) -> None:
        for name, value in must.items():
            if found.get(name, ABSENT.get(name)) != value:
                raise self.refuse((name,), f"{value!r}, got {str(found.get(name))[:50]!r}")

    def keys(self) -> None:
        super().keys()
        vision = self.vision
        self.put({
            "vision.projector_type": "dots3note_v",
            "use_silu": True,
            f"vision.{EPSILON}": self.need(vision, "rms_norm_eps"),
            "vision.spatial_merge_size": self.need(vision, "spatial_merge_size"),
            "vision.image_min_pixels": self.process("min_pixels"),
            "vision.image_max_pixels": self.process("max_pixels"),
            "vision.expert_count_per_layer": self.n_experts,
            "vision.expert_used_count": int(self.need(vision, "capacity_factor")),
            "audio.projector_type": "dots3note_a",
            "audio.num_mel_bins": self.need(self.audio["whisper_config"], "num_mel_bins"),
            f"audio.{EPSILON}": 1e-6,
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.startswith(SPEECH) and ".fc1." in name:
            half = array.shape[0] // 2
            for part, one in zip(("gate", "up"), array.split([half, half]), strict=True):
                yield self.rename(name.replace(".fc1.", f".fc1_{part}.")), one
        elif ".mlp.experts." in name:
            yield from self._merge(name, array, layer or 0)
        else:
            yield from super().tensors(name, array, layer)

    def _merge(self, name: str, array: LazyArray, layer: int) -> Tensors:
        *_, number, part, _ = name.split(".")
        n = self.n_experts[layer]
        at = PARTS.index(part) * n + int(number)
        found = self.gatherer.add(f"vision_encoder.blocks.{layer}", at, array, 3 * n)
        for i, one in enumerate(PARTS if found else ()):
            path = f"vision_encoder.blocks.{layer}.mlp.experts.{one}.weight"
            yield self.rename(path), stack((found or [])[i * n : (i + 1) * n])
