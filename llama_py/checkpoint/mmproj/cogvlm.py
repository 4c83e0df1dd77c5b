"""Vision encoder of CogVLM (conversion/cogvlm.py)."""

from __future__ import annotations

from llama_py.checkpoint.media import EPSILON, MediaConverter
from llama_py.checkpoint.media_names import name_blocks


class CogVLMMediaConverter(MediaConverter):
    classes = ("CogVLMForCausalLM",)
    names = {
        "model.vision.patch_embedding.cls_embedding": "v.class_embd",
        "model.vision.patch_embedding.proj": "v.patch_embd",
        "model.vision.patch_embedding.position_embedding": "v.position_embd",
        **name_blocks("model.vision.transformer.layers.{}"),
        "model.vision.linear_proj.linear_proj": "mm.model.fc",
        "model.vision.linear_proj.norm1": "mm.post_fc_norm",
        "model.vision.linear_proj.dense_h_to_4h": "mm.up",
        "model.vision.linear_proj.dense_4h_to_h": "mm.down",
        "model.vision.linear_proj.gate_proj": "mm.gate",
        "model.vision.boi": "v.boi",
        "model.vision.eoi": "v.eoi",
    }
    keeps = r"model\.vision\."

    def keys(self) -> None:
        super().keys()
        self.put({
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
            "projector_type": "cogvlm",
        })  # fmt: skip
