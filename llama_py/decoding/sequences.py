"""Continuation of sequences with prefix cache and drafts (common/speculative.cpp).

    sequences = Sequences.for_context(ctx)
    sequences.start(0, prompt)  # cached tokens are not computed again
    while ...:
        sequences.advance([0])  # one batch: a prompt, a token, or a draft to verify
        while sequences.has_rows(0):
            id, logits = sequences.take(0, choose)  # once per accepted token, and once
    sequences.finish(0)

Each token is chosen from the logits after the tokens before it, in order, and only chosen tokens
remain in the text. With any sampler, the text therefore has the same distribution with and without
drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ggml_py._moved import Former
from ggml_py.errors import ContextError
from llama_py.batch import F32, Batch, Wanted
from llama_py.batch.entries import Entries, MediaRows
from llama_py.batch.prompts import MixedPrompt, is_mixed
from llama_py.context import Context
from llama_py.decoding.keep import KeepRule, shift
from llama_py.decoding.known_text import KnownText
from llama_py.decoding.part import Part, part_with_images
from llama_py.decoding.prefix_cache import PrefixCache, PrefixMatch
from llama_py.decoding.rollback import Rollback
from llama_py.decoding.track import Allowed, Track
from llama_py.params.speculative import SpeculativeParams
from llama_py.support.resource import Resource

if TYPE_CHECKING:
    from llama_py.decoding.drafting.drafts import Drafts
    from llama_py.decoding.drafting.statistics import DraftStatistics

NO_DRAFTS = SpeculativeParams()

Choose = Callable[[F32], int]


class Sequences(Resource):
    """Sequences of a context that can be continued.

    cache        prefix cache of all sequences
    drafts       drafters, or None
    rollback     rolls back rejected tokens and counts checkpoints
    keeps_rows   results of `take` remain valid when the context computes again, before or after
                 the call; if False, a single row is a view of the graph's output
    """

    def __init__(self, ctx: Context, drafting: SpeculativeParams = NO_DRAFTS) -> None:
        """Create the sequences of a context; see `Sequences.for_context` for errors."""
        self.ctx, self.params = ctx, drafting
        self.cache = PrefixCache.for_context(ctx)
        self.drafts = _drafts(ctx, drafting)
        self.rollback = Rollback(ctx)
        self.keeps_rows = False
        self._tracks: dict[int, Track] = {}
        self._texts: dict[int, KnownText] = {}

    @classmethod
    def for_context(cls, ctx: Context, drafting: SpeculativeParams | None = None) -> Sequences:
        """Return the sequences of a context, with their cached tokens.

        drafting  options of drafting; None: unchanged. Other options create new drafters

        Raises the errors of `Drafts`.
        """
        found = ctx.companion(Sequences, Sequences)
        if drafting is None or found.params == drafting:
            return found
        found.close()
        ctx.replace_companion(Sequences, Sequences(ctx))
        made = cls(ctx, drafting)
        ctx.replace_companion(Sequences, made)
        return made

    @property
    def contexts(self) -> list[Context]:
        """Contexts of the text and of all drafters."""
        return [self.ctx, *(self.drafts.contexts if self.drafts else ())]

    @property
    def n_max(self) -> int:
        """Tokens of the longest drafts."""
        return self.drafts.n_max if self.drafts else 0

    @property
    def statistics(self) -> dict[str, DraftStatistics]:
        """Statistics of drafts, by the name of the way to draft."""
        return self.drafts.statistics if self.drafts else {}

    @property
    def host_bytes(self) -> int:
        """Additional bytes of host memory, without the cache: always 0."""
        return 0

    def start(
        self,
        seq_id: int,
        ids: Sequence[int],
        *,
        marks: Iterable[int] | None = None,
        afresh: bool = False,
        at_most: int | None = None,
        whole: Callable[[int], int] = int,
    ) -> PrefixMatch:
        """Set the text of a sequence; tokens that any sequence has are not computed again.
        The next `advance` processes the rest.

        marks, afresh, at_most  see `PrefixCache.start`
        whole   rounds a number of tokens down to a possible end: not within an image

        ContextError for an empty text.
        """
        told = self.cache.start(ids, seq_id, marks, afresh, at_most)
        if (n := whole(told.n_reused)) < told.n_reused:
            told = self.cache.start(ids, seq_id, marks, at_most=n)
        n = told.n_reused
        self.extend(seq_id, ids[n:], ids[:n])
        return told

    def extend(
        self, seq_id: int, ids: Sequence[int], before: Sequence[int] = (), drafts: bool = True
    ) -> None:
        """Continue a sequence with a text; `before`: its known earlier tokens.

        The next `advance` processes the text. drafts: drafters may propose its continuation.
        ContextError if it is empty.
        """
        if not len(ids):
            raise ContextError("the prompt is empty; pass at least one token")
        text, end = self._text(seq_id, before), self.ctx.memory.seq_pos_max(seq_id) + 1
        text.add(ids)
        told = end if self.cache.is_tracked(seq_id) else None
        mixed = is_mixed(before, ids)
        drafted = drafts and not mixed and self.drafts is not None
        track = Track(seq_id, text, list(ids), told, mixed=mixed, drafted=drafted)
        self._tracks[seq_id] = track
        if self.drafts is not None:
            self.drafts.begin(track)

    def _text(self, seq_id: int, before: Sequence[int]) -> KnownText:
        """Return the known text of a sequence, up to the end of its memory."""
        held = self.ctx.memory.seq_pos_max(seq_id) + 1
        if is_mixed(before):  # an image may take more positions than its cells have
            held = len(before)
        text = self._texts.get(seq_id)
        if text is None or not text.first <= held <= text.end:
            text = self._texts[seq_id] = KnownText(
                held - len(before) if len(before) == held else held
            )
            text.add(before if len(before) == held else ())
        text.cut(held)
        if len(before) == held and text.ids.tolist() != list(before[text.first :]):
            text = self._texts[seq_id] = KnownText()  # another sequence's cells were copied
            text.add(before)
        return text

    def read_mixed(self, seq_id: int, ids: MixedPrompt) -> None:
        """Continue a sequence with text and images, which are computed immediately."""
        self.extend(seq_id, ids, ids.before, drafts=False)
        track = self._tracks[seq_id]
        track.rows, track.pending = ids.read(self.ctx, seq_id)[-1:], []
        self.cache.hold([*ids.before, *ids], seq_id)
        track.begun = track.alone = True

    def limit(self, seq_id: int, n_left: int, allowed: Allowed | None = None) -> None:
        """Limit the number of further tokens and drafts. Only the first allowed(draft) tokens of a
        draft are verified, as the sampler would reject the others."""
        self._tracks[seq_id].n_left, self._tracks[seq_id].allowed = n_left, allowed

    def advance(
        self, seq_ids: Sequence[int] | None = None, pieces: Mapping[int, int] | None = None
    ) -> None:
        """Draft for sequences (None: all) and compute their pending tokens and drafts in one batch.

        pieces  maximum number of a sequence's pending tokens and rows of images to compute now; it
                has rows after its last pending token

        Rows that were not taken are lost, also other sequences' rows. ContextError if the KV cache
        is full.
        """
        if seq_ids is not None and len(seq_ids) == 1 == len(self._tracks) and not pieces:
            track = self._tracks[seq_ids[0]]
            if not (track.drafted or track.mixed or track.rows is not None):
                self._compute_pending(track)
                return
        chosen = self._tracks.values() if seq_ids is None else [self._tracks[s] for s in seq_ids]
        tracks = list(chosen)
        for track in self._tracks.values():
            self._settle(track)
            self._look_up(track)
        if self.drafts is not None:
            self.drafts.draft(tracks, self._max_tokens)
        most = pieces or {}
        try:
            self._decode(tracks, most)
        except ContextError:
            if not self.ctx.cparams.kv_unified or not any(track.draft for track in tracks):
                raise
            for track in tracks:  # too few free cells in a unified KV cache
                track.draft = []
            self._decode(tracks, most)

    def _compute_pending(self, track: Track) -> None:
        """Compute the pending tokens of the only sequence, usually one token that the cache
        expects."""
        if not track.pending:
            raise _no_tokens_error(track)
        track.begun, track.alone = False, True
        rows = self.cache.decode(track.pending, track.seq_id)
        track.rows = rows.copy() if self.keeps_rows else rows
        track.pending, track.begun = [], True

    def _look_up(self, track: Track) -> None:
        """Update the cached length of a sequence that continued alone."""
        if track.alone:
            track.told = track.pos if self.cache.is_tracked(track.seq_id) else None
            track.alone = False

    def skip(self, seq_id: int, n: int) -> None:
        """Skip the first n pending ids, which are image positions; memory has their content now."""
        track = self._tracks[seq_id]
        track.pending = track.pending[n:]
        self._tell(track, track.pos)

    def place(self, seq_id: int, at: int, rows: MediaRows) -> None:
        """Set the rows of a sequence's image at a pending position; `advance` computes them."""
        self._tracks[seq_id].images[at] = rows

    def images(self, seq_id: int) -> Mapping[int, MediaRows]:
        """Return the placed images that `advance` must still compute, by position."""
        return self._tracks[seq_id].images

    def read(self, wanted: Mapping[int, int]) -> dict[int, F32]:
        """Compute pending tokens of sequences in one batch: the first wanted[seq_id] of each, or
        fewer; -> their logits [n, n_vocab] by sequence, valid until the context computes again."""
        parts, left = [], self.ctx.cparams.n_batch
        for track in self._by_stream([self._tracks[seq_id] for seq_id in wanted]):
            self._look_up(track)
            most = min(wanted[track.seq_id], left, self._max_tokens(track))
            if n := min(most, len(track.pending)):
                parts.append((track, n))
                left -= n
        rows = self._read(parts, "all")
        ends = np.cumsum([n for _, n in parts])[:-1]
        ids = [track.seq_id for track, _ in parts]
        return dict(zip(ids, np.split(rows, ends), strict=True))

    def pending(self, seq_id: int) -> list[int]:
        """Return the tokens of a sequence that memory does not have, without its draft."""
        return self._tracks[seq_id].pending

    def next_row(self, seq_id: int) -> F32:
        """Return the logits [n_vocab] that `take` chooses the next token from; see `has_rows`."""
        track = self._tracks[seq_id]
        if track.rows is None or not (track.alone or track.has_rows):
            raise ContextError(f"sequence {seq_id} has no logits; call advance first")
        row: F32 = track.rows[track.n_taken]
        return row

    def n_guesses(self, seq_id: int) -> int:
        """Return the number of draft tokens that the rows belong to."""
        return len(self._tracks[seq_id].draft)

    def tokens(self, seq_id: int) -> list[int]:
        """Return the known text of a sequence, including chosen tokens."""
        return self._tracks[seq_id].text.tokens_since(0)

    def make_room(self, seq_id: int, keep: KeepRule) -> int:
        """Shift a sequence if it is full; return the number of discarded tokens."""
        track = self._tracks[seq_id]
        self._settle(track)
        held = self.ctx.memory.seq_pos_max(seq_id) + 1
        if not track.begun or held < self.ctx.cparams.n_ctx_seq:
            return 0
        n = shift(self.ctx, seq_id, keep.n, keep.n_discard)
        track.text.remove(keep.n, n)
        track.told = None
        if self.drafts is not None:
            self.drafts.shift(track, keep.n, n, held)
        return n

    def has_rows(self, seq_id: int) -> bool:
        """Return True if `take` can return a token before the next `advance`."""
        track = self._tracks[seq_id]
        return track.rows is not None and (track.alone or track.has_rows)

    def take(self, seq_id: int, choose: Choose) -> tuple[int, F32]:
        """Choose the next token. Its id, and the logits [n_vocab] that it was chosen from."""
        track, row = self._tracks[seq_id], self.next_row(seq_id)
        id = choose(row)
        track.text.add([id])
        if track.alone:  # no draft
            track.pending, track.rows = [id], None
            return id, row
        if track.n_taken < len(track.draft) and track.draft[track.n_taken] == id:
            track.n_accepted += 1
        track.n_taken += 1
        if not track.has_rows:
            self._settle(track)
        return id, row

    def finish(self, seq_id: int, whole: bool = True) -> None:
        """End a sequence; memory then has all its tokens except the last, or without `whole` only
        the tokens that it already has."""
        track = self._tracks.pop(seq_id, None)
        if track is None:
            return
        self._settle(track)
        if whole and track.begun and len(track.pending) > 1:
            self._look_up(track)
            self._read([(track, len(track.pending) - 1)])

    def close(self) -> None:
        """Release the drafters' memory; the context is unchanged."""
        if self.drafts is not None:
            self.drafts.close()

    def text(self) -> str:
        """Return the statistics of drafts, one line per draft method."""
        return self.drafts.text() if self.drafts else ""

    def _settle(self, track: Track) -> None:
        """Roll back tokens that were not chosen; memory may then lack more than the last token."""
        if track.rows is None:
            return
        if track.alone:  # its row is lost
            track.rows = None
            return
        self._take_back(track, track.text.end - (1 if track.n_taken else 0))
        if track.draft and self.drafts is not None:
            self.drafts.accept(track)
        track.draft, track.rows, track.n_taken, track.n_accepted = [], None, 0, 0

    def _take_back(self, track: Track, pos: int) -> None:
        """Keep only positions before `pos` in memory, or fewer; the rest is pending."""
        text = track.text
        at = self.rollback.truncate(track.seq_id, pos)
        if at < text.first:
            raise ContextError(
                f"sequence {track.seq_id} cannot roll back, because its first tokens are "
                "unknown; do not decode other sequences of this context during a draft"
            )
        track.pending = text.tokens_since(at)
        self._tell(track, at)

    def _decode(self, tracks: Sequence[Track], most: Mapping[int, int]) -> None:
        for track in tracks:
            if not track.pending:
                raise _no_tokens_error(track)
            while not (track.seq_id in most or track.images) and 1 < len(track.pending) > (
                n := self._max_tokens(track)
            ):
                self._read([(track, n)])
        for track in tracks:
            self.rollback.mark(track.seq_id, len(track.draft))
        tracks = self._by_stream(tracks)
        parts = [self._part(track, most) for track in tracks]
        starts = [t.pos for t in tracks]
        try:
            rows = self._rows(parts)
        except BaseException:
            self._drop_guesses(tracks)
            raise
        row = 0
        for part in parts:
            track, n = part.track, part.n_rows
            part.note_images()
            if n == 0:
                track.pending = track.pending[part.n_ids :]
                self._tell(track, track.pos)
                continue
            track.rows, row = rows[row : row + n], row + n
            track.begun = True
            if not track.draft:
                self._tell(track, track.text.end)
        self._show([(part.track, at, part.tokens) for part, at in zip(parts, starts, strict=True)])

    def _rows(self, parts: Sequence[Part]) -> F32:
        """Compute tokens of sequences, and return the logits of the last tokens of each part."""
        # the caller takes the rows of a draft separately
        keep, only = self.keeps_rows or any(part.n_rows > 1 for part in parts), parts[0]
        if len(parts) == 1 and len(only.tokens) == only.n_rows == 1 and self._follows(only.track):
            # reuses the graph of the preceding token
            return self.ctx.decode(only.tokens, seq_id=only.track.seq_id, copy=keep)
        seq_ids = [(part.track.seq_id,) for part in parts for _ in part.tokens]
        outputs = [i >= len(p.tokens) - p.n_rows for p in parts for i in range(len(p.tokens))]
        if any(part.images for part in parts):
            entries = Entries(self.ctx.model.hparams.n_pos_per_embd)
            for part in parts:
                part.append_entries(entries)
            return self.ctx.decode(entries.batch(seq_ids, outputs), copy=keep)
        batch = Batch(
            [id for part in parts for id in part.tokens],
            pos=[part.track.pos + i for part in parts for i in range(len(part.tokens))],
            seq_ids=seq_ids,
            outputs=outputs,
        )
        return self.ctx.decode(batch, copy=keep)

    def _follows(self, track: Track) -> bool:
        """Return True if pending tokens follow at the position after the last in memory."""
        return not track.mixed or self.ctx.memory.seq_pos_max(track.seq_id) + 1 == track.pos

    def _part(self, track: Track, most: Mapping[int, int]) -> Part:
        """Return a sequence's tokens to compute now."""
        n = len(track.pending)
        if track.images:
            n_batch = self.ctx.cparams.n_batch
            n_axes = self.ctx.model.hparams.n_pos_per_embd
            most_entries = min(most.get(track.seq_id, n_batch), n_batch)
            return part_with_images(track, most_entries, self._max_tokens(track), n_axes)
        if n > 1 and (n := min(most.get(track.seq_id, n), self._max_tokens(track))) < len(
            track.pending
        ):
            return Part(track, track.pending[:n], 0, n)
        return Part(track, [*track.pending, *track.draft], len(track.draft) + 1, n)

    def _drop_guesses(self, tracks: Sequence[Track]) -> None:
        """Roll back draft tokens that a failed decode has computed."""
        for track in tracks:
            held = self.ctx.memory.seq_pos_max(track.seq_id) + 1
            track.begun = False
            if held != track.told or not self.cache.is_tracked(track.seq_id):
                track.told = None
            if track.draft:
                self.rollback.truncate(track.seq_id, track.text.end)

    def _by_stream(self, tracks: Sequence[Track]) -> Sequence[Track]:
        """Return sequences in the order in which one ubatch can compute them."""
        streams = self.ctx.memory.streams
        return sorted(tracks, key=lambda t: streams[t.seq_id]) if streams else tracks

    def _read(self, parts: Sequence[tuple[Track, int]], logits: Wanted = "none") -> F32:
        """Compute the first n pending tokens of each sequence in one batch."""
        taken = [(track, track.pos, track.pending[:n]) for track, n in parts]
        batch = Batch(
            [id for *_, ids in taken for id in ids],
            pos=[pos + i for _, pos, ids in taken for i in range(len(ids))],
            seq_ids=[(track.seq_id,) for track, _, ids in taken for _ in ids],
        )
        rows = self.ctx.decode(batch, logits, copy=False)
        for track, pos, ids in taken:
            track.pending = track.pending[len(ids) :]
            self._tell(track, pos + len(ids))
        self._show(taken)
        return rows

    def _show(self, parts: Sequence[tuple[Track, int, Sequence[int]]]) -> None:
        """Pass computed tokens to drafters: of each sequence the first position and the tokens."""
        if self.drafts is not None:
            self.drafts.observe(parts)

    def _max_tokens(self, track: Track) -> int:
        """Return how many tokens may be computed at once: a snapshot may be due after them."""
        n = None if track.told is None else self.cache.until_snapshot(track.seq_id)
        if n is not None and track.told is not None:
            n = max(n - (track.pos - track.told), 0)
        return min(self.ctx.cparams.n_batch, n or self.ctx.cparams.n_batch)

    def _tell(self, track: Track, pos: int) -> None:
        """Update the cache: tokens before `pos` are final."""
        if track.mixed and self.ctx.memory.seq_pos_max(track.seq_id) + 1 != pos:
            return  # after an image, positions and memory agree at the next token
        if track.told is None or pos < track.told:
            track.told = None
        elif pos > track.told:
            ids = track.text.tokens_since(track.told)[: pos - track.told]
            self.cache.advance(ids, track.seq_id)
            track.told = pos

    of = Former("for_context")


def _drafts(ctx: Context, drafting: SpeculativeParams) -> Drafts | None:
    if not drafting.drafts:
        return None
    from llama_py.decoding.drafting.drafts import Drafts  # few contexts have any

    return Drafts(ctx, drafting)


def _no_tokens_error(track: Track) -> ContextError:
    return ContextError(
        f"sequence {track.seq_id} has no new token to continue with; call take or start first"
    )
