"""What all requests share: the model, its engine, and the options."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

from llama_py.serving.metrics import Metrics, Now
from llama_py.text.chat_prompt import template_of
from llama_py_server.models.rates import RateWindow
from llama_py_server.wire.errors import invalid
from llama_py_server.wire.work import Work, require

if TYPE_CHECKING:
    from llama_py.adapters.lora import Adapter
    from llama_py.chat import ChatTemplate
    from llama_py.model import Model
    from llama_py.params import GenerateParams, SamplingParams
    from llama_py.serving import Engine
    from llama_py.tokenizer import Tokenizer
    from llama_py_server.models.loss import Loss
    from llama_py_server.params import ListenParams, ServerParams, TalkParams


def build() -> str:
    """What this is; as llama.cpp's it begins with a `b`, behind it a version."""
    return f"b{version('llama-py')}-llama-py"


@dataclass
class ModelRecord:
    """What stays of a model's state while it is not in memory.

    started   seconds since 1970
    window    the metrics that were told last
    total     what was done before it left
    """

    started: float = field(default_factory=time.time)
    window: RateWindow = field(default_factory=RateWindow)
    total: Metrics = field(default_factory=Metrics)


@dataclass(frozen=True)
class ModelOptions:
    """The options of a model, which its requests start from.

    drafters  names of the ways to draft
    attention of embeddings
    verbose   whether responses have more fields
    """

    server: ServerParams
    talk: TalkParams
    listen: ListenParams
    generate: GenerateParams
    sampling: SamplingParams
    drafters: tuple[str, ...] = ()
    attention: str = "auto"
    verbose: bool = False


@dataclass(frozen=True)
class ModelState:
    """
    name, names   of the model: the first of its aliases, and all
    path          of the model's file
    """

    model: Model
    engine: Engine
    options: ModelOptions
    path: str
    names: tuple[str, ...]
    record: ModelRecord = field(default_factory=ModelRecord)
    loss: Loss | None = None

    @property
    def params(self) -> ServerParams:
        return self.options.server

    @property
    def talk(self) -> TalkParams:
        return self.options.talk

    @property
    def name(self) -> str:
        return min(self.names)

    def now(self) -> Now:
        """What the engine is doing, and was done with this model so far."""
        now = self.engine.metrics()
        return replace(now, total=self.record.total + now.total)

    @cached_property
    def build(self) -> str:
        return build()

    @property
    def pooling(self) -> str:
        """How the rows of a text become one."""
        if self.params.reranking:
            return "rank"
        asked, own = self.engine.params.pooling, self.model.hparams.pooling
        return asked if asked != "auto" else "mean" if own == "none" else own

    @property
    def sees(self) -> bool:
        """Whether images may be given."""
        return self.model.vision is not None

    def see(self, text: str, images: Sequence[bytes]) -> list[int]:
        """A prompt of a text with images where it has marks. ModelError if these are not as many,
        TooLong where they take too many tokens."""
        from llama_py.vision.prompt import image_prompt

        m = self.model
        require(Work.DECODE)
        return image_prompt(m.tokenizer, m.hparams, m.eyes, text, images, n_most=self.engine.n_ctx)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.tokenizer

    @cached_property
    def template(self) -> ChatTemplate:
        """That of conversations. ModelError if there is none."""
        return template_of(self.model)

    def adapters_of(self, scales: Mapping[int, float]) -> dict[Adapter, float]:
        """Adapters by their numbers; those that are not named are not used."""
        loaded = self.model.adapters
        unknown = [id for id in scales if id >= len(loaded)]
        if unknown:
            raise invalid(f"there is no adapter {unknown[0]}; /lora-adapters lists them")
        return {loaded[id]: scale for id, scale in scales.items() if scale != 0.0}
