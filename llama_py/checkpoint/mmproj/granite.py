"""Vision encoder of Granite 4 Vision, with a Q-Former for each layer of the text model that takes
image features (conversion/granite.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.media import EPSILON, Config, MediaConverter, Tensors
from llama_py.checkpoint.media_names import name_q_former, name_tower

PROJECTORS = re.compile(r"model\.(layerwise|spatial)_projectors\.(\d+)\.(.*)")
FORMER_LAYER = re.compile(r"qformer\.encoder\.layer\.\d+\.")


class FeatureProjector(NamedTuple):
    """A projector: its layer of the text model, of the vision encoder, its kind and number."""

    text_layer: int
    vision_layer: int
    kind: str
    number: int


class GraniteVisionConverter(MediaConverter):
    classes = ("Granite4VisionForConditionalGeneration",)
    names = {
        **name_tower("model.vision_tower.vision_model"),
        "model.image_newline": "v.image_newline",
        "projectors.{}.image_positions": "v.proj_blk.{}.img_pos",
        "projectors.{}.query": "v.proj_blk.{}.query",
        "projectors.{}.out_linear": "v.proj_blk.{}.linear",
        "projectors.{}.norm": "v.proj_blk.{}.norm",
        "projectors.{}.qformer.layernorm": "v.proj_blk.{}.post_norm",
        **name_q_former("projectors.{}.former", "v.proj_blk.{}"),
    }
    # transformers 5 stores no `vision_model`.
    renames = ((r"^model\.vision_tower\.(?!vision_model\.)", "model.vision_tower.vision_model."),)
    drops = r"vision_model\.head|^lm_head"
    vision_defaults: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "image_size": 224, "patch_size": 16,
    }  # fmt: skip

    @cached_property
    def projectors(self) -> list[FeatureProjector]:
        """The projectors in the order of their layers in the text model."""
        text: Config = self.section("text_config")
        n_text = self.need(text, "num_hidden_layers")
        n_vision = self.need(self.vision, "num_hidden_layers")
        layers = self.whole.get("deepstack_layer_map") or []
        found = [
            FeatureProjector(from_end(t, n_text), from_end(v, n_vision), "layerwise", i)
            for i, (v, t) in enumerate(sorted(map(tuple, layers)))
        ]
        last = from_end(self.whole.get("spatial_vision_layer", -1), n_vision)
        targets = self.whole.get("spatial_target_layers") or []
        found += [FeatureProjector(t, last, "spatial", i) for i, t in enumerate(targets)]
        return sorted(found, key=lambda one: one.text_layer)

    def keys(self) -> None:
        super().keys()
        rate = str(self.need(self.whole, "downsample_rate")).split("/")
        if len(rate) != 2:
            raise self.refuse(("downsample_rate",), "two numbers with / between")
        self.put({
            "projector_type": "granite4_vision",
            f"vision.{EPSILON}": self.vision.get("layer_norm_eps", 1e-6),
            "use_gelu": True,
            "vision.preproc_image_size": self.vision["image_size"],
            "vision.projector.query_side": int(rate[0]),
            "vision.projector.window_side": int(rate[1]),
            "vision.feature_layer": [one.vision_layer for one in self.projectors],
            "vision.projector.spatial_offsets": [
                one.number if one.kind == "spatial" else -1 for one in self.projectors
            ],
        })  # fmt: skip
        if sizes := self.whole.get("image_grid_pinpoints"):
            flat = [side for height, width in sizes for side in (width, height)]
            self.put({"vision.image_grid_pinpoints": flat})

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> Tensors:
        if match := PROJECTORS.fullmatch(name):
            kind, number, rest = match[1], int(match[2]), FORMER_LAYER.sub("former.", match[3])
            places = [(one.kind, one.number) for one in self.projectors]
            at = places.index((kind, number)) if (kind, number) in places else number
            name = f"projectors.{at}.{rest}"
        yield from super().tensors(name, array, layer)


def from_end(i: int, n: int) -> int:
    """Return the index of a layer; negative ones are counted from the end."""
    return i + n if i < 0 else i
