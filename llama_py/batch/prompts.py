"""Types of prompts: a text, its UTF-8 bytes, or token ids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ggml_py.errors import ContextError, ModelError
from llama_py.batch.batch import F32, Batch, Wanted
from llama_py.batch.entries import MediaRows
from llama_py.hparams.cparams import CParams

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer

Prompt = str | bytes | Sequence[int]
MARKER = "<__media__>"  # placeholder of an image in a text


class TooLong(ContextError):
    """A prompt that does not fit a sequence of the context.

    n_prompt  tokens of the prompt;  n_ctx  capacity of the sequence
    """

    def __init__(self, n_prompt: int, n_ctx: int) -> None:
        super().__init__(
            f"the prompt has {n_prompt} tokens, but a sequence of this context holds {n_ctx}; "
            "use a shorter prompt, a larger n_ctx, or fewer sequences"
        )
        self.n_prompt, self.n_ctx = n_prompt, n_ctx


class Decoding(Protocol):
    """Interface of a prompt's reader, `llama_py.Context`."""

    cparams: CParams

    def decode(self, tokens: Batch, logits: Wanted = "last") -> F32: ...


class Medium(Protocol):
    """Interface of a prompt's part that is not a token: an image.

    n_tokens  number of cells;  n_pos  number of positions
    joins     True if a batch can have its rows and tokens: a row attends only to entries before it
    """

    @property
    def joins(self) -> bool: ...

    @property
    def n_tokens(self) -> int: ...

    @property
    def n_pos(self) -> int: ...

    def reading(
        self, ctx: Decoding, pos: int, seq_id: int, most: Callable[[], int]
    ) -> Generator[None, None, None]:
        """Process the image as the continuation of a sequence at `pos`. Between parts of up to
        most() rows, the context may compute other batches; some images are a single part.

        Raises ContextError, like `Context.decode`, if it does not fit.
        """

    def encode_rows(self, pos: int) -> Generator[None, None, MediaRows]:
        """Compute the rows of the image at `pos`. Between parts of the encoder, the context may
        compute batches."""


class MixedPrompt(list[int]):
    """The ids of a prompt with images: a negative id is a position of an image
    (llama_py.vision.prompt).

    before    ids of the prompt that a sequence already has
    n_tokens  number of cells, which may be more than positions
    n_beyond  cells in excess of positions, for the whole prompt
    n_whole   rows that must be computed together
    """

    before: list[int]
    n_tokens: int
    n_beyond: int
    n_whole: int

    @property
    @abstractmethod
    def media(self) -> Mapping[int, Medium]:
        """Images of the prompt by their first positions."""

    @abstractmethod
    def rest(self, n: int) -> MixedPrompt | None:
        """Return the prompt after the first n positions; None if it cannot begin there."""

    @abstractmethod
    def read(self, ctx: Decoding, seq_id: int) -> F32:
        """Continue a sequence with the prompt. -> F32 [1, n_vocab], logits of the last token"""


def n_cells(ids: Sequence[int]) -> int:
    """Return the number of cells that a prompt takes."""
    return ids.n_tokens if isinstance(ids, MixedPrompt) else len(ids)


def n_whole(ids: Sequence[int]) -> int:
    """Return how many rows of a prompt must be computed together."""
    return ids.n_whole if isinstance(ids, MixedPrompt) else 1


def check_whole(n: int, cparams: CParams) -> None:
    """Raise ContextError if n rows that attend to each other do not fit a ubatch."""
    if n > cparams.n_ubatch:
        raise ContextError(
            f"an image of {n} tokens that attend to each other must be in one batch, but n_batch "
            f"= {cparams.n_batch} and n_ubatch = {cparams.n_ubatch}; use at least {n} for both "
            "(-b, -ub)"
        )


def check_tokens(ids: Iterable[int], n_vocab: int) -> None:
    """Raise ContextError for ids that are not in the vocabulary."""
    bad = next((id for id in ids if not 0 <= id < n_vocab), None)
    if bad is not None:
        raise ContextError(f"token must be in [0, {n_vocab}), got {bad}")


def is_mixed(*parts: Sequence[int]) -> bool:
    """Return True if some ids are not of tokens."""
    return any(id < 0 for ids in parts for id in ids)


def decode_text(text: str | bytes | bytearray) -> str:
    """Return a text given as str or UTF-8 bytes; ModelError for invalid bytes."""
    if isinstance(text, str):
        return text
    try:
        return bytes(text).decode()
    except UnicodeDecodeError as e:
        raise ModelError(
            f"prompt of bytes must be UTF-8, got an error at byte {e.start} ({e.reason}); decode "
            "it first, or pass a list of token ids"
        ) from None


def tokenize_prompt(tokenizer: Tokenizer, prompt: Prompt, add_special: bool = True) -> list[int]:
    """Return a prompt's tokens; ids are unchanged. ModelError for other types."""
    if isinstance(prompt, MixedPrompt):
        return prompt
    if isinstance(prompt, (str, bytes, bytearray)):
        return tokenizer.tokenize(decode_text(prompt), add_special)
    try:
        return [int(id) for id in prompt]
    except (TypeError, ValueError):
        raise ModelError(
            f"prompt must be a string or a list of token ids, got {type(prompt).__name__}; for "
            "messages of a conversation use chat"
        ) from None
