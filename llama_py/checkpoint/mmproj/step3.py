"""Vision encoder of Step3-VL and Step 3.7 (conversion/step3.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from llama_py.checkpoint.media import EPSILON, Config, MediaConverter
from llama_py.checkpoint.media_names import name_blocks
from llama_py.checkpoint.mmproj.pixtral import MEAN, STD

KNOWN = {"image_size": 728, "hidden_size": 1536, "num_hidden_layers": 47}  # of the known models
STRIDE = 2
LARGEST = 3024  # side of an image in pixels, before it is cut


class Step3VLMediaConverter(MediaConverter):
    classes = ("StepVLForConditionalGeneration", "Step3p7ForConditionalGeneration")
    names = {
        "vision_model.conv1": "v.patch_embd",
        "vision_model.positional_embedding": "v.position_embd",
        "vision_model.ln_pre": "v.pre_ln",
        **name_blocks("vision_model.transformer.resblocks.{}"),
        "vision_model.vit_downsampler1": "mm.0",
        "vision_model.vit_downsampler2": "mm.1",
        "vit_large_projector": "mm.model.fc",
    }
    renames = (
        (r"^(vision_model\.positional_embedding)$", r"\1.weight"),
        (r"(\.ls_[12])\.gamma$", r"\1.weight"),
        (r"(attn\.in_proj)_(weight|bias)$", r"\1.\2"),
    )
    keeps = r"vision_model\.|vit_large_projector\.weight$"
    vision_defaults: ClassVar[Mapping[str, Any]] = {"mlp_ratio": 8960 / 1536}
    in_f32 = r"v\.position_embd\."
    not_bf16 = rf"{MediaConverter.not_bf16}|mm\.[01]\.weight"

    def read_vision(self) -> Config:
        found = super().read_vision()
        for new, old in (("hidden_size", "width"), ("num_hidden_layers", "layers")):
            if old in found:
                found.setdefault(new, found[old])
        if not found.get("intermediate_size"):
            width = self.need(found, "hidden_size")
            found["intermediate_size"] = round(width * found["mlp_ratio"])
        return found

    def process(self, name: str) -> Any:
        usual = {"image_mean": list(MEAN), "image_std": list(STD)}
        return self.processor.get(name, usual.get(name))

    def keys(self) -> None:
        super().keys()
        found = {name: self.vision.get(name) for name in KNOWN}
        stride = self.whole.get("understand_projector_stride")
        if found != KNOWN or stride != STRIDE:
            raise self.refuse(
                (*KNOWN, "understand_projector_stride"),
                f"{KNOWN}, {STRIDE} (Step3-VL), got {found}, {stride}"[:300],
            )
        self.put({
            "projector_type": "step3vl",
            f"vision.{EPSILON}": float(self.vision.get("layer_norm_eps", 1e-5)),
            "vision.projector.scale_factor": STRIDE**2,
            "vision.preproc_image_size": LARGEST,
        })  # fmt: skip
