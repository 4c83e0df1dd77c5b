"""Vision encoders of Kimi-VL, Kimi-K2.5 and GLM-5.2-Vision (conversion/kimivl.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray, concat
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors, split_three
from llama_py.checkpoint.media_names import name_blocks
from llama_py.gguf.write import encode

KIMI = {
    "vision_tower.patch_embed.proj": "v.patch_embd",
    "vision_tower.patch_embed.pos_emb": "v.position_embd",
    "vision_tower.encoder.final_layernorm": "v.post_ln",
    **name_blocks("vision_tower.encoder.blocks.{}", {
        "norm0": "ln1", "norm1": "ln2", "wqkv": "attn_qkv", "wo": "attn_out",
        "mlp.fc0": "ffn_up", "mlp.fc1": "ffn_down", "wq": "attn_q", "wk": "attn_k",
        "wv": "attn_v"}),
    "multi_modal_projector.pre_norm": "mm.input_norm",
    "multi_modal_projector.linear_1": "mm.1",
    "multi_modal_projector.linear_2": "mm.2",
    "mm_projector.pre_norm": "mm.input_norm",
    "mm_projector.linear_1": "mm.1",
    "mm_projector.linear_2": "mm.2",
}  # fmt: skip


class KimiVLConverter(MediaConverter):
    classes: ClassVar[tuple[str, ...]] = ("KimiVLForConditionalGeneration",)
    names = KIMI
    keeps = r".*(vision_tower|multi_modal_projector)"

    def read_vision(self) -> Config:
        return {**super().read_vision(), "image_size": 64 * 14}

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "kimivl",
            "use_gelu": True,
            "vision.projector.scale_factor": 2,
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-5),
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if "pos_emb.weight" in name:
            array = array.reshape(-1, array.shape[-1])
        if "wqkv" in name:
            for part, one in zip("qkv", split_three(name, array), strict=True):
                yield self.rename(name.replace("wqkv", f"w{part}")), one
        else:
            yield from super().tensors(name, array, layer)


class KimiK25Converter(MediaConverter):
    classes: ClassVar[tuple[str, ...]] = (
        "KimiK25ForConditionalGeneration",
        "Glm5vForConditionalGeneration",
    )
    names = KIMI
    renames = (
        (r"(mm_projector\.)(?:proj\.)0\.", r"\1linear_1."),
        (r"(mm_projector\.)(?:proj\.)2\.", r"\1linear_2."),
        (r"(mm_projector\.)proj\.(linear_[12])\.", r"\1\2."),
    )
    keeps = r".*(vision_tower|mm_projector)"
    drops = r"pos_emb\.time_weight"
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64,
        "init_pos_emb_time": 4, "merge_kernel_size": [2, 2], "projector_hidden_act": "gelu",
        "projector_ln_eps": 1e-5,
    }  # fmt: skip

    def read_vision(self) -> Config:
        found = super().read_vision()
        return {**found, "image_size": found["init_pos_emb_height"] * found["patch_size"]}

    def keys(self) -> None:
        super().keys()
        vision = self.vision
        self.put({"projector_type": "kimik25"})
        for part in ("height", "width", "time"):  # without the prefix of other keys
            size = encode("u32", vision[f"init_pos_emb_{part}"])
            self.out.stored[f"vision.pos_emb_{part}"] = size
        n_pixels = vision["patch_size"] ** 2
        self.put({
            "use_gelu": vision["projector_hidden_act"] == "gelu",
            f"vision.{EPSILON}": vision["projector_ln_eps"],
            "vision.projector.scale_factor": vision["merge_kernel_size"][0],
            "vision.image_min_pixels": 8 * n_pixels,
            "vision.image_max_pixels": self.processor.get("in_patch_limit", 16384) * n_pixels,
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if "wqkv" in name:
            heads = int(self.vision.get("num_attention_heads", 16))
            *rotated, values = split_three(name, array)
            array = concat([*(join_pairs(one, heads) for one in rotated), values])
        yield from super().tensors(name, array, layer)


def join_pairs(array: LazyArray, n_head: int) -> LazyArray:
    """Reorder the rows of each head: pairs that rotate by height, then those by width."""
    n, *rest = array.shape
    return array.reshape(n_head, n // n_head // 4, 2, 2, *rest).swap(1, 2).reshape(n, *rest)
