"""User interface of models: contexts, text, conversations, embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ggml_py._moved import Former
from ggml_py.errors import ModelError
from llama_py.batch import F32
from llama_py.batch.prompts import Prompt, decode_text, n_cells, n_whole, tokenize_prompt
from llama_py.context import Context
from llama_py.decoding.prefix import Prefix
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.loading.model import LoadedModel, LoadOptions
from llama_py.params import AnswerParams, ContextParams, GenerateParams, ModelParams, SamplingParams
from llama_py.params.other_names import resolve_aliases
from llama_py.support.signature import describe, describe_options

# The methods import the modules for text, which contexts without text do not need.
if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ggml_py.backend import Device
    from llama_py.chat.answer import ChatAnswer
    from llama_py.params.answer_options import AnswerOptions
    from llama_py.text.chat_prompt import ChatPrompt, ChatReader, Message, Tool
    from llama_py.text.generate import Piece, Pieces
    from llama_py.text.score import Boundary, Scorer, TextScore
    from llama_py.vision.messages import Given
    from llama_py.vision.prompt import ImagePrompt

N_CTX_LEAST = 2048  # minimum cells of the model's default context


class Model(LoadedModel):
    """A loaded GGUF model.

        with llama_py.Model("model.gguf") as model:
            print(model.generate("Once upon a time", max_tokens=64))

    The end of `with`, or `close`, releases memory and file.
    """

    _own: Prefix | None = None
    _answering: Pieces | None = None
    _scorer: Scorer | None = None

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        device: str | Device | Sequence[str | Device] = "cpu",
        **options: Unpack[LoadOptions],
    ) -> Self:
        """Load a model of the Hugging Face Hub, downloaded to its library's cache if needed.

            Model.from_pretrained("user/model", filename="*Q4_K_M.gguf")

        filename  name or pattern of the file; None: Q4_K_M, Q8_0, or the first file. All shards of
                  the file are downloaded

        Raises ModelError if no file, or several files, match, and the errors of `load`.
        """
        from llama_py.loading.hub import download_matching

        return cls(download_matching(repo_id, filename), device, **options)

    def context(self, n_ctx: int | None = None, **options: Any) -> Context:
        """Create a context of n_ctx cells, None for the training length; options are the fields of
        ContextParams."""
        return Context(self, n_ctx=n_ctx, **options)

    @describe_options(AnswerParams)
    def generate(self, prompt: Prompt, **options: Unpack[AnswerOptions]) -> str:
        """Generate the text that follows a prompt; options are the fields of AnswerParams.

        Usual names of other libraries are accepted: `temperature`, `max_new_tokens`, `n_predict`,
        `stop` as a single text, OpenAI's `response_format` (llama_py/params/other_names.py).

        The prefix cache is used between calls. Raises ContextError if the prompt is longer than
        the model's training context, and AnswerError, which has the text, if a response violates
        the part of its `json_schema` that no grammar enforces (with the jsonschema package; see
        `Piece.error` of `stream`).
        """
        from llama_py.text.generate import join_pieces

        return join_pieces(self.stream(prompt, **options))

    @describe_options(AnswerParams)
    def stream(self, prompt: Prompt, **options: Unpack[AnswerOptions]) -> Pieces:
        """Do `generate`, but yield pieces. This ends the previous response."""
        p = AnswerParams(**resolve_aliases(options))
        return self._start_answer(tokenize_prompt(self.tokenizer, prompt), p)

    @describe_options(AnswerParams)
    def infill(
        self,
        prefix: str,
        suffix: str,
        extra: Sequence[Mapping[str, str]] = (),
        **options: Unpack[AnswerOptions],
    ) -> str:
        """Generate the text between two texts, if the model was trained for it. `extra`: see
        `llama_py.text.infill.infill_ids`. TokenizerError for other models."""
        from llama_py.text.generate import join_pieces
        from llama_py.text.infill import infill_ids

        p = AnswerParams(**resolve_aliases(options))
        ids = infill_ids(
            self.tokenizer,
            prefix,
            suffix,
            extra=extra,
            n_ctx=self.hparams.n_ctx_train,
            n_predict=max(p.max_tokens, 0),
        )
        return join_pieces(self._start_answer(ids, p))

    def build_image_prompt(self, text: str, images: Sequence[Given]) -> ImagePrompt:
        """Return a prompt for `generate` and `stream` with images at each "<__media__>" in the
        text. ModelError if images and markers differ in number, or no vision encoder is loaded."""
        from llama_py.vision.prompt import image_prompt

        return image_prompt(self.tokenizer, self.hparams, self.vision_encoder, text, images)

    def _start_answer(
        self, ids: list[int], p: AnswerParams, chat: ChatPrompt | None = None
    ) -> Pieces:
        self._stop()
        self._answering = self._answer(ids, p, chat)
        return self._answering

    def _stop(self) -> None:
        if self._answering is not None:
            self._answering.close()

    def _answer(self, ids: list[int], p: AnswerParams, chat: ChatPrompt | None) -> Pieces:
        from llama_py.sampler import Sampler
        from llama_py.text.generate import stream

        n_back = 0
        if p.drafts:
            from llama_py.decoding.drafting.needs import n_planes

            n_back = n_planes(p)
        prefix = self._prefix(n_cells(ids) + max(p.max_tokens, 0), n_back, n_whole(ids))
        rest = prefix.start(ids, None if chat is None else chat.marks(prefix.ctx, ids))
        done: list[int] = []
        sampling, n_vocab = p.part(SamplingParams), self.hparams.n_vocab
        sampler = p.sampler or Sampler(sampling, n_vocab, self.tokenizer)
        more = {"sampler": sampler, "before": ids[: len(ids) - len(rest)]}
        how = vars(p.part(GenerateParams)) | more
        try:
            for piece in stream(prefix.ctx, rest, **how):
                if piece.token is not None:
                    done.append(piece.token)
                yield piece
        finally:
            prefix.add([*rest, *done])

    def _prefix(self, n_tokens: int, n_rs_seq: int, n_ubatch: int) -> Prefix:
        """Return the prefix of the model's context, with capacity for n_tokens, n_rs_seq tokens to
        roll back, and n_ubatch at once."""
        n_ctx = min(max(N_CTX_LEAST, 2 ** (n_tokens - 1).bit_length()), self.hparams.n_ctx_train)
        own = None if self._own is None else self._own.ctx
        least = min(n_tokens, self.hparams.n_ctx_train)
        enough = own is not None and (
            own.n_ctx >= least
            and own.params.n_rs_seq >= n_rs_seq
            and own.cparams.n_ubatch >= n_ubatch
        )
        if self._own is None or not enough:
            d = ContextParams()
            larger = Context(
                self,
                n_ctx=max(n_ctx, own.n_ctx if own else 0),
                n_rs_seq=n_rs_seq,
                n_batch=max(d.n_batch, n_ubatch),
                n_ubatch=max(d.n_ubatch, n_ubatch),
            )
            if own is not None:
                PrefixCache.for_context(larger).transfer_from(PrefixCache.for_context(own))
            self._own = Prefix(larger)
        return self._own

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        tools: None = None,
        images: Sequence[Given] = (),
        media_path: str | Path | None = None,
        **options: Unpack[AnswerOptions],
    ) -> str: ...

    @overload
    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[Tool],
        tool_choice: str | Message = "auto",
        parallel_tool_calls: bool | None = None,
        images: Sequence[Given] = (),
        media_path: str | Path | None = None,
        **options: Unpack[AnswerOptions],
    ) -> ChatAnswer: ...

    @describe_options(AnswerParams)
    def chat(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str | Message = "auto",
        parallel_tool_calls: bool | None = None,
        images: Sequence[Given] = (),
        media_path: str | Path | None = None,
        **options: Unpack[AnswerOptions],
    ) -> str | ChatAnswer:
        """Return the response to a question, or to a conversation [{"role": "user", "content":
        ...}, ...], through the model's chat template, without the model's reasoning.

        With tools, functions or descriptions in the form of the OpenAI API, it is a `ChatAnswer`:
        content, reasoning, and tool calls. A grammar enforces the schemas of their arguments as far
        as it can; `ToolCall.error` is the problem of an invalid call (with the jsonschema package).
        See `build_format` in `llama_py.chat.tools` for the other parameters. `message()` of the
        answer is a message for the next call, and so is the result of
        `llama_py.chat.functions.call_function` for a tool call.

        images (files, their bytes, or `llama_py.vision.Image`s) come before the last message's
        text; a message's content may also have them as parts, {"type": "image_url", "image_url":
        {"url": "data:image/png;base64,..."}}, or file:NAME of the folder media_path. The model
        needs a vision encoder (`load_vision`).

        The prefix cache is used between calls. AnswerError is raised like by `generate`.
        """
        from llama_py.text.generate import join_pieces

        how = tools, tool_choice, parallel_tool_calls
        pieces, reader = self._chat(messages, images, media_path, options, *how)
        text = join_pieces(pieces)
        return text if tools is None else reader.answer

    @describe_options(AnswerParams)
    def stream_chat(
        self,
        messages: str | Sequence[Message],
        *,
        tools: Sequence[Tool] | None = None,
        tool_choice: str | Message = "auto",
        parallel_tool_calls: bool | None = None,
        images: Sequence[Given] = (),
        media_path: str | Path | None = None,
        **options: Unpack[AnswerOptions],
    ) -> Iterator[Piece]:
        """Yield the response of `chat` in pieces; reasoning is in `Piece.reasoning`, tool calls in
        `Piece.tool_calls`. This ends the previous response."""
        how = tools, tool_choice, parallel_tool_calls
        return self._chat(messages, images, media_path, options, *how)[0]

    def _chat(
        self,
        messages: str | Sequence[Message],
        images: Sequence[Given],
        media_path: str | Path | None,
        options: Mapping[str, Any],
        tools: Sequence[Tool] | None,
        choice: str | Message,
        parallel: bool | None,
    ) -> tuple[Iterator[Piece], ChatReader]:
        """Return the pieces of a response, and its reader."""
        from llama_py.text.chat_prompt import ChatOptions, ChatPrompt

        how = ChatOptions(tool_choice=choice, parallel_tool_calls=parallel)
        chat = ChatPrompt(self, _with_images(_messages(messages), images), tools, how)
        p, reader = chat.answer(AnswerParams(**resolve_aliases(options))), chat.reader()
        return chat.read(self._start_answer(chat.ids(media_path), p, chat), p, reader), reader

    def apply_chat_template(
        self,
        messages: str | Sequence[Message],
        tools: Sequence[Message] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """Return the prompt from the model's chat template; see `ChatTemplate.render`."""
        from llama_py.text.conversation import Conversation

        variables |= {"tools": tools, "add_generation_prompt": add_generation_prompt}
        return Conversation.text(self, messages, **variables)

    def embed(
        self,
        texts: str | bytes | Sequence[str | bytes],
        pooling: str = "auto",
        normalize: bool | int = True,
        attention: str = "auto",
    ) -> F32:
        """Return embeddings F32 [n] of a text, or [n_texts, n] of several; see
        llama_py.text.embed.embed."""
        from llama_py.text.embed import embed

        if not isinstance(texts, Iterable):
            raise ModelError(
                f"embed takes a string or a list of strings, got {type(texts).__name__}"
            )
        if isinstance(texts, (str, bytes, bytearray)):
            row: F32 = embed(self, [texts], pooling, normalize, attention)[0]
            return row
        return embed(self, texts, pooling, normalize, attention)

    def rerank(self, query: str, texts: Sequence[str]) -> F32:
        """Score how well texts answer a query, with a reranker: F32 [n_texts], or [n_texts,
        n_cls_out]; see llama_py.text.rerank.rerank."""
        from llama_py.text.rerank import rerank

        return rerank(self, query, texts)

    def score(
        self,
        prompt: Prompt,
        continuations: Sequence[Prompt],
        *,
        n_top: int = 0,
        boundary: Boundary = "together",
    ) -> list[TextScore]:
        """Return the probability of each continuation of a prompt.

        The prompt is computed once, and up to 16 continuations in one batch. Tokens of the previous
        prompt are not computed again. The model keeps a context for scores until it is closed.

        Args:
            prompt: A text, its UTF-8 bytes, or token ids: at least one token. A text begins with
                BOS if the model uses it.
            continuations: Texts or token ids, at least one token each.
            n_top: Number of most likely tokens to return with each token.
            boundary: Tokens between texts. "together" is the rule of evaluation harnesses: white
                space at the prompt's end moves to the continuations, and a continuation's tokens
                are the tokens of both texts after the number of tokens of the prompt. "apart"
                tokenizes each text separately. Token ids are unchanged.

        Returns:
            Log probabilities, in the order of the continuations.

        Raises:
            ContextError: The prompt, `continuations` or one of them is empty, or the model does not
                predict the next token.
            TooLong: The prompt with a continuation exceeds the model's training context.
        """
        from llama_py.text.score import Scorer, tokenize_continuations

        ids, texts = tokenize_continuations(self.tokenizer, prompt, continuations, boundary)
        if self._scorer is None:
            self._scorer = Scorer(self)
        return self._scorer.score(ids, texts, n_top)

    def close(self) -> None:
        """Give memory and file back. Contexts of the model must not be used any more."""
        self._stop()
        if self._own is not None:
            self._own.ctx.close()
            self._own = None
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None
        super().close()

    see = Former("build_image_prompt")


describe(Model.__init__, ModelParams)
describe(Model.context, ContextParams)


def _messages(given: str | Sequence[Message]) -> Sequence[Message]:
    """Return a conversation; a single question becomes one."""
    if isinstance(given, (str, bytes, bytearray)):
        return [{"role": "user", "content": decode_text(given)}]
    if not isinstance(given, Iterable):
        raise ModelError(f"chat takes a string or a list of messages, got {type(given).__name__}")
    return given


def _with_images(messages: Sequence[Message], images: Sequence[Given]) -> Sequence[Message]:
    """Return a conversation with images added to its last message."""
    if not images:
        return messages
    from llama_py.vision.messages import with_images

    if not messages:
        raise ModelError(
            "images must precede the text of the last message, but messages is empty; pass a "
            "message"
        )
    *before, last = messages
    return [*before, {**last, "content": with_images(last.get("content") or "", images)}]
