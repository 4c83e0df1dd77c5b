"""Prompts with images, and their processing by a context (mtmd.cpp:mtmd_tokenizer,
mtmd-helper.cpp).

An image is represented in a prompt's ids by negative numbers, one per position. Equal images have
equal numbers, so the prefix cache matches them like tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from ggml_py.errors import ContextError, ModelError
from llama_py.batch import F32, I32, Batch, Wanted
from llama_py.batch.entries import Entries, MediaRows
from llama_py.batch.prompts import MARKER, Decoding, MixedPrompt, TooLong, check_whole
from llama_py.hparams import HParams
from llama_py.vision.encoder import ImageEncoder, ImagePart
from llama_py.vision.image import Image
from llama_py.vision.messages import Given, read_image

if TYPE_CHECKING:
    from llama_py.tokenizer import Tokenizer

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Picture:
    """A part of an image in a prompt.

    n_tokens      image tokens for the text model
    columns, rows   grid of the tokens, if positions have several axes
    n_axes        number of position axes
    sees_all      each token attends to all others
    joins         a batch can have its rows and tokens
    """

    encoder: ImageEncoder = field(repr=False)
    part: ImagePart = field(repr=False)
    n_tokens: int
    columns: int
    rows: int
    n_axes: int
    sees_all: bool
    joins: bool

    @property
    def n_pos(self) -> int:
        """Number of positions that it takes."""
        return self.n_tokens if self.n_axes == 1 else max(self.columns, self.rows)

    @property
    def ids(self) -> list[int]:
        """Negative numbers that represent the image, one per position."""
        raw = hashlib.shake_256(self.part.key + bytes([self.n_axes])).digest(4 * self.n_pos)
        found: list[int] = (-1 - (np.frombuffer(raw, "<u4") >> 1).astype(np.int64)).tolist()
        return found

    def positions(self, first: int) -> I32:
        """Return positions of the image's rows, from a position on. [n_axes, n_tokens]"""
        i = np.arange(self.n_tokens, dtype=np.int32)
        if self.n_axes == 1:
            return first + i[None]
        found = np.zeros((self.n_axes, self.n_tokens), np.int32)
        found[0] = first
        found[1], found[2] = first + i // self.columns, first + i % self.columns
        return found

    def reading(
        self, ctx: Decoding, pos: int, seq_id: int, most: Callable[[], int]
    ) -> Generator[None, None, None]:
        """See `llama_py.batch.prompts.Medium`. Image tokens that are not cached are computed."""
        at, n, i = self.positions(pos), self.n_tokens, 0
        if self.sees_all:
            check_whole(n, ctx.cparams)
        rows = yield from self.encoder.computing(self.part)
        while i < n:
            part = slice(i, n if self.sees_all else min(i + max(most(), 1), n))
            seq_ids = [(seq_id,)] * (part.stop - i)
            with attending_both_ways(ctx, self.sees_all):
                ctx.decode(Batch(embd=rows[part], pos=at[:, part], seq_ids=seq_ids), "none")
            i = part.stop
            if i < n:
                yield

    def encode_rows(self, pos: int) -> Generator[None, None, MediaRows]:
        """Compute the rows of the image at `pos`, part by part."""
        rows = yield from self.encoder.computing(self.part)
        return MediaRows(rows, self.positions(pos), self.n_pos)


Chunk = list[int] | Picture


class ImagePrompt(MixedPrompt):
    """A prompt's ids, and the corresponding tokens and images: its `chunks`."""

    def __init__(
        self, chunks: Sequence[Chunk], before: Sequence[int] = (), n_beyond: int = 0
    ) -> None:
        """Join chunks; before, n_beyond: see `MixedPrompt`, for the sequence's earlier tokens."""
        super().__init__(id for c in chunks for id in (c.ids if isinstance(c, Picture) else c))
        self.chunks = list(chunks)
        self.before = list(before)
        self.n_tokens = sum(c.n_tokens if isinstance(c, Picture) else len(c) for c in chunks)
        self.n_beyond = n_beyond + self.n_tokens - len(self)
        pictures = [c for c in chunks if isinstance(c, Picture)]
        self.n_whole = max((c.n_tokens for c in pictures if c.sees_all), default=1)

    @property
    def media(self) -> dict[int, Picture]:
        """The prompt's images by start position."""
        found, pos = dict[int, Picture](), len(self.before)
        for chunk in self.chunks:
            if isinstance(chunk, Picture):
                found[pos] = chunk
            pos += chunk.n_pos if isinstance(chunk, Picture) else len(chunk)
        return found

    def rest(self, n: int) -> ImagePrompt | None:
        """Return the prompt after the first n positions; None if an image is cut there."""
        at, beyond = 0, self.n_beyond - (self.n_tokens - len(self))
        for i, chunk in enumerate(self.chunks):
            size = chunk.n_pos if isinstance(chunk, Picture) else len(chunk)
            if n < at + size:
                cut = n - at
                if isinstance(chunk, Picture):
                    if cut:
                        return None
                    left: list[Chunk] = [chunk]
                else:
                    left = [chunk[cut:]]
                left += self.chunks[i + 1 :]
                return ImagePrompt(left, [*self.before, *self[:n]], beyond)
            at += size
            if isinstance(chunk, Picture):
                beyond += chunk.n_tokens - chunk.n_pos
        return ImagePrompt([], [*self.before, *self], beyond)

    def read(self, ctx: Decoding, seq_id: int = 0) -> F32:
        """Continue a sequence with the prompt. -> F32 [1, n_vocab], logits of the last token

        Raises ContextError, like `Context.decode`, if it does not fit.
        """
        n_axes = max((c.n_axes for c in self.chunks if isinstance(c, Picture)), default=1)
        pos, batches = len(self.before), _PromptBatches(ctx, seq_id, n_axes)
        for chunk in self.chunks:
            if not isinstance(chunk, Picture):
                batches.add_tokens(chunk, pos)
                pos += len(chunk)
                continue
            if chunk.joins:
                batches.add_rows(_run(chunk.encode_rows(pos)))
            else:
                batches.flush("none")
                _run(chunk.reading(ctx, pos, seq_id, lambda: ctx.cparams.n_batch))
            pos += chunk.n_pos
        return batches.flush("last")


class _PromptBatches:
    """Text and images of a prompt, in batches of up to n_batch entries."""

    def __init__(self, ctx: Decoding, seq_id: int, n_axes: int) -> None:
        self._ctx, self._seq_id, self._n_axes = ctx, seq_id, n_axes
        self._entries = Entries(n_axes)

    def add_tokens(self, ids: Sequence[int], pos: int) -> None:
        for first, n in self._parts(len(ids)):
            self._entries.add_tokens(ids[first : first + n], pos + first)

    def add_rows(self, media: MediaRows) -> None:
        for first, n in self._parts(len(media.rows)):
            self._entries.add_rows(media, first, n)

    def _parts(self, n: int) -> Iterator[tuple[int, int]]:
        """Yield the first index and the length of each part that fits the batch. Full batches
        are computed before more entries follow."""
        first, n_batch = 0, self._ctx.cparams.n_batch
        while first < n:
            if len(self._entries) == n_batch:
                self.flush("none")
            part = min(n - first, n_batch - len(self._entries))
            yield first, part
            first += part

    def flush(self, logits: Wanted) -> F32:
        """Compute the entries. -> logits"""
        entries, self._entries = self._entries, Entries(self._n_axes)
        if not len(entries):
            return np.empty((0, 0), np.float32)
        return self._ctx.decode(entries.batch([(self._seq_id,)] * len(entries)), logits)


def _run(steps: Generator[None, None, Result]) -> Result:
    """Run a generator to its end, and return its result."""
    try:
        while True:
            next(steps)
    except StopIteration as e:
        return cast(Result, e.value)


@contextmanager
def attending_both_ways(ctx: Decoding, wanted: bool = True) -> Iterator[None]:
    """Make tokens of a batch attend to later tokens as well within `with`
    (llama_set_causal_attn)."""
    before = ctx.cparams
    ctx.cparams = replace(before, causal_attn=before.causal_attn and not wanted)
    try:
        yield
    finally:
        ctx.cparams = before


def image_prompt(
    tokenizer: Tokenizer,
    hp: HParams,
    encoder: ImageEncoder,
    text: str,
    images: Sequence[Given],
    *,
    marker: str = MARKER,
    add_special: bool = True,
    n_most: int | None = None,
) -> ImagePrompt:
    """Return a prompt of a text with images in place of its markers, for a model.

    n_most  maximum number of cells; beyond, no further image is decoded

    Raises ModelError if images and markers differ in number, or an image is unreadable;
    TooLong if the prompt takes more cells than n_most.
    """
    texts = text.split(marker)
    if len(texts) - 1 != len(images):
        raise ModelError(
            f"the text has {len(texts) - 1} image markers ({marker}), but {len(images)} images "
            "are given; use one marker per image"
        )
    chunks: list[Chunk] = []
    n_rows = 0
    _add(chunks, tokenizer.tokenize(texts[0], False))
    for image, after in zip(images, texts[1:], strict=True):
        _add(chunks, tokenizer.tokenize(encoder.projector.begin, False))
        pictures = _pictures(encoder, read_image(image), hp)
        n_rows += sum(p.n_tokens for p in pictures)
        if n_most is not None and n_rows > n_most:
            raise TooLong(n_rows, n_most)
        chunks += pictures
        _add(chunks, tokenizer.tokenize(encoder.projector.end, False))
        _add(chunks, tokenizer.tokenize(after, False))
    if add_special and "bos" in tokenizer.vocab.first:
        bos = tokenizer.special_ids["bos"]
        if chunks and isinstance(chunks[0], list):
            chunks[0].insert(0, bos)
        else:
            chunks.insert(0, [bos])
    if add_special and "eos" in tokenizer.vocab.last:
        _add(chunks, [tokenizer.special_ids["eos"]])
    if not chunks or isinstance(chunks[-1], Picture):
        raise ContextError("the prompt ends with an image; add text after it")
    return ImagePrompt(chunks)


def _pictures(encoder: ImageEncoder, image: Image, hp: HParams) -> list[Picture]:
    kind, sees_all = encoder.projector, encoder.projector.sees_all(hp.n_embd_inp)
    return [
        Picture(
            encoder,
            part,
            kind.n_tokens(*part.size),
            *kind.grid(*part.size),
            hp.n_pos_per_embd,
            sees_all,
            not sees_all and hp.mixes_embd,
        )
        for part in encoder.parts(image)
    ]


def _add(chunks: list[Chunk], ids: list[int]) -> None:
    """Append tokens to the chunks, joined with a preceding text."""
    if not ids:
        return
    if chunks and isinstance(chunks[-1], list):
        chunks[-1] += ids
    else:
        chunks.append(list(ids))
