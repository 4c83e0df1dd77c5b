"""Draft models: their files have the tokens of the target model."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter, ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder

TOKEN_IDS = "d2t"  # target's id of each token of the draft model


class TargetConverter(Converter):
    """A draft model, and its target model.

    target_is_needed   the keys have values of the target
    token_ids          `d2t`, or None if the draft model has all tokens
    """

    target_is_needed: ClassVar[bool] = False

    def __init__(self, folder: CheckpointFolder, options: ConvertOptions) -> None:
        super().__init__(folder, options)
        self.token_ids: LazyArray | None = None
        if self.target_is_needed:
            _ = self.target

    @cached_property
    def target(self) -> CheckpointFolder:
        """Folder of the target model. Raises ModelError if the options lack it."""
        if self.options.target is None:
            raise ModelError(
                f"{self.folder.path}: a draft model needs the tokenizer of its target "
                "model; give its folder: --target-model-dir FOLDER"
            )
        return CheckpointFolder(self.options.target)

    @property
    def target_config(self) -> dict[str, Any]:
        return self.target.config

    def target_ids(self, array: LazyArray, n_vocab: int) -> LazyArray:
        """Return the ids of `d2t`, [n], which stores differences from 0, 1, 2, ...

        Raises ModelError unless they are different ids below n_vocab.
        """
        ids = array.integers().reshape(-1)
        ids = ids + np.arange(ids.size)
        if ((ids < 0) | (ids >= n_vocab)).any() or np.unique(ids).size != ids.size:
            raise ModelError(f"{TOKEN_IDS} must give different ids below {n_vocab}")
        return LazyArray(ids.shape, np.int64, lambda: ids)

    def integers(self) -> NamedArrays:
        if self.token_ids is not None:
            yield TOKEN_IDS, self.token_ids
