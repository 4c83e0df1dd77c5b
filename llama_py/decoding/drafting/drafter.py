"""What a way to draft is, and how it is found by its name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import ClassVar

from llama_py.batch import F32, I32
from llama_py.context import Context
from llama_py.loading.model import Loaded
from llama_py.params.speculative import SpeculativeParams
from llama_py.support.closing import Closing


@dataclass(frozen=True, slots=True)
class DrafterSetting:
    """What drafters are made with: the context they draft for, the options, and the model of
    `model_draft` if there is one."""

    ctx: Context
    params: SpeculativeParams
    model_draft: Loaded | None = None


@dataclass(frozen=True, slots=True)
class ComputedTokens:
    """Tokens of a sequence that the model has just computed; some may be refused later.

    pos    position of the first
    h      F32 [n_tokens, n_embd] what seeds NextN layers, if the context gives it
    layer_inp  likewise what layers get, by layer
    """

    seq_id: int
    pos: int
    tokens: Sequence[int]
    h: F32 | None
    layer_inp: Mapping[int, F32] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A draft is wanted of what follows a text.

    ids    I32 [n] its tokens as far as they are known; the last was just chosen, so that the
           model has not computed it yet
    pos    position of the last
    n_max  tokens of use
    """

    seq_id: int
    ids: I32
    pos: int
    n_max: int


class Drafter(Closing):
    """Guesses what a model will say next (common_speculative_impl).

    uses_draft_model   whether `model_draft` is for it
    loads_nextn        whether it runs the NextN layers of a model
    """

    uses_draft_model: ClassVar[bool] = False
    loads_nextn: ClassVar[bool] = False

    def __init__(self, setting: DrafterSetting) -> None:
        """Raises ContextError or ModelError where it cannot draft for the context's model."""
        self.setting = setting

    @classmethod
    def made(cls, setting: DrafterSetting) -> Drafter:
        """One of this class, or what does the same for a model of another kind."""
        return cls(setting)

    @classmethod
    @abstractmethod
    def n_max(cls, p: SpeculativeParams) -> int:
        """Tokens of its longest drafts."""

    @property
    def contexts(self) -> Sequence[Context]:
        """The drafter's own contexts, in which it drafts."""
        return ()

    def begin(self, seq_id: int, ids: I32) -> None:
        """A sequence goes on with a prompt; its tokens so far."""

    def shift(self, seq_id: int, pos: int, n: int, end: int) -> None:
        """Note that n of a sequence's `end` tokens left from a position on; those behind them moved
        to their place."""

    def observe(self, seen: Sequence[ComputedTokens]) -> None:
        """What the model has computed, drafts included; a position may come again."""

    @abstractmethod
    def draft(self, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        """Guesses by sequence; none where there is nothing to say."""

    def accept(self, seq_id: int, n_accepted: int, mine: bool) -> None:
        """So many tokens of a draft were right; `mine`: of this drafter's last one."""

    def close(self) -> None:
        """Give memory back."""


def drafter(name: str) -> type[Drafter]:
    """The class that is defined in the file of this name."""
    module = import_module(f"llama_py.decoding.drafting.drafters.{name.replace('-', '_')}")
    for value in vars(module).values():
        is_one = isinstance(value, type) and issubclass(value, Drafter)
        if is_one and value.__module__ == module.__name__:
            found: type[Drafter] = value
            return found
    raise TypeError(f"{module.__name__} defines no Drafter")
