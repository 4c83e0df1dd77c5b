"""Parts that models with experts, or with layers that draft tokens, share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.merge import ExpertMerger, split_experts, split_gate_up

IN_LAYER = re.compile(r"(?:\w+\.)?layers\.(\d+)\.")
SHARED = ("token_embd", "output_norm", "output")  # tensors that a file of drafting layers needs
PARTS = ("down_proj", "gate_proj", "up_proj")
N_EXPERTS = (
    "moe_num_primary_experts", "num_local_experts", "num_experts", "n_routed_experts",
    "moe_num_experts",
)  # fmt: skip


class ExpertsConverter(Converter):
    """A model with experts: a tensor per expert and matrix, or a tensor per layer and matrix.

    parts  names of an expert's matrices, in the order of the file
    """

    parts: ClassVar[tuple[str, ...]] = PARTS

    @cached_property
    def experts(self) -> ExpertMerger:
        return ExpertMerger(self.find(*N_EXPERTS) or 0, self.parts)

    @cached_property
    def mergers(self) -> list[ExpertMerger]:
        """The experts, and other lists of modules that the file stores as one tensor."""
        return [self.experts]

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        stored = name.removesuffix(".weight")
        if stored.endswith("mlp.experts.down_proj"):
            yield from super().tensors(f"{stored}.weight", array, layer)
        elif stored.endswith("mlp.experts.gate_up_proj"):
            for new_name, new in split_gate_up(name, array):
                yield from super().tensors(new_name, new, layer)
        else:
            found = (merger.merge(name, array) for merger in self.mergers)
            merged = (one for one in found if one is not None)
            for new_name, new in next(merged, iter([(name, array)])):
                yield from super().tensors(new_name, new, layer)

    def check_complete(self) -> None:
        super().check_complete()
        for merger in self.mergers:
            merger.check_complete(self.folder.path)

    def restore(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        for stored, one in super().restore(name, array, layer):
            yield from split_experts(stored, one)


class NextnConverter(Converter):
    """A model with layers that draft tokens: model.layers.N after the others, counted in
    config.json. Without them if has_nextn is False, or by --no-nextn; --mtp converts only them."""

    has_nextn = True

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.n_trunk = self.n_layer
        if self.has_nextn and options.nextn:
            self.n_layer += self.n_drafts()
        if options.draft and self.n_layer == self.n_trunk:
            raise ModelError(
                f"{folder.path}: the checkpoint has no layers that draft tokens; convert without "
                "--mtp and --dspark"
            )

    def n_drafts(self) -> int:
        """Return the number of layers that draft tokens."""
        return self.find("num_nextn_predict_layers") or 0

    def place(self, name: str) -> str:
        """Return a tensor's name as one of a layer after the others, if a drafting layer has it."""
        return name

    def select(self, name: str) -> str | None:
        selected = super().select(name)
        if selected is None:
            return None
        selected = self.place(selected)
        match = IN_LAYER.match(selected)
        is_shared = self.names.get(selected.rpartition(".")[0]) in SHARED
        if self.options.draft and not (int(match[1]) >= self.n_trunk if match else is_shared):
            return None
        return selected if match is None or int(match[1]) < self.n_layer else None

    def draft_key(self) -> None:
        """Set the number of layers that draft tokens if the file has any."""
        if self.n_layer > self.n_trunk:
            self.out.u32("nextn_predict_layers", self.n_layer - self.n_trunk)

    def nextn_key(self) -> None:
        """Set the number of drafting layers if config.json has it."""
        count = self.find("num_nextn_predict_layers")
        if self.options.nextn and count is not None:
            self.out.u32("nextn_predict_layers", count)


def count_dense(types: Sequence[Any]) -> int:
    """Return the number of dense layers before the first of another kind."""
    return next((i for i, kind in enumerate(types) if kind != "dense"), len(types))


def per_layer(c: Converter, name: str, n: int | None = None) -> list[Any]:
    """Return a list of config.json with a value per layer, for the first n layers or for all.

    Raises ModelError for another value.
    """
    found, n = c.find(name), c.n_layer if n is None else n
    if not isinstance(found, list) or len(found) < n:
        raise ModelError(
            f"{c.folder.path / 'config.json'}: {name} must be a list of {n} values, one per layer"
        )
    return found[:n]
