"""Vision encoders of Pixtral, Mistral 3 and LightOnOCR, also in Mistral's format
(conversion/llava.py, pixtral.py, lighton_ocr.py)."""

from __future__ import annotations

from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors
from llama_py.checkpoint.media_names import name_blocks
from llama_py.checkpoint.rotary import permute

BREAK = "[IMG_BREAK]"  # token at the end of a row of patches
BREAK_TENSOR = "v.token_embd.img_break"
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
ROTATED = ("q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias")
NAMES = {
    **{
        new: tensor
        for tower in ("vision_tower", "vision_encoder")
        for new, tensor in {
            f"{tower}.patch_conv": "v.patch_embd",
            f"{tower}.ln_pre": "v.pre_ln",
            **name_blocks(f"{tower}.transformer.layers.{{}}"),
        }.items()
    },
    "multi_modal_projector.linear_1": "mm.1",
    "multi_modal_projector.linear_2": "mm.2",
    "multi_modal_projector.norm": "mm.input_norm",
    "multi_modal_projector.patch_merger.merging_layer": "mm.patch_merger",
    "vision_language_adapter.w_in": "mm.1",
    "vision_language_adapter.w_out": "mm.2",
    "patch_merger.merging_layer": "mm.patch_merger",
    "pre_mm_projector_norm": "mm.input_norm",
}
PARTS = (
    "multi_modal_projector.", "vision_tower.", "vision_encoder.", "vision_language_adapter.",
    "patch_merger.", "pre_mm_projector_norm",
)  # fmt: skip


class PixtralConverter(MediaConverter):
    classes: ClassVar[tuple[str, ...]] = (
        "LlavaForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
    )
    names = NAMES
    vision_defaults: ClassVar[Config] = {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "image_size": 1024, "patch_size": 16, "hidden_act": "gelu",
    }  # fmt: skip
    projector = "pixtral"
    has_breaks = True
    embedding = "embed_tokens.weight"

    def select(self, name: str) -> str | None:
        # The text model's embeddings have the row of the token.
        return name if self.embedding in name else super().select(name)

    def read_vision(self) -> Config:
        found = super().read_vision()
        if (model := found.get("model_type")) != "pixtral":
            raise self.refuse(("vision_config.model_type",), f"pixtral, got {str(model)[:50]!r}")
        return found

    def keys(self) -> None:
        super().keys()
        self.put({
            "projector_type": "pixtral",
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-5),
        })  # fmt: skip
        self.put_activation(self.vision.get("hidden_act"), others=False)
        if (size := self.whole.get("spatial_merge_size", self.merge_size())) is not None:
            self.put({"vision.spatial_merge_size": size})
        self.put({"projector_type": self.projector})

    def merge_size(self) -> int | None:
        """Return the size of merged patches that transformers knows."""
        return None if self.whole.get("model_type") == "llava" else 2

    def break_id(self) -> int:
        """Return the id of the token [IMG_BREAK]; 0: without one."""
        if not self.has_breaks:
            return 0
        tokens = self.folder.json("tokenizer_config.json").get("added_tokens_decoder") or {}
        listed: Any = self.folder.json("tokenizer.json").get("added_tokens") or []
        found = [*tokens.items(), *((token["id"], token) for token in listed)]
        return self.find_token(found)

    def find_token(self, found: list[tuple[Any, Any]]) -> int:
        """Return the id of the token. Raises ModelError without one."""
        id = next((i for i, token in found if token.get("content") == BREAK), None)
        if id is None:
            raise ModelError(f"{self.folder.path}: the tokenizer has no token {BREAK}")
        return int(id)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if name.startswith(PARTS):
            if name.endswith(ROTATED):
                array = permute(array, int(self.need(self.vision, "num_attention_heads")))
            yield from super().tensors(name, array, layer)
        elif self.embedding in name and (id := self.break_id()) > 0:
            yield BREAK_TENSOR, array.rows(id, id + 1).reshape(-1)


class LightOnConverter(PixtralConverter):
    classes = ("LightOnOCRForConditionalGeneration",)
    renames = (
        (r"^model\.vision_encoder\.", "vision_tower."),
        (r"^model\.vision_projection\.", "multi_modal_projector."),
    )
    projector = "lightonocr"
    has_breaks = False


class MistralVisionConverter(PixtralConverter):
    """The encoder of a folder with params.json."""

    classes = ("params.json",)
    embedding = "tok_embeddings.weight"

    def read_vision(self) -> Config:
        return self.section("vision_encoder")

    @property
    def n_embd_text(self) -> int:
        return int(self.need(self.whole, "dim"))

    def process(self, name: str) -> Any:
        return {"image_mean": MEAN, "image_std": STD}[name]

    def keys(self) -> None:
        MediaConverter.keys(self)
        self.put({
            "projector_type": "pixtral",
            f"vision.{EPSILON}": self.need(self.whole, "norm_eps"),
            "rope.freq_base": self.need(self.vision, "rope_theta"),
            "use_silu": True,
        })  # fmt: skip
        if self.vision.get("mm_projector_id") == "patch_merge":
            size = self.need(self.vision, "spatial_merge_size")
            self.put({"vision.spatial_merge_size": size})

    def break_id(self) -> int:
        if (id := int(self.need(self.vision, "image_break_token_id"))) >= 0:
            return id
        special: Any = self.folder.json("tekken.json").get("special_tokens") or []
        listed: Any = self.folder.json("tokenizer.json").get("added_tokens") or []
        return self.find_token(
            [(t["rank"], {"content": t.get("token_str")}) for t in special]
            + [(t["id"], t) for t in listed]
        )
