"""Encoders of Gemma 4 and Gemma 3n (conversion/gemma.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from llama_py.checkpoint.arrays import Array, LazyArray
from llama_py.checkpoint.media import (
    EPSILON,
    Config,
    MediaConverter,
    Renames,
    Tensors,
    add_dims,
    to_pixels,
)
from llama_py.checkpoint.media_names import CONFORMER_LAYER, name_blocks

LIMITS = ("input_max", "input_min", "output_max", "output_min")
SOFT = ("embedding", "hard_embedding_norm", "embedding_projection", "soft_embedding_norm")
# Projections to the text model's embeddings
EMBEDDERS = {
    f"model.embed_{part}.{module}": f"{start}.{new}"
    for part, start in (("vision", "mm"), ("audio", "mm.a"))
    for module, new in zip(
        SOFT, ("embedding", "hard_emb_norm", "input_projection", "soft_emb_norm"), strict=True
    )
}
CONFORMER = name_blocks("conformer.layers.{}", CONFORMER_LAYER, "a.blk.{}")
SUBSAMPLE = "subsample_conv_projection"
THRESHOLD = 20.0  # softplus(x) is x above


class Gemma4MediaConverter(MediaConverter):
    classes: ClassVar[tuple[str, ...]] = ("Gemma4ForConditionalGeneration",)
    encoders = ("vision", "audio")
    projectors: ClassVar[tuple[str, str]] = ("gemma4v", "gemma4a")
    endings = ("weight", "bias", *LIMITS)
    names = {
        **EMBEDDERS,
        **CONFORMER,
        **{f"conformer.{SUBSAMPLE}.layer{i}.{module}": f"a.conv1d.{i}{new}"
           for i in range(4) for module, new in (("conv", ""), ("norm", ".norm"))},
        f"conformer.{SUBSAMPLE}.input_proj_linear": "a.input_projection",
        "conformer.output_proj": "a.pre_encode.out",
        **name_blocks("vision_model.model.layers.{}"),
        "vision_model.model.layers.{}.post_attention_layernorm": "v.blk.{}.attn_post_norm",
        "vision_model.model.layers.{}.pre_feedforward_layernorm": "v.blk.{}.ln2",
        "vision_model.model.layers.{}.post_feedforward_layernorm": "v.blk.{}.ffn_post_norm",
        "vision_model.model.layers.{}.layer_scalar": "v.blk.{}.out_scale",
        "model.vision_tower.patch_embedder.input_proj": "v.patch_embd",
        "model.vision_tower.patch_embedder.position_embedding_table": "v.position_embd",
        "model.vision_tower.std_bias": "v.std_bias",
        "model.vision_tower.std_scale": "v.std_scale",
    }  # fmt: skip
    renames: ClassVar[Renames] = (
        (r"^model\.audio_tower\.", "conformer."),
        (r"^model\.vision_tower\.encoder\.", "vision_model.model."),
        (r"\.linear\.(weight|bias)$", r".\1"),
        (r"((per_dim(_key)?_scale|layer_scalar|position_embedding_table))$", r"\1.weight"),
    )
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
        "num_attention_heads": 12, "patch_size": 16, "pooling_kernel_size": 3,
    }  # fmt: skip
    audio_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8,
    }  # fmt: skip
    in_f32 = r"^a\.(conv1d\.|blk\.\d+\.conv_dw\.|input_projection)|v\.position_embd"

    def find_encoders(self) -> tuple[str, ...]:
        has_audio = bool(self.whole.get("audio_config"))
        return self.encoders if has_audio else ("vision",)

    def read_vision(self) -> Config:
        return {**super().read_vision(), "image_size": 224}

    def read_audio(self) -> Config:
        found = super().read_audio()
        return {**found, "intermediate_size": found["hidden_size"] * 4}

    def keys(self) -> None:
        super().keys()
        vision, audio = self.projectors
        self.put({
            "vision.projector_type": vision,
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
        })  # fmt: skip
        if "audio" in self.encoders:
            self.put({
                "audio.projector_type": audio,
                "audio.num_mel_bins": self.audio.get("input_feat_size", 128),
                f"audio.{EPSILON}": self.audio.get("layer_norm_eps", 1e-6),
            })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if not array.ndim:
            array = array.reshape(1)
        if name.endswith("_scale.weight") and "per_dim" in name:
            array = array.map(softplus)
        elif name.endswith("depthwise_conv1d.weight"):
            array = array.reshape(array.shape[0], array.shape[2])
        elif name.endswith("patch_embedder.input_proj.weight"):
            array = to_pixels(array, int((array.shape[1] // 3) ** 0.5))
        yield from super().tensors(name, array, layer)


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x))."""
    wide = np.log1p(np.exp(np.minimum(x.astype(np.float64), THRESHOLD)))
    return np.where(x > THRESHOLD, x, wide.astype(x.dtype))


class Gemma4UnifiedMediaConverter(Gemma4MediaConverter):
    """Gemma 4 without layers for images and sound: only their projections."""

    classes = ("Gemma4UnifiedForConditionalGeneration",)
    projectors = ("gemma4uv", "gemma4ua")
    names = {
        **EMBEDDERS,
        "model.vision_embedder.patch_dense": "v.patch_embd",
        "model.vision_embedder.pos_embedding": "v.position_embd",
        "model.vision_embedder.pos_norm": "v.patch_norm.3",
        **{f"model.vision_embedder.patch_ln{i}": f"v.patch_norm.{i}" for i in range(4)},
    }
    renames = ((r"(pos_embedding)$", r"\1.weight"),)
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "patch_size": 16, "pooling_kernel_size": 3, "mm_embed_dim": 3840,
    }  # fmt: skip
    audio_defaults: ClassVar[Mapping[str, Any]] = {"audio_embed_dim": 640}
    in_f32 = r"v\.position_embd"

    def find_encoders(self) -> tuple[str, ...]:
        return self.encoders

    def read_vision(self) -> Config:
        found = super().read_vision()
        empty = dict.fromkeys(("intermediate_size", "n_layers", "num_attention_heads"), 0)
        return {**found, "hidden_size": found["mm_embed_dim"], **empty}

    def read_audio(self) -> Config:
        found = {**self.audio_defaults, **self.section("audio_config")}
        empty = dict.fromkeys(("intermediate_size", "n_layers", "num_attention_heads"), 0)
        return {**found, "hidden_size": found["audio_embed_dim"], **empty}

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if "pos_embedding" in name:
            array = array.transpose(1, 0, 2)
        elif "patch_dense.weight" in name or ".patch_ln1." in name:
            array = self._split_colors(array)
        yield from super().tensors(name, array, layer)

    def _split_colors(self, array: LazyArray) -> LazyArray:
        """Reorder the last dimension: from pixels of three colors to an image per color."""
        v = self.vision
        side = int(v.get("model_patch_size", v["patch_size"] * v["pooling_kernel_size"]))
        *rest, n = array.shape
        axes = range(len(rest))
        pixels = array.reshape(*rest, side, side, 3)
        return pixels.transpose(*axes, len(rest) + 2, len(rest), len(rest) + 1).reshape(*rest, n)


TIMM = "model.vision_tower.timm_model"
# Modules of MobileNetV5's blocks, which keep their names
BLOCK = (
    r"(conv_exp|bn1|conv_pwl|bn2|(dw_start|dw_mid|pw_exp|pw_proj)\.(conv|bn)|norm"
    r"|attn\.(query|key|value|output)\.proj|attn\.(key|value)\.(down_conv|norm))\.weight"
    r"|layer_scale\.gamma"
)


class Gemma3nMediaConverter(MediaConverter):
    classes = ("Gemma3nForConditionalGeneration",)
    encoders = ("vision", "audio")
    endings = Gemma4MediaConverter.endings
    names = {
        **EMBEDDERS,
        **CONFORMER,
        **{f"{TIMM}.{module}": f"v.{module}" for module in (
            "conv_stem.conv", "conv_stem.bn", "msfa.ffn.pw_exp.conv", "msfa.ffn.pw_exp.bn",
            "msfa.ffn.pw_proj.conv", "msfa.ffn.pw_proj.bn", "msfa.norm")},
        **{f"model.audio_tower.{SUBSAMPLE}.conv_{i}.conv": f"a.conv1d.{i}" for i in range(2)},
        f"model.audio_tower.{SUBSAMPLE}.input_proj_linear": "a.pre_encode.out",
    }  # fmt: skip
    renames = (
        (r"^model\.audio_tower\.conformer\.", "conformer.layers."),
        (rf"^{TIMM}\.blocks\.(\d+)\.(\d+)\.({BLOCK})$", r"v.blk.\1.\2.\3"),
    )
    keeps = r"v\.blk\.|conformer\.|model\.(audio_tower|vision_tower|embed_(audio|vision))\."
    audio_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 1536, "conf_num_hidden_layers": 12, "conf_num_attention_heads": 8,
        "input_feat_size": 128, "intermediate_size": 6144,
    }  # fmt: skip
    vision_defaults = {"hidden_size": 2048}
    in_f32 = r"conv_stem|^(a\.conv1d\.|a\.blk\.\d+\.conv_dw)"
    in_f16 = r"^a\.pre_encode\.out"

    def read_vision(self) -> Config:
        found = super().read_vision()
        size = self.processor.get("size") or {}
        side = int(size.get("height", 768))
        return {
            **found,
            "n_layers": 128,
            "intermediate_size": found.get("intermediate_size", 2048) * 4,
            "num_attention_heads": found.get("num_attention_heads", 8),
            "image_size": side,
            "patch_size": side // int(self.processor.get("image_seq_length", 256)),
        }

    def read_audio(self) -> Config:
        found = super().read_audio()
        heads = found["conf_num_attention_heads"]
        return {**found, "n_layers": found["conf_num_hidden_layers"], "num_attention_heads": heads}

    def process(self, name: str) -> Any:
        return {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}[name]

    def keys(self) -> None:
        super().keys()
        self.put({
            "vision.projector_type": "gemma3nv",
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
            "audio.projector_type": "gemma3na",
            "audio.num_mel_bins": self.audio["input_feat_size"],
            f"audio.{EPSILON}": 1e-5,
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.endswith("conv_stem.conv.bias"):
            array = add_dims(array.reshape(1, -1), 2)
        if name.startswith("v.blk."):
            yield name, array
        else:
            yield from super().tensors(name, array, layer)
