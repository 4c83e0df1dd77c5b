"""Base class of draft methods, and their lookup by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import ClassVar

from ggml_py._moved import Former
from llama_py.batch import F32, I32
from llama_py.context import Context
from llama_py.loading.model import LoadedModel
from llama_py.params.speculative import SpeculativeParams
from llama_py.support.resource import Resource


@dataclass(frozen=True, slots=True)
class DrafterSetting:
    """Arguments of drafters: the context they draft for, the options, and the loaded
    `model_draft`."""

    ctx: Context
    params: SpeculativeParams
    model_draft: LoadedModel | None = None


@dataclass(frozen=True, slots=True)
class ComputedTokens:
    """Tokens of a sequence that the model has just computed; some may be rejected later.

    pos    position of the first
    h      F32 [n_tokens, n_embd] input state of NextN layers, if the context outputs it
    layer_inp  inputs of layers, by layer, in the same shape
    """

    seq_id: int
    pos: int
    tokens: Sequence[int]
    h: F32 | None
    layer_inp: Mapping[int, F32] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Request for a draft of the tokens after a text.

    ids    I32 [n] its known tokens; the last was just chosen, so that the
           model has not computed it yet
    pos    position of the last
    n_max  maximum number of useful tokens
    """

    seq_id: int
    ids: I32
    pos: int
    n_max: int


class Drafter(Resource):
    """Drafter of a model's next tokens (common_speculative_impl).

    uses_draft_model   True if it uses `model_draft`
    loads_nextn        True if it runs the NextN layers of a model
    """

    uses_draft_model: ClassVar[bool] = False
    loads_nextn: ClassVar[bool] = False

    def __init__(self, setting: DrafterSetting) -> None:
        """Store the setting; ContextError or ModelError if it cannot draft for this model."""
        self.setting = setting

    @classmethod
    def create(cls, setting: DrafterSetting) -> Drafter:
        """Return a drafter of this class, or its equivalent for the model's type."""
        return cls(setting)

    @classmethod
    @abstractmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        """Return the maximum number of tokens of its drafts."""

    @property
    def contexts(self) -> Sequence[Context]:
        """Draft contexts of the drafter."""
        return ()

    def begin(self, seq_id: int, ids: I32) -> None:
        """Note that a sequence continues with a prompt; `ids`: all its tokens before it."""

    def shift(self, seq_id: int, pos: int, n: int, end: int) -> None:
        """Note that n of a sequence's `end` tokens were removed at `pos`; later tokens moved
        down."""

    def observe(self, seen: Sequence[ComputedTokens]) -> None:
        """Read the tokens that the model has computed, drafts included; positions may repeat."""

    @abstractmethod
    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        """Return drafts by sequence; omit sequences without a draft."""

    def accept(self, seq_id: int, n_accepted: int, mine: bool) -> None:
        """Note that `n_accepted` draft tokens were accepted; `mine`: of this drafter."""

    def close(self) -> None:
        """Release memory of the draft."""

    made = Former("create")


def drafter(name: str) -> type[Drafter]:
    """Return the drafter class in the file of this name."""
    module = import_module(f"llama_py.decoding.drafting.drafters.{name.replace('-', '_')}")
    for value in vars(module).values():
        is_one = isinstance(value, type) and issubclass(value, Drafter)
        if is_one and value.__module__ == module.__name__:
            found: type[Drafter] = value
            return found
    raise TypeError(f"{module.__name__} defines no Drafter")
