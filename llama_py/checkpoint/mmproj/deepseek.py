"""Vision encoders of DeepSeek-OCR and DeepSeek-V4-Flash-Vision (conversion/deepseek.py)."""

from __future__ import annotations

from typing import Any, ClassVar

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Renames, Tensors
from llama_py.checkpoint.media_names import name_blocks, name_tower
from llama_py.checkpoint.mmproj.siglip import Gemma3VisionConverter
from llama_py.checkpoint.names import pairs

SAM = {
    "norm1": "pre_ln", "norm2": "post_ln", "attn.rel_pos_h": "attn.pos_h",
    "attn.rel_pos_w": "attn.pos_w", "attn.qkv": "attn.qkv", "attn.proj": "attn.out",
    "mlp.lin1": "mlp.lin1", "mlp.lin2": "mlp.lin2",
}  # fmt: skip
QWEN2 = "model.qwen2_model.model.model"


class DeepseekOCRConverter(Gemma3VisionConverter):
    """The encoders of SAM and of CLIP, one after the other."""

    classes: ClassVar[tuple[str, ...]] = ("DeepseekOCRForCausalLM",)
    names = {
        **name_tower("model.vision_model", "transformer.layers"),
        "model.sam_model.pos_embed": "v.sam.pos_embd",
        "model.sam_model.patch_embed.proj": "v.sam.patch_embd",
        **name_blocks("model.sam_model.blocks.{}", SAM, "v.sam.blk.{}"),
        "model.sam_model.neck.{}": "v.sam.neck.{}",
        "model.sam_model.net_2": "v.sam.net_2",
        "model.sam_model.net_3": "v.sam.net_3",
        "model.projector.layers": "mm.model.fc",
        "model.image_newline": "v.image_newline",
        "model.view_seperator": "v.view_seperator",
        f"{QWEN2}.norm": "v.post_ln",
        **name_blocks(f"{QWEN2}.layers.{{}}"),
        "model.qwen2_model.query_768": "v.resample_query_768",
        "model.qwen2_model.query_1024": "v.resample_query_1024",
    }
    renames: ClassVar[Renames] = ((r"(pos_embed|rel_pos_[hw])$", r"\1.weight"),)
    keeps = ""
    drops = r"^(lm_head|model\.(embed_tokens|layers|norm))\."
    vision_defaults: ClassVar[Config] = {}
    in_f16 = ""
    in_f32 = r"^v\.(patch|position|class)_embd\b|v\.sam\.pos_embd|\.pos_[hw]|v\.sam\.(neck|net_)"
    projector = "deepseekocr"
    max_tiles = 9

    def read_vision(self) -> Config:
        found = self.section("vision_config")
        widths = self.need(found, "width")
        if not isinstance(widths, dict):
            raise self.refuse(("vision_config.width",), "an object of encoders")
        found["sam"] = self.need(widths, "sam_vit_b")
        found |= widths.get("clip-l-14-224") or {}
        if isinstance(found["width"], int):
            found["hidden_size"] = found["width"]
        if (heads := found.get("heads")) is not None:
            found["num_heads"], found["intermediate_size"] = heads, heads * 4
        return found

    def keys(self) -> None:
        MediaConverter.keys(self)
        vision = self.vision
        self.put({
            "projector_type": self.projector,
            f"vision.{EPSILON}": vision.get("layer_norm_eps", 1e-6),
            "use_gelu": True,
        })  # fmt: skip
        self.scale_key()
        self.put({
            "vision.window_size": vision.get("window_size", 14),
            "vision.preproc_min_tiles": 2,
            "vision.preproc_max_tiles": self.max_tiles,
            "vision.sam.block_count": vision["sam"]["layers"],
            "vision.sam.embedding_length": vision["sam"]["width"],
            "vision.sam.head_count": vision["sam"]["heads"],
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.endswith("view_seperator"):
            array = array.reshape(1, *array.shape)
        yield from super().tensors(name, array, layer)


class UnlimitedOCRConverter(DeepseekOCRConverter):
    classes = ("UnlimitedOCRForCausalLM",)
    max_tiles = 32


class DeepseekOCR2Converter(DeepseekOCRConverter):
    """An encoder of SAM, and a Qwen2 after it."""

    classes = ("DeepseekOCR2ForCausalLM",)
    projector = "deepseekocr2"
    max_tiles = 6

    def read_vision(self) -> Config:
        found = super().read_vision()
        width = self.need(self.need(found, "width"), "qwen2-0-5b")
        sizes = {"layers": 24, "patch_size": 16, "intermediate_size": 4864}
        return {**sizes, "num_attention_heads": 14, **found, "hidden_size": width["dim"]}

    def keys(self) -> None:
        super().keys()
        self.put({"vision.attention.head_count_kv": 2})


class DeepseekV4VisionConverter(MediaConverter):
    classes = ("DeepseekV4ForCausalLM",)
    names = {
        "vision.patch_embed.proj": "v.patch_embd",
        "vision.norm": "v.post_ln",
        **name_blocks("vision.blocks.{}"),
        **pairs("""
            vision.blocks.{}.mlp.w1_up=v.blk.{}.ffn_up
            vision.blocks.{}.mlp.w1_gate=v.blk.{}.ffn_gate vision.blocks.{}.mlp.w2=v.blk.{}.ffn_down
            aligner.w1=mm.1 aligner.w2=mm.2 image_newline=v.image_newline
            image_start=v.token_embd.img_start image_end=v.token_embd.img_end
            image_pad=v.token_embd.img_pad
        """),
    }
    keeps = r"vision\.|aligner\.|image_"

    def read_vision(self) -> Config:
        whole = self.whole

        def get(name: str) -> Any:
            return self.need(whole, f"vision_{name}")

        if not whole.get("vision_n_layers"):
            raise self.refuse(("vision_n_layers",), "at least 1; the checkpoint has no encoder")
        size, ratio = get("patch_size"), get("downsample_ratio")
        return {
            "num_hidden_layers": get("n_layers"),
            "hidden_size": get("dim"),
            "num_attention_heads": get("n_heads"),
            "intermediate_size": get("inter_dim"),
            "patch_size": size,
            "image_size": size * ratio * 16,
        }

    def process(self, name: str) -> Any:
        return self.processor.get(name, [0.5] * 3)

    def keys(self) -> None:
        super().keys()
        whole = self.whole
        self.put({
            "projector_type": "deepseek4v",
            f"vision.{EPSILON}": 1e-6,
            "use_silu": True,
            "vision.projector.scale_factor": self.need(whole, "vision_downsample_ratio"),
            "vision.image_min_pixels": self.need(whole, "vision_min_pixels"),
        })  # fmt: skip
        for name, known in (("vision_max_n_token", 384), ("vision_max_wh_ratio", 8)):
            if whole.get(name) != known:
                raise self.refuse((name,), str(known))

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name == "vision.patch_embed.proj.weight":
            size = self.vision["patch_size"]
            array = array.reshape(array.shape[0], 3, size, size)
        if ".mlp.w1." in name:
            half = array.shape[0] // 2
            for part, one in zip(("gate", "up"), array.split([half, half]), strict=True):
                yield self.rename(name.replace("w1", f"w1_{part}")), one
        else:
            yield from super().tensors(name, array, layer)
