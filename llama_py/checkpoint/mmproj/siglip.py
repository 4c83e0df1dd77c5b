"""Vision encoders with the names of CLIP and SigLIP: Gemma 3, SmolVLM, LFM2-VL, PaddleOCR, Phi-4,
MiniCPM-V 4.6 and Youtu-VL."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Renames, Tensors, to_pixels
from llama_py.checkpoint.media_names import name_tower

log = logging.getLogger("llama_py")

EMBEDDINGS = r"^v\.(patch|position|class)_embd\b"
SIGLIP = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "image_size": 224, "patch_size": 16,
}  # fmt: skip


class Gemma3VisionConverter(MediaConverter):
    classes: ClassVar[tuple[str, ...]] = ("Gemma3ForConditionalGeneration",)
    names = {
        **name_tower("vision_tower.vision_model"),
        "multi_modal_projector.mm_input_projection": "mm.input_projection",
        "multi_modal_projector.mm_soft_emb_norm": "mm.soft_emb_norm",
    }
    # transformers 5 stores no `vision_model`.
    renames: ClassVar[Renames] = (
        (r"_weight", ".weight"),
        (r"^vision_tower\.(?!vision_model\.)", "vision_tower.vision_model."),
    )
    keeps = r"multi_modal_projector\.|vision_tower\."
    drops = r"vision_model\.head\."
    vision_defaults = SIGLIP
    in_f16 = r"mm\.input_projection"
    in_f32 = EMBEDDINGS

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "gemma3",
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
            "use_gelu": True,
        })  # fmt: skip
        self.scale_key()

    def scale_key(self) -> None:
        """Set the side of merged patches unless it is 4, as in models of the usual size."""
        side = int(self.processor.get("image_seq_length", 256) ** 0.5)
        vision = self.vision
        scale = (self.need(vision, "image_size") // self.need(vision, "patch_size")) // side
        if scale > 0 and scale != 4:
            self.put({"vision.projector.scale_factor": scale})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if "soft_emb_norm.weight" in name:
            array = array.map(lambda x: x + 1)
        yield from super().tensors(name, array, layer)


class SmolVLMConverter(MediaConverter):
    classes = ("Idefics3ForConditionalGeneration", "SmolVLMForConditionalGeneration")
    names = {
        **name_tower("model.vision_model"),
        **name_tower("vision_tower.vision_model"),
        "model.connector.modality_projection.proj": "mm.model.fc",
    }
    keeps = r".*(vision_tower|vision_model|model\.connector)"
    vision_defaults = {**SIGLIP, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32}
    in_f32 = EMBEDDINGS

    def keys(self) -> None:
        super().keys()
        size = self.processor.get("size") or {}
        self.put({
            "projector_type": "idefics3",
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
            "vision.projector.scale_factor": self.whole.get("scale_factor", 2),
            "use_gelu": True,
            "vision.preproc_image_size": size.get("longest_edge", self.vision["image_size"]),
        })  # fmt: skip


class Lfm2VLConverter(MediaConverter):
    classes = ("Lfm2VlForConditionalGeneration",)
    names = {
        **name_tower("vision_tower.vision_model"),
        "multi_modal_projector.layer_norm": "mm.input_norm",
        "multi_modal_projector.linear_1": "mm.1",
        "multi_modal_projector.linear_2": "mm.2",
    }
    renames = (
        (r"model\.(vision_tower|multi_modal_projector)\.", r"\1."),
        (r"^vision_tower\.(?!vision_model\.)", "vision_tower.vision_model."),
    )
    vision_defaults: ClassVar[Mapping[str, Any]] = {**SIGLIP, "layer_norm_eps": 1e-6}

    def read_vision(self) -> Config:
        return {**super().read_vision(), "image_size": 256}

    def keys(self) -> None:
        super().keys()
        n_dropped = -(self.whole.get("vision_feature_layer", -1) + 1)
        self.put({
            "projector_type": "lfm2",
            f"vision.{EPSILON}": self.vision["layer_norm_eps"],
            "vision.projector.scale_factor": self.whole.get("downsample_factor", 2),
            "use_gelu": True,
            "vision.block_count": self.need(self.vision, "num_hidden_layers") - n_dropped,
        })  # fmt: skip

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if "patch_embedding.weight" in name:
            array = to_pixels(array, 16)
        yield from super().tensors(name, array, layer)


class PaddleOCRConverter(MediaConverter):
    classes = ("PaddleOCRVisionModel",)
    names = {
        **name_tower("model.vision_model"),
        "mlp_AR.pre_norm": "mm.input_norm",
        "mlp_AR.linear_1": "mm.1",
        "mlp_AR.linear_2": "mm.2",
    }
    renames = ((r"visual\.", "model."),)
    keeps = r".*(vision_model|mlp_AR)"
    drops = r"packing_position_embedding|vision_model\.head"
    vision_defaults = {
        **SIGLIP, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
        "num_attention_heads": 16, "patch_size": 14,
    }  # fmt: skip

    def read_vision(self) -> Config:
        return {**super().read_vision(), "image_size": int(math.sqrt(self.process("max_pixels")))}

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "paddleocr",
            "vision.image_max_pixels": self.process("max_pixels"),
            "vision.image_min_pixels": self.process("min_pixels"),
            "use_gelu": True,
            f"vision.{EPSILON}": self.vision.get("rms_norm_eps", 1e-6),
        })  # fmt: skip


class Phi4VisionConverter(MediaConverter):
    """The encoder without its last layer. Phi-4 does not use the results of that layer."""

    classes = ("Phi4ForCausalLMV",)
    names = {**name_tower("vision_tower.vision_model"), "mm_projector.{}": "mm.{}"}
    renames = (
        (r"model\.vision_tower\.vision_tower\.", "vision_tower."),
        (r"^model\.mm_projector\.", "mm_projector."),
    )
    keeps = r"vision_tower\.|mm_projector\.[02]\."
    drops = r"\.vision_model\.(head|post_layernorm)\."

    def read_vision(self) -> Config:
        found = super().read_vision()
        name = next((n for n in ("num_layers", "depth") if n in found), "num_hidden_layers")
        self.need(found, name)
        found[name] -= 1
        self.n_layer = found[name]
        if self.n_layer < 1:
            raise self.refuse((name,), f"at least 2, got {found[name] + 1}")
        found["patch_size"] = size = int(self.process("patch_size"))
        end = "vision_model.embeddings.position_embedding.weight"
        table = next((t for n, t in self.folder.tensors.items() if n.endswith(end)), None)
        side = 0 if table is None else math.isqrt(table.shape[0])
        if table is None or side * side != table.shape[0]:
            shape = "no such tensor" if table is None else list(table.shape)
            raise ModelError(
                f"{self.folder.path}: {end} must have a square number of rows, got {shape}"
            )
        return {**found, "image_size": side * size}

    def keys(self) -> None:
        super().keys()
        self.put({"projector_type": "phi4"})
        for part in ("min", "max"):
            n = self.need({**self.whole, **self.processor}, f"{part}_num_patches")
            self.put({f"vision.image_{part}_pixels": int(n) * self.vision["patch_size"] ** 2})
        self.put({"use_gelu": True, f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6)})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.startswith("vision_tower.") and layer == self.n_layer:
            return
        if name.endswith("embeddings.patch_embedding.weight"):
            array = to_pixels(array, self.vision["patch_size"])
        yield from super().tensors(name, array, layer)


class MiniCPMVConverter(MediaConverter):
    classes = ("MiniCPMV4_6ForConditionalGeneration",)
    names = {
        **name_tower("model.vision_tower"),
        **{f"model.vision_tower.vit_merger.{module}": f"v.vit_merger.{tensor}"
           for module, tensor in {
               "layer_norm1": "ln1", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
               "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out",
               "pre_norm": "ds_ln", "linear_1": "ds_ffn_up", "linear_2": "ds_ffn_down"}.items()},
        "model.merger.mlp.{}.pre_norm": "mm.input_norm",
        "model.merger.mlp.{}.linear_1": "mm.up",
        "model.merger.mlp.{}.linear_2": "mm.down",
    }  # fmt: skip
    drops = r"^(lm_head\.|mtp)"
    vision_defaults = SIGLIP

    def read_vision(self) -> Config:
        found = super().read_vision()
        self.mode = self.processor.get("downsample_mode", "16x")
        if self.mode not in ("4x", "16x"):
            raise self.refuse(("downsample_mode",), f"4x or 16x, got {str(self.mode)[:50]!r}")
        if (size := self.processor.get("scale_resolution")) is not None:
            found["image_size"] = int(size)
        return found

    def select(self, name: str) -> str | None:
        return None if self.mode == "4x" and ".vit_merger." in name else super().select(name)

    def keys(self) -> None:
        super().keys()
        layer: Any = self.whole.get("insert_layer_id", self.vision.get("insert_layer_id", 6))
        self.put({
            "projector_type": "minicpmv4_6",
            "vision.projector.scale_factor": 2 if self.mode == "4x" else 4,
            "vision.wa_layer_indexes": [int(layer)],
            "use_gelu": True,
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
        })  # fmt: skip


class YoutuVLConverter(MediaConverter):
    classes = ("YoutuVLForConditionalGeneration",)
    names = {
        **name_tower("siglip2.vision_model"),
        "merger.ln_q": "mm.input_norm",
        "merger.mlp.{}": "mm.{}",
    }
    drops = r"^(lm_head|model\.(layers|embed_tokens|norm))\.|\.position_embedding\."
    vision_defaults = {"image_size": 560}

    def keys(self) -> None:
        super().keys()
        vision = self.vision
        self.put({
            "projector_type": "youtuvl",
            f"vision.{EPSILON}": vision.get("layer_norm_eps", 1e-6),
        })  # fmt: skip
        name = str(vision.get("hidden_act", "gelu")).lower()
        self.put_activation("gelu" if name.startswith("gelu") else name, others=False)
        self.put({"vision.spatial_merge_size": vision.get("spatial_merge_size", 2)})
        if (size := vision.get("window_size")) is not None:
            self.put({"vision.window_size": size})
        layers = self.need(vision, "fullatt_block_indexes")
        self.put({"vision.wa_layer_indexes": layers})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        try:
            new_name = self.rename(name)
        except ModelError:
            log.warning("%s is not converted, because no known encoder uses it", name)
            return
        yield new_name, array
