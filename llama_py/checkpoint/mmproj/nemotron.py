"""Encoders of Nemotron Nano V2 VL: RADIO and Parakeet (conversion/nemotron.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import Array, LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors
from llama_py.checkpoint.media_names import CONFORMER_LAYER, name_blocks

RADIO = "vision_model.radio_model.model"
SOUND = "sound_encoder.encoder"
SIZES = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
    "num_attention_heads": 16,
}  # fmt: skip
MAX_SIDE = 1024  # patches
COLORS = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}


class NemotronVLConverter(MediaConverter):
    classes = ("NemotronH_Nano_VL_V2", "RADIOModel")
    encoders = ("vision", "audio")
    names = {
        f"{RADIO}.patch_generator.cls_token.token": "v.class_embd",
        f"{RADIO}.patch_generator.embedder": "v.patch_embd",
        f"{RADIO}.patch_generator.pos_embed": "v.position_embd",
        **name_blocks(f"{RADIO}.blocks.{{}}"),
        "mlp1.{}": "mm.model.mlp.{}",
        f"{SOUND}.subsampling.layers.{{}}": "a.conv1d.{}",
        f"{SOUND}.subsampling.linear": "a.pre_encode.out",
        **name_blocks(f"{SOUND}.layers.{{}}", CONFORMER_LAYER, "a.blk.{}"),
        f"{SOUND}.layers.{{}}.self_attn.relative_k_proj": "a.blk.{}.linear_pos",
        f"{SOUND}.layers.{{}}.conv.norm.running_mean": "a.blk.{}.conv_norm_mean",
        f"{SOUND}.layers.{{}}.conv.norm.running_var": "a.blk.{}.conv_norm_var",
        f"{SOUND}.feature_extractor.featurizer.fb": "a.mel_filters",
        f"{SOUND}.feature_extractor.featurizer.window": "a.window",
        "sound_projection.norm": "mm.a.norm_pre",
        "sound_projection.linear1": "mm.a.mlp.1",
        "sound_projection.linear2": "mm.a.mlp.2",
    }
    renames = ((r"(patch_generator\.pos_embed)$", r"\1.weight"),)
    keeps = rf"{RADIO}\.|mlp1\.|sound_(encoder|projection)\."
    drops = r"input_conditioner|patch_generator\.video_embedder|conv\.norm\.num_batches"
    in_f32 = r"^(a\.|mm\.a\.).*(bias|norm|conv.*weight)"

    def find_encoders(self) -> tuple[str, ...]:
        return self.encoders if self.whole.get("sound_config") is not None else ("vision",)

    def read_vision(self) -> Config:
        size = self.whole.get("force_image_size", 512)
        return {**super().read_vision(), **SIZES, "image_size": size}

    def read_audio(self) -> Config:
        return self.section("sound_config")

    def process(self, name: str) -> Any:
        return self.processor.get(name, COLORS[name])

    def keys(self) -> None:
        if "audio" in self.encoders:
            self.put({
                "audio.num_mel_bins": self.need(self.audio, "num_mel_bins"),
                f"audio.{EPSILON}": 1e-5,
                "audio.subsampling_factor": self.need(self.audio, "subsampling_factor"),
                "audio.conv_kernel_size": self.need(self.audio, "conv_kernel_size"),
                "audio.projector_type": "parakeet",
                "vision.projector_type": "nemotron_v2_vl",
            })  # fmt: skip
        else:
            self.put({"projector_type": "nemotron_v2_vl"})
        super().keys()
        self.put({
            f"vision.{EPSILON}": 1e-6,
            "use_gelu": True,
            "vision.projector.scale_factor": int(1.0 / self.whole.get("downsample_ratio", 0.5)),
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        size, n = self.need(self.vision, "patch_size"), self.vision["hidden_size"]
        if "patch_generator.pos_embed" in name:
            array = resize_grid(array, self.vision["image_size"] // size)
        elif "patch_generator.embedder" in name:
            array = array.reshape(n, 3, size, size)
        elif name.endswith("depthwise_conv.weight"):  # [n, 1, k] to [1, 1, n, k]
            array = array.reshape(*array.shape, 1).transpose(3, 1, 0, 2)
        elif "pointwise_conv" in name and name.endswith(".weight") and array.shape[2:] == (1,):
            array = array.reshape(*array.shape[:2])
        elif name.endswith(".bias") and ("subsampling.layers" in name or "pointwise_conv" in name):
            array = array.reshape(1, -1, 1, 1) if array.ndim == 1 else array
        yield from super().tensors(name, array, layer)


def resize_grid(array: LazyArray, side: int) -> LazyArray:
    """Return embeddings of positions, [1, n * n, n_embd], for a grid with another side: bilinear
    interpolation that preserves the corners. Raises ModelError for an impossible side."""
    n, n_embd = int(array.shape[1] ** 0.5), array.shape[2]
    if not 0 < side <= MAX_SIDE:
        raise ModelError(f"an image must have 1 to {MAX_SIDE} patches per side, got {side}")
    if n == side:
        return array

    def make() -> Array:
        grid = array.read().reshape(n, n, n_embd).astype(np.float32)
        step = np.float32((n - 1) / (side - 1)) if side > 1 else np.float32(0)
        at = np.arange(side, dtype=np.float32) * step
        low = at.astype(int)
        high, part = np.minimum(low + 1, n - 1), at - low
        rest = 1 - part
        up, down = part[:, None, None], rest[:, None, None]
        left, right = rest[None, :, None], part[None, :, None]
        found = down * (left * grid[low][:, low] + right * grid[low][:, high])
        found += up * (left * grid[high][:, low] + right * grid[high][:, high])
        made: Array = found.reshape(1, side * side, n_embd)
        return made

    return LazyArray((1, side * side, n_embd), np.float32, make)
