"""Vision encoders of Qwen2-VL to Qwen3.5, and of models with an encoder like theirs, such as
GLM-4V (conversion/qwenvl.py, qwen3vl.py, exaone.py, bailingmoe3.py, qwen4exp.py)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import (
    EPSILON,
    Config,
    MediaConverter,
    Renames,
    Tensors,
    split_frames,
    split_three,
)
from llama_py.checkpoint.media_names import name_blocks
from llama_py.checkpoint.names import pairs

QWEN = {
    **pairs("""
        visual.patch_embed.proj=v.patch_embd visual.pos_embed=v.position_embd
        visual.merger.mlp.{}=mm.{} visual.merger.ln_q=v.post_ln visual.merger.norm=v.post_ln
        visual.merger.linear_fc1=mm.0 visual.merger.linear_fc2=mm.2
    """),
    **{f"visual.deepstack_merger_list.{{}}.{module}": f"v.deepstack.{{}}.{new}"
       for module, new in {"norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2"}.items()},
    **name_blocks("visual.blocks.{}"),
}  # fmt: skip
GLM = {
    **QWEN,
    **pairs("""
        visual.embeddings.position_embedding=v.position_embd visual.post_conv_layernorm=v.norm_embd
        visual.post_layernorm=v.post_ln visual.downsample=mm.patch_merger
        visual.merger.proj=mm.model.fc visual.merger.post_projection_norm=mm.post_norm
        visual.merger.up_proj=mm.up visual.merger.gate_proj=mm.gate visual.merger.down_proj=mm.down
    """),
}
PATCHES = "visual.patch_embed.proj.weight"
DEEPSTACK = re.compile(r"visual\.deepstack_merger_list\.(\d+)\.(.*)")
TOWER = {"depth": 32, "num_heads": 16, "patch_size": 14, "image_size": 560}
FULL_LAYERS = "fullatt_block_indexes"


class QwenVisionConverter(MediaConverter):
    """An encoder with weights for two frames."""

    names = QWEN
    keeps = r"visual\."
    renames: ClassVar[Renames] = ((r"^model\.visual\.", "visual."),)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name == PATCHES:
            yield from split_frames(name, array)
        else:
            yield from super().tensors(name, array, layer)


class Qwen2VLMediaConverter(QwenVisionConverter):
    classes: ClassVar[tuple[str, ...]] = (
        "Qwen2VLModel",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
    )
    vision_defaults = TOWER
    splits = True

    def read_vision(self) -> Config:
        found = super().read_vision()
        if "embed_dim" in found:  # of Qwen2-VL
            found["intermediate_size"] = found.get("hidden_size")
            found["hidden_size"] = found["embed_dim"]
        return found

    def keys(self) -> None:
        super().keys()
        model = self.whole.get("model_type")
        if model == "qwen2_vl":
            self.put({"projector_type": "qwen2vl_merger"})
        elif model in ("qwen2_5_vl", "qwen2_5_omni"):
            name = "qwen2.5o" if model == "qwen2_5_omni" else "qwen2.5vl_merger"
            self.put({
                "projector_type": name,
                "use_silu": True,
                "vision.n_wa_pattern": find_pattern(self.need(self.vision, FULL_LAYERS)),
            })  # fmt: skip
        else:
            raise self.refuse(("model_type",), f"qwen2_vl or qwen2_5_vl, got {str(model)[:50]!r}")
        self.put({f"vision.{EPSILON}": self.whole.get("rms_norm_eps", 1e-6)})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if ".qkv." in name and self.splits:
            for part, one in zip("qkv", split_three(name, array), strict=True):
                yield self.rename(name.replace("qkv", part)), one
        else:
            yield from super().tensors(name, array, layer)


def find_pattern(layers: Sequence[int]) -> int:
    """Return the distance of the layers with attention to all patches. Raises ModelError if it
    is not the same for all."""
    n = layers[0] + 1
    if any(b - a != n for a, b in pairwise(layers)):
        raise ModelError(f"{FULL_LAYERS} must have equal distances, got {layers}"[:200])
    return n


class SarashinaConverter(Qwen2VLMediaConverter):
    classes = ("Sarashina2VisionForCausalLM",)

    def read_vision(self) -> Config:
        self.whole["model_type"] = "qwen2_vl"
        return super().read_vision()


class Exaone45MediaConverter(Qwen2VLMediaConverter):
    classes = ("Exaone4_5_ForConditionalGeneration",)
    splits = False

    def keys(self) -> None:
        MediaConverter.keys(self)
        vision = self.vision
        self.put({
            "projector_type": "exaone4_5",
            "use_silu": True,
            "vision.image_min_pixels": self.process("min_pixels"),
            "vision.image_max_pixels": self.process("max_pixels"),
        })  # fmt: skip
        self.put_found("vision.attention.head_count_kv", "num_key_value_heads")
        eps = vision.get("rms_norm_eps", self.whole.get("rms_norm_eps", 1e-6))
        self.put({f"vision.{EPSILON}": eps})
        self.put_found("vision.window_size", "window_size")
        if layers := vision.get(FULL_LAYERS):
            self.put({"vision.n_wa_pattern": find_pattern(layers)})

    def put_found(self, key: str, name: str) -> None:
        """Set a key if the encoder's configuration has its value."""
        if name in self.vision:
            self.put({key: self.vision[name]})


class Qwen3VLMediaConverter(QwenVisionConverter):
    classes: ClassVar[tuple[str, ...]] = (
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "Qwen4ExpForConditionalGeneration",
    )
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "depth": 27, "num_heads": 16, "hidden_size": 1152, "intermediate_size": 4304,
        "patch_size": 16, "spatial_merge_size": 2, "num_position_embeddings": 2304,
    }  # fmt: skip

    def read_vision(self) -> Config:
        found = super().read_vision()
        side = int(found["num_position_embeddings"] ** 0.5 * found["patch_size"])
        found.setdefault("image_size", side)
        return found

    def keys(self) -> None:
        super().keys()
        self.qwen3_keys()

    def qwen3_keys(self) -> None:
        """Set the keys of Qwen3-VL's encoder."""
        if "audio" not in self.encoders:
            self.put({"projector_type": "qwen3vl_merger"})
        self.merge_keys()
        layers = [False] * int(self.need(self.vision, "depth"))
        for i in self.vision.get("deepstack_visual_indexes", []):
            layers[i] = True
        self.put({"vision.is_deepstack_layers": layers})

    def merge_keys(self) -> None:
        """Set the size of merged patches, and the epsilon of the text model."""
        self.put({"use_gelu": True})
        if (size := self.vision.get("spatial_merge_size")) is not None:
            self.put({"vision.spatial_merge_size": int(size)})
        text = self.whole.get("text_config")
        text = text if isinstance(text, dict) else {}
        self.put({f"vision.{EPSILON}": text.get("rms_norm_eps", 1e-6)})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if match := DEEPSTACK.fullmatch(name):
            at = self.vision.get("deepstack_visual_indexes", [])[int(match[1])]
            name = f"visual.deepstack_merger_list.{at}.{match[2]}"
        yield from super().tensors(name, array, layer)


class LingConverter(Qwen3VLMediaConverter):
    """The encoder of Ling 3 VL, with a separate projector."""

    classes = ("BailingMoeV3VLForConditionalGeneration",)
    names = {**QWEN, "linear_proj.{}": "mm.{}", "visual.merger.norm": "mm.input_norm"}
    keeps = r"visual\.|linear_proj"

    def keys(self) -> None:
        if self.vision.get("disable_merger_proj") is not True:
            raise self.refuse(("disable_merger_proj",), "true")
        self.need(self.vision, "out_hidden_size")
        MediaConverter.keys(self)
        self.put({"projector_type": "ling3vl"})
        self.merge_keys()


class Glm4VConverter(QwenVisionConverter):
    classes: ClassVar[tuple[str, ...]] = (
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "GlmOcrForConditionalGeneration",
    )
    names = GLM
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "depth": 24, "image_size": 336, "patch_size": 14, "hidden_act": "silu",
    }  # fmt: skip
    projector = "glm4v"

    def keys(self) -> None:
        super().keys()
        self.put({"projector_type": self.projector})
        self.put_activation(self.vision.get("hidden_act"))
        self.put({f"vision.{EPSILON}": self.vision.get("rms_norm_eps", 1e-5)})


class Glm5VConverter(Glm4VConverter):
    classes = ("Glm5NextForConditionalGeneration",)
    projector = "glm5v"
    vision_defaults = {**Glm4VConverter.vision_defaults, "swiglu_limit": 10.0}

    def keys(self) -> None:
        super().keys()
        self.put({"vision.spatial_merge_size": int(self.vision.get("spatial_merge_size", 2))})
        if (limit := self.vision.get("swiglu_limit")) is not None:
            self.put({"vision.swiglu_clamp": float(limit)})
        side = int(self.processor.get("patch_size", 14)) * int(self.processor.get("merge_size", 2))
        for part in ("min", "max"):
            if (n := self.processor.get(f"{part}_image_tokens")) is not None:
                self.put({f"vision.image_{part}_pixels": int(n) * math.prod((side, side))})
