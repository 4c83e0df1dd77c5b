"""Model and context of a `Llama`, with the tokens and logits that llama-cpp-python shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.errors import ModelError
from llama_py.batch import F32
from llama_py.batch.prompts import TooLong
from llama_py.compat.llama_cpp._arguments import (
    ChainOptions,
    GenerateOptions,
    Ids,
    LogitsProcessor,
    SampleOptions,
    StoppingCriteria,
)
from llama_py.compat.llama_cpp._logit_changes import LogitChanges
from llama_py.compat.llama_cpp._options import (
    LlamaOptions,
    context_options,
    describe_metadata,
    model_options,
)
from llama_py.compat.llama_cpp._state import LlamaState
from llama_py.compat.llama_cpp.llama_cpp import LLAMA_DEFAULT_SEED
from llama_py.compat.llama_cpp.llama_grammar import LlamaGrammar
from llama_py.compat.llama_cpp.llama_speculative import LlamaDraftModel
from llama_py.compat.llama_cpp.llama_tokenizer import LlamaTokenizer
from llama_py.decoding.drafting.needs import n_planes
from llama_py.decoding.prefix import Prefix
from llama_py.decoding.prefix_cache import restore_slot, serialize_slot
from llama_py.gguf.file import GGUFFile
from llama_py.model import Model
from llama_py.params import AnswerParams, ContextParams, GenerateParams, SamplingParams
from llama_py.sampler import Sampler
from llama_py.support.signature import describe
from llama_py.text.generate import Piece, Pieces, stream
from llama_py.tokenizer import Tokenizer

_CHAIN = "top_k;typ_p;top_p;min_p;temperature"
_ALL_TOKENS = "temperature"  # of temp <= 0: all tokens are candidates


class LlamaEngine:
    """Tokens in the memory of one context: evaluation, sampling, generation, states."""

    def __init__(self, model_path: str, options: LlamaOptions) -> None:
        """Load a model and create its context. ValueError if the file does not exist."""
        if not Path(model_path).exists():
            raise ModelError(f"Model path does not exist: {model_path}")
        self.model_path, self.options = model_path, options
        self.verbose, self.last_n_tokens_size = options.verbose, options.last_n_tokens_size
        self._model: Model | None = None
        self._prefix: Prefix | None = None
        self._answering: Pieces | None = None
        self._seed = options.seed or LLAMA_DEFAULT_SEED
        self._logits: F32 | None = None  # the last token's
        if options.vocab_only:
            with GGUFFile.open(model_path) as file:
                self._file_metadata = dict(file.metadata)
            n_ctx = options.n_ctx
        else:
            self._model = Model(model_path, **model_options(options))
            self._file_metadata = dict(self._model.file.metadata)
            n_ctx = options.n_ctx or self._model.hparams.n_ctx_train
        self.metadata = describe_metadata(self._file_metadata)
        self._n_ctx, self.n_batch = n_ctx, min(n_ctx, options.n_batch)
        self.drafting = _draft_options(options)
        if self._model is not None:
            self._begin(self._model)
        self.n_tokens = 0
        self.input_ids: Ids = np.zeros(self._n_ctx, np.intc)
        self.tokenizer_ = options.tokenizer or LlamaTokenizer(self)

    def _begin(self, model: Model) -> None:
        """Create the context, and load the LoRA adapter."""
        o = self.options
        n_rs_seq = n_planes(AnswerParams(**self.drafting)) if self.drafting else 0
        ctx = model.context(**context_options(o, self._n_ctx, n_rs_seq))
        self._n_ctx, self._prefix = ctx.n_ctx, Prefix(ctx)
        if o.lora_path:
            ctx.set_adapters({model.load_adapter(o.lora_path): o.lora_scale})

    @property
    def llama_py_model(self) -> Model:
        """The model; ModelError with `vocab_only`, and after `close`."""
        if self._model is None:
            raise ModelError(
                "this Llama has no weights: it was loaded with vocab_only, or is closed; load the "
                "model again without vocab_only"
            )
        return self._model

    @property
    def model(self) -> Tokenizer:
        """The vocabulary, for the functions of `llama_py.compat.llama_cpp.llama_cpp`."""
        return self.vocabulary

    @property
    def context_params(self) -> ContextParams:
        """The options of the context."""
        return self.prefix.ctx.params

    @property
    def prefix(self) -> Prefix:
        """The tokens in memory."""
        _ = self.llama_py_model
        assert self._prefix is not None
        return self._prefix

    @cached_property
    def vocabulary(self) -> Tokenizer:
        """The tokenizer of the file."""
        return Tokenizer.from_metadata(self._file_metadata)

    @cached_property
    def scores(self) -> F32:
        """Logits of the tokens in memory: [n_ctx, n_vocab] with `logits_all`, else [n_batch,
        n_vocab] with the last evaluated token's only."""
        n = self._n_ctx if self.options.logits_all else self.n_batch
        return np.zeros((n, self.vocabulary.n_vocab), np.float32)

    @property
    def _input_ids(self) -> Ids:
        return self.input_ids[: self.n_tokens]

    @property
    def _scores(self) -> F32:
        return self.scores[: self.n_tokens]

    @property
    def eval_tokens(self) -> deque[int]:
        """The tokens in memory."""
        return deque(self._input_ids.tolist(), maxlen=self._n_ctx)

    @property
    def eval_logits(self) -> deque[list[float]]:
        """Logits of the tokens in memory with `logits_all`, else of the last token."""
        n = self._n_ctx if self.options.logits_all else 1
        return deque(self._scores[-n:].tolist(), maxlen=n)

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Return the tokens of a text in UTF-8; special: find the texts of control tokens."""
        found: list[int] = self.tokenizer_.tokenize(text, add_bos, special)
        return found

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Return the text of tokens after prev_tokens; special: show control tokens."""
        found: bytes = self.tokenizer_.detokenize(tokens, prev_tokens=prev_tokens, special=special)
        return found

    def set_seed(self, seed: int) -> None:
        """Set the seed of `sample`, `generate`, and of completions without their own seed."""
        self._seed = seed

    def reset(self) -> None:
        """Forget the tokens; memory may still have them as cached tokens."""
        self._stop()
        self.n_tokens = 0

    def eval(self, tokens: Sequence[int]) -> None:
        """Add tokens and compute the logits after them. ContextError, a ValueError, if the
        context is full."""
        self._stop()
        if len(tokens):
            ids = [*self._input_ids.tolist(), *map(int, tokens)]
            self._compute(ids, self.prefix.start(ids))

    def _compute(self, ids: Sequence[int], rest: Sequence[int]) -> None:
        """Compute the last tokens of a text, `rest`, and store their logits."""
        ctx, at, whole = self.prefix.ctx, len(ids) - len(rest), self.options.logits_all
        for start in range(0, len(rest), self.n_batch):
            part = rest[start : start + self.n_batch]
            rows = ctx.decode(part, "all" if whole else "last")
            end = at + start + len(part)
            if end <= len(self.scores):
                self.scores[end - len(rows) : end] = rows
            self._logits = rows[-1]
        self.prefix.add(rest)
        self._set_tokens(ids)

    def _set_tokens(self, ids: Sequence[int]) -> None:
        self.n_tokens = len(ids)
        self.input_ids[: len(ids)] = ids

    def sampling_fields(self, o: ChainOptions, temp: float) -> dict[str, Any]:
        """Return the fields of `SamplingParams` from arguments with llama-cpp-python's names."""
        is_mirostat = o.mirostat_mode and temp > 0  # then temp has no effect
        return {
            "samplers": _CHAIN if temp > 0 else _ALL_TOKENS,
            "temp": 1.0 if is_mirostat or temp < 0 else temp,
            "top_k": o.top_k,
            "top_p": o.top_p,
            "min_p": o.min_p,
            "typical_p": o.typical_p,
            "mirostat": o.mirostat_mode if is_mirostat else 0,
            "mirostat_lr": o.mirostat_eta,
            "mirostat_ent": o.mirostat_tau,
            "seed": self._seed & 0xFFFFFFFF,
            **_grammar_options(o.grammar),
        }

    def sample(self, **options: Any) -> int:
        """Choose the token after the evaluated tokens, or after token idx (with `logits_all`).

        options are the fields of SampleOptions; penalties have no effect, like in
        llama-cpp-python. ModelError if no token was evaluated.
        """
        o = SampleOptions(**options)
        ids, row = self._input_ids.tolist(), self._logits
        if o.idx is not None and o.idx != len(ids) - 1:
            ids, row = ids[: o.idx + 1], self.scores[o.idx] if self.options.logits_all else None
        if row is None or not ids:
            raise ModelError("no logits to sample from; call eval, with logits_all for idx")
        params = SamplingParams(**self.sampling_fields(o, o.temp))
        sampler = self._build_sampler(params)
        for process in adapt_processors(o.logits_processor):
            row = process(ids, row)
        return sampler.sample(row)

    def generate(
        self, tokens: Sequence[int], **options: Any
    ) -> Generator[int, Sequence[int] | None, None]:
        """Yield the tokens that follow a prompt, until the context is full or a criterion stops.

        Cached tokens of the prompt are not computed again. End tokens are yielded like others.
        Tokens that the caller sends are added to the text. options are the fields of
        GenerateOptions.
        """
        o = GenerateOptions(**options)
        ids: list[int] = [*(() if o.reset else self._input_ids.tolist()), *map(int, tokens)]
        params = SamplingParams(**self.sampling_fields(o, o.temp))
        p = self.answer_params({}, o, sampler=self._build_sampler(params))
        while True:
            is_full = yield from self._extend(ids, p, o.stopping_criteria)
            if is_full or len(ids) >= self._n_ctx:
                return

    def _extend(
        self, ids: list[int], p: AnswerParams, stops: StoppingCriteria | None
    ) -> Generator[int, Sequence[int] | None, bool]:
        """Yield tokens up to an end token or tokens of the caller; return False to continue."""
        for piece in self.respond(ids, p):
            if piece.token is None or self.is_stopped(stops, ids):
                return True
            ids.append(piece.token)
            more = yield piece.token
            if more:
                ids += map(int, more)
                return False
            if piece.finish_reason is not None:
                return piece.finish_reason != "eos"
        return True

    def is_stopped(self, stops: StoppingCriteria | None, ids: Sequence[int]) -> bool:
        """Return True if a stopping criterion ends a text before its next token."""
        if stops is None or self._logits is None:
            return False
        return bool(stops(np.array(ids, np.intc), self._logits))

    def answer_params(
        self,
        sampling: Mapping[str, Any],
        o: ChainOptions,
        bias: Mapping[int, float] | None = None,
        **more: Any,
    ) -> AnswerParams:
        """Return the parameters of a response, with the drafting of this object."""
        changes = LogitChanges(o, self.last_n_tokens_size, self.n_vocab(), bias or {})
        processors: list[Callable[[Sequence[int], F32], F32]]
        processors = [*adapt_processors(o.logits_processor), changes]
        return AnswerParams(**sampling, logits_processors=processors, **self.drafting, **more)

    def _build_sampler(self, p: SamplingParams) -> Sampler:
        sampler = Sampler(p, self.n_vocab(), self.vocabulary)
        sampler.grammar_first = True  # one random number per token, like in llama-cpp-python
        return sampler

    def respond(
        self, ids: Sequence[int], p: AnswerParams, marks: Sequence[int] | None = None
    ) -> Iterator[Piece]:
        """Yield the response to a prompt; this ends the previous response. Cached tokens are not
        computed again; see `PrefixCache.start` for marks."""
        self._stop()
        self._answering = self._respond(ids, p, marks)
        return self._answering

    def _respond(self, ids: Sequence[int], p: AnswerParams, marks: Sequence[int] | None) -> Pieces:
        prefix, n = self.prefix, len(ids)
        if n > self._n_ctx:
            raise TooLong(n, self._n_ctx)
        rest = prefix.start(ids, marks)
        if self.options.logits_all and len(rest) > 1:
            self._compute(ids[:-1], rest[:-1])
            rest = rest[-1:]
        self._set_tokens(ids)
        sampler = p.sampler or self._build_sampler(p.part(SamplingParams))
        if isinstance(sampler, Sampler):
            sampler.grammar_first = True
        done: list[int] = []
        p = replace(
            p,
            sampler=sampler,
            before=ids[: n - len(rest)],
            logits_processors=(self._note_row, *p.logits_processors),
        )
        try:
            for piece in stream(prefix.ctx, rest, **vars(p.part(GenerateParams))):
                if piece.token is not None:
                    done.append(piece.token)
                    self.n_tokens = n + len(done) - 1  # memory does not have the last token yet
                    self.input_ids[self.n_tokens : self.n_tokens + 1] = piece.token
                yield piece
        finally:
            prefix.add([*rest, *done])

    def _note_row(self, ids: Sequence[int], logits: F32) -> F32:
        """Store the logits after all tokens."""
        self._logits = logits
        if self.options.logits_all:
            self.scores[len(ids) - 1] = logits
        return logits

    def _stop(self) -> None:
        if self._answering is not None:
            self._answering.close()
            self._answering = None

    def save_state(self) -> LlamaState:
        """Return the tokens, logits, memory and seed."""
        self._stop()
        data = b"".join(serialize_slot(self.prefix.cache))
        scores = self._scores.copy() if self.options.logits_all else np.empty((0, 0), np.float32)
        return LlamaState(self.input_ids.copy(), scores, self.n_tokens, data, len(data), self._seed)

    def load_state(self, state: LlamaState) -> None:
        """Restore a saved state. ContextError, a ValueError, for a state of another model."""
        self._stop()
        self.prefix.tokens = restore_slot(self.prefix.cache, state.llama_state)
        self._set_tokens(state.input_ids[: state.n_tokens].tolist())
        self.scores[: len(state.scores)] = state.scores if state.scores.size else 0
        self._logits, self._seed = None, state.seed

    def n_ctx(self) -> int:
        """Return the size of the context in tokens."""
        return self._n_ctx

    def n_embd(self) -> int:
        """Return the dimensions of embeddings."""
        return self.llama_py_model.hparams.n_embd

    def n_vocab(self) -> int:
        """Return the number of tokens in the vocabulary."""
        return self.vocabulary.n_vocab if self._model is None else self._model.hparams.n_vocab

    def token_eos(self) -> int:
        """Return the token that ends a text, or -1."""
        return self._special("eos")

    def token_bos(self) -> int:
        """Return the token that starts a text, or -1."""
        return self._special("bos")

    def token_nl(self) -> int:
        """Return the last token of a line break, or -1."""
        found = self.vocabulary.tokenize("\n", add_special=False)
        return found[-1] if found else -1

    def _special(self, name: str) -> int:
        return self.vocabulary.special_ids.get(name, -1)

    def close(self) -> None:
        """Release memory and file."""
        self._stop()
        if self._prefix is not None:
            self._prefix.ctx.close()
        if self._model is not None:
            self._model.close()
        self._model = self._prefix = None


def adapt_processors(
    given: LogitsProcessor | Iterable[LogitsProcessor] | None,
) -> tuple[Callable[[Sequence[int], F32], F32], ...]:
    """Return logits processors in the form of llama_py: each receives a copy of the logits."""
    if given is None:
        return ()
    each = tuple(given) if isinstance(given, Iterable) else (given,)
    return tuple(_adapt(one) for one in each)


def _adapt(process: LogitsProcessor) -> Callable[[Sequence[int], F32], F32]:
    def call(ids: Sequence[int], logits: F32) -> F32:
        return np.asarray(process(np.array(ids, np.intc), logits.copy()), np.float32)

    return call


def _grammar_options(grammar: LlamaGrammar | None) -> dict[str, str]:
    if grammar is None:
        return {}
    if not isinstance(grammar, LlamaGrammar):
        raise ModelError(
            f"grammar must be a LlamaGrammar, got {type(grammar).__name__}; use "
            "LlamaGrammar.from_string"
        )
    return grammar.options


def _draft_options(o: LlamaOptions) -> dict[str, Any]:
    """Return the options of drafting."""
    if o.draft_model is None:
        return {}
    if isinstance(o.draft_model, LlamaDraftModel):
        return o.draft_model.options
    return {"model_draft": o.draft_model}


describe(LlamaEngine.sample, SampleOptions)
describe(LlamaEngine.generate, GenerateOptions)
