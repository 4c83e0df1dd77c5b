"""Vision encoder of Muse-Glimmer (conversion/muse_glimmer.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.arrays import Array, LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors
from llama_py.checkpoint.media_names import name_blocks
from llama_py.checkpoint.rotary import permute


class MuseGlimmerVisionConverter(MediaConverter):
    classes = ("MuseGlimmerForConditionalGeneration",)
    names = {
        "model.vision_tower.patch_embedder.patch_embedding": "v.patch_embd",
        "model.vision_tower.patch_embedder.position_embedding_table": "v.position_embd",
        "model.vision_tower.ln_pre": "v.pre_ln",
        "model.vision_tower.ln_post": "v.post_ln",
        **name_blocks("model.vision_tower.layers.{}"),
        "model.vision_adapter.fc1": "mm.0",
        "model.vision_adapter.fc2": "mm.1",
        "model.vision_projection": "mm.2",
    }
    keeps = r"model\.vision_(tower|adapter|projection)\."
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "patch_size": 14, "pos_emb_height": 32, "num_attention_heads": 16,
        "num_hidden_layers": 50, "hidden_size": 1536, "intermediate_size": 8960,
        "patch_temporal": 2, "merge_size": 2, "layer_norm_eps": 1e-5,
    }  # fmt: skip

    def read_vision(self) -> Config:
        found = super().read_vision()
        side = found["pos_emb_height"] * found["patch_size"] * found["merge_size"]
        return {**found, "image_size": side}

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "muse-glimmer",
            f"vision.{EPSILON}": float(self.vision["layer_norm_eps"]),
            "vision.spatial_merge_size": int(self.vision["merge_size"]),
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if ".attn.q_proj." in name or ".attn.k_proj." in name:
            array = permute(array, int(self.vision["num_attention_heads"]))
        elif name.endswith("patch_embedder.patch_embedding.weight"):
            array = self._add_frames(array)
        yield from super().tensors(name, array, layer)

    def _add_frames(self, array: LazyArray) -> LazyArray:
        """Return the sum of the frames' weights, since an image is repeated for all frames."""
        size, n_frames = int(self.vision["patch_size"]), int(self.vision["patch_temporal"])
        frames = array.reshape(array.shape[0], n_frames, 3, size, size)
        shape = (array.shape[0], 3, size, size)

        def make() -> Array:
            found: Array = frames.read().sum(1)
            return found

        return LazyArray(shape, array.dtype, make, array.stored)
