"""Vision encoder of InternVL and Intern-S1 (conversion/internvl.py)."""

from __future__ import annotations

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors, split_three
from llama_py.checkpoint.media_names import name_blocks, name_tower


class InternVLConverter(MediaConverter):
    classes = ("InternVisionModel",)
    names = {
        **name_tower("vision_tower.vision_model"),
        "mlp1.{}": "mm.model.mlp.{}",
        **{f"model.vision_tower.embeddings.{module}": tensor for module, tensor in {
            "cls_token": "v.class_embd", "patch_embeddings.projection": "v.patch_embd",
            "position_embeddings": "v.position_embd"}.items()},
        **name_blocks("model.vision_tower.encoder.layer.{}"),
    }  # fmt: skip
    renames = (
        (r"^vision_model", "vision_tower.vision_model"),
        (r"^model\.multi_modal_projector\.layer_norm\.", "mlp1.0."),
        (r"^model\.multi_modal_projector\.linear_1\.", "mlp1.1."),
        (r"^model\.multi_modal_projector\.linear_2\.", "mlp1.3."),
        (r"(.*(\.ls|\.lambda_|position_embedding).*(?<!\.weight))$", r"\1.weight"),
    )
    keeps = r"vision_tower\.vision_model|mlp|model\.vision_tower"
    in_f32 = r"v\.position_embd\."

    def read_vision(self) -> Config:
        found = super().read_vision()
        for name in ("image_size", "patch_size"):
            if isinstance(found.get(name), list):
                found[name] = found[name][0]
        return found

    def keys(self) -> None:
        super().keys()
        whole = self.whole
        self.put({
            "projector_type": "internvl",
            f"vision.{EPSILON}": self.need(self.vision, "layer_norm_eps"),
        })  # fmt: skip
        self.put_activation(self.vision.get("hidden_act"), others=False)
        scale = int(1.0 / self.need(whole, "downsample_ratio"))
        self.put({"vision.projector.scale_factor": scale})
        for key, name in (("min_tiles", "min_dynamic_patch"), ("max_tiles", "max_dynamic_patch")):
            if (n := whole.get(name, 0)) > 0:
                self.put({f"vision.preproc_{key}": n})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if ".qkv." not in name:
            yield from super().tensors(name, array, layer)
            return
        for part, one in zip("qkv", split_three(name, array), strict=True):
            yield self.rename(name.replace("attn.qkv", f"self_attn.{part}_proj")), one
