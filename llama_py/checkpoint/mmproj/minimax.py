"""Vision encoder of MiniMax-M3 (conversion/minimax.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, MediaConverter, Tensors, split_frames
from llama_py.checkpoint.media_names import name_tower
from llama_py.checkpoint.mmproj.siglip import SIGLIP

# Sizes of a head's parts that rotate by time, height and width
HEAD, AXIS = 80, 13


class MiniMaxM3MediaConverter(MediaConverter):
    classes = ("MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3VLForConditionalGeneration")
    names = {
        **name_tower("vision_tower.vision_model"),
        "multi_modal_projector.linear_1": "mm.1",
        "multi_modal_projector.linear_2": "mm.2",
        "patch_merge_mlp.linear_1": "mm.merger.fc1",
        "patch_merge_mlp.linear_2": "mm.merger.fc2",
    }
    keeps = r"vision_tower\.|multi_modal_projector\.|patch_merge_mlp\."
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        **SIGLIP, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
        "num_attention_heads": 16, "image_size": 2016, "patch_size": 14,
    }  # fmt: skip

    def keys(self) -> None:
        super().keys()
        merge = self.vision.get("img_token_compression_config", {})
        self.put({
            "projector_type": "minimax_m3",
            "use_gelu": True,
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-5),
            "vision.spatial_merge_size": int(merge.get("spatial_merge_size", 2)),
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.endswith("embeddings.patch_embedding.weight"):
            yield from split_frames(name, array)
            return
        if ".self_attn.q_proj." in name or ".self_attn.k_proj." in name:
            array = self._join_axes(name, array)
        yield from super().tensors(name, array, layer)

    def _join_axes(self, name: str, array: LazyArray) -> LazyArray:
        """Reorder a head's rows: first both halves of the first axis, then of the others."""
        n, *rest = array.shape
        n_head = int(self.need(self.vision, "num_attention_heads"))
        if n != n_head * HEAD:
            raise ModelError(f"{name} must have {n_head} heads of {HEAD} rows, got {n} rows")
        half = 3 * AXIS
        order = [
            start + AXIS * axis + i for axis in range(3) for start in (0, half) for i in range(AXIS)
        ]
        order += range(2 * half, HEAD)
        return array.reshape(n_head, HEAD, *rest).take(order, 1).reshape(n, *rest)
