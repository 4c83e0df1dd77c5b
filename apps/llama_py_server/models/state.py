"""State that all requests to a model share: model, engine, options."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ggml_py.machine.release import VERSION
from llama_py.serving.metrics import Metrics, Now
from llama_py.serving.reading import SHARED_OPTIONS
from llama_py.text.chat_prompt import get_template
from llama_py.text.decide import Decider
from llama_py.text.decision_rows import RowScorer
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
    """Return the build; like llama.cpp's it begins with a `b`, followed by a version."""
    return f"b{VERSION}-llama-py"


@dataclass
class ModelRecord:
    """Record of a model that persists while it is unloaded.

    started   seconds since 1970
    window    metrics at the last read
    total     metrics before it was unloaded
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
    """A loaded model with its engine and options.

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
        """Return the engine's metrics, including metrics before it was unloaded."""
        now = self.engine.metrics()
        return replace(now, total=self.record.total + now.total)

    @cached_property
    def build(self) -> str:
        return build()

    @property
    def pooling(self) -> str:
        """Pooling of a text's rows."""
        if self.params.reranking:
            return "rank"
        asked, own = self.engine.params.pooling, self.model.hparams.pooling
        return asked if asked != "auto" else "mean" if own == "none" else own

    @property
    def sees(self) -> bool:
        """True if images are supported."""
        return self.model.vision is not None

    def see(self, text: str, images: Sequence[bytes]) -> list[int]:
        """Return a prompt of a text with images at its marks. ModelError if their numbers differ,
        TooLong if they take too many tokens."""
        from llama_py.vision.prompt import image_prompt

        m = self.model
        require(Work.DECODE)
        return image_prompt(
            m.tokenizer, m.hparams, m.vision_encoder, text, images, n_most=self.engine.n_ctx
        )

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model.tokenizer

    @cached_property
    def template(self) -> ChatTemplate:
        """Chat template; ModelError without a template."""
        return get_template(self.model)

    @cached_property
    def decider(self) -> Decider:
        """Prompts and answers of decisions. ModelError if the model's type is not supported."""
        return Decider(self.model)

    @cached_property
    def row_scorer(self) -> RowScorer:
        """Scores of decision models that read rows of embeddings."""
        options = {name: getattr(self.engine.params, name) for name in SHARED_OPTIONS}
        return RowScorer(self.model.context, self.engine.n_ctx, **options)

    def find_adapters(self, scales: Mapping[int, float]) -> dict[Adapter, float]:
        """Return adapters by their numbers; adapters that are not named are unused."""
        loaded = self.model.adapters
        unknown = [id for id in scales if id >= len(loaded)]
        if unknown:
            raise invalid(f"unknown adapter {unknown[0]}; /lora-adapters lists the known adapters")
        return {loaded[id]: scale for id, scale in scales.items() if scale != 0.0}
