"""Rounds of drafting and checking (examples/speculative-simple, common/speculative.cpp).

    with Speculator(ctx, spec_type="draft-mtp") as speculator:
        speculator.start(0, prompt)
        while ...:
            speculator.advance()                         # draft, and check all drafts in one batch
            while speculator.has_rows(0):
                id, logits = speculator.take(0, choose)  # as often as the draft was right, and once
        speculator.finish(0)

Each token is chosen from the logits that the model gives after the tokens before it, in order, and
only a token that was chosen stays: so with any way to choose, the text has the distribution that it
would have without drafts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from time import perf_counter
from typing import Any

from ggml_py.errors import ContextError
from llama_py.batch import F32, Batch, Wanted
from llama_py.batch.prompts import is_mixed
from llama_py.context import Context
from llama_py.decoding.drafting.drafter import Drafter, Request, Seen, Setting, drafter
from llama_py.decoding.drafting.needs import load_draft, settled
from llama_py.decoding.drafting.rollback import Rollback
from llama_py.decoding.drafting.statistics import Statistics
from llama_py.decoding.drafting.text import Text
from llama_py.decoding.drafting.track import Allowed, Track
from llama_py.decoding.keep import shift
from llama_py.loading.model import Loaded
from llama_py.params.speculative import SpeculativeParams
from llama_py.support.closing import Closing
from llama_py.support.signature import takes

_OPTIONS = [f.name for f in fields(SpeculativeParams)]
N_GRAPHS = 16  # built graphs that a context keeps: there is one for each length of a draft

Choose = Callable[[F32], int]


class Speculator(Closing):
    """Drafts for the sequences of a context and checks the drafts.

    statistics   by the name of the way to draft
    rollback     counts checkpoints
    keeps_rows   what `take` gives stays as it is when the context computes something else, before
                 it is taken or after; if not, a single row lies where the graph wrote it
    """

    @takes(SpeculativeParams)
    def __init__(self, ctx: Context, **options: Any) -> None:
        """options are the fields of SpeculativeParams.

        Raises ContextError for a way to draft that the model does not have, ModelError for a draft
        model with another vocabulary, and what loading that may raise.
        """
        self.ctx = ctx
        self.params = SpeculativeParams(**options)
        p = settled(self.params)
        kinds = {name: drafter(name) for name in p.drafters}
        self._loaded = load_draft(ctx, p, kinds.values())
        given = p.model_draft if isinstance(p.model_draft, Loaded) else self._loaded
        self._drafters: dict[str, Drafter] = {}
        self._tracks: dict[int, Track] = {}
        self._texts: dict[int, Text] = {}
        self.statistics = {name: Statistics() for name in kinds}
        self.rollback = Rollback(ctx)
        self.keeps_rows = False
        ctx.runner.n_graphs = max(ctx.runner.n_graphs, N_GRAPHS)
        try:
            for name, kind in kinds.items():
                self._drafters[name] = kind.made(Setting(ctx, p, given))
        except BaseException:
            self.close()
            raise

    @property
    def contexts(self) -> list[Context]:
        """That of the text, and those of drafters."""
        return [self.ctx, *(ctx for one in self._drafters.values() for ctx in one.contexts)]

    @property
    def n_max(self) -> int:
        """Tokens of the longest drafts."""
        return max((one.n_max(self.params) for one in self._drafters.values()), default=0)

    def start(self, seq_id: int, ids: Sequence[int], before: Sequence[int] = ()) -> None:
        """A sequence goes on with a prompt; `before` is what it has, where that is known.

        The prompt is read by the next `advance`. ContextError if it is empty.
        """
        if not len(ids):
            raise ContextError("the prompt is empty: there is nothing to go on from")
        held = end = self.ctx.memory.seq_pos_max(seq_id) + 1
        if is_mixed(before):  # an image may take more positions than its cells have
            held = len(before)
        text = self._texts.get(seq_id)
        if text is None or not text.first <= held <= text.end:
            text = self._texts[seq_id] = Text(held - len(before) if len(before) == held else held)
            text.add(before if len(before) == held else ())
        text.cut(held)
        if len(before) == held and text.ids.tolist() != list(before[text.first :]):
            text = self._texts[seq_id] = Text()  # it has what another sequence had
            text.add(before)
        text.add(ids)
        told = end if self.ctx.reuse.knows(seq_id) else None
        mixed = is_mixed(before, ids)
        self._tracks[seq_id] = Track(seq_id, text, list(ids), told, mixed=mixed)
        for one in () if mixed else self._drafters.values():
            one.begin(seq_id, text.ids)

    def limit(self, seq_id: int, n_left: int, allowed: Allowed | None = None) -> None:
        """No more tokens than this will be taken: it does not draft any further; of a draft only
        the first allowed(draft) tokens are checked, as the others would not be chosen."""
        self._tracks[seq_id].n_left, self._tracks[seq_id].allowed = n_left, allowed

    def advance(
        self, seq_ids: Iterable[int] | None = None, pieces: Mapping[int, int] | None = None
    ) -> None:
        """Draft for sequences (None: all that were started) and compute the drafts in one batch.

        pieces  how many of the pending tokens of a sequence are computed now, at most; it has rows
                once none is left

        Rows that were not taken are lost, also those of other sequences. ContextError if there is
        no room.
        """
        chosen = self._tracks.values() if seq_ids is None else [self._tracks[s] for s in seq_ids]
        tracks = list(chosen)
        for track in self._tracks.values():
            self._settle(track)
        self._draft(tracks)
        most = pieces or {}
        try:
            self._decode(tracks, most)
        except ContextError:
            if not self.ctx.cparams.kv_unified or not any(track.draft for track in tracks):
                raise
            for track in tracks:  # sequences share cells, of which there may be too few
                track.draft = []
            self._decode(tracks, most)

    def skip(self, seq_id: int, n: int) -> None:
        """The first n pending ids of a sequence are of no tokens, and the memory has now what they
        stand for."""
        track = self._tracks[seq_id]
        track.pending = track.pending[n:]
        self._tell(track, track.pos)

    def read(self, seq_id: int, n: int) -> F32:
        """Compute the first pending tokens of a sequence, at most n; -> their logits
        [n_vocab, n], valid until the context computes again."""
        track = self._tracks[seq_id]
        return self._read(track, min(n, self._most(track)), "all")

    def n_pending(self, seq_id: int) -> int:
        """Tokens of a sequence that are still to be computed, but for those of a draft."""
        return len(self._tracks[seq_id].pending)

    def n_guesses(self, seq_id: int) -> int:
        """Tokens of the draft that its rows are about."""
        return len(self._tracks[seq_id].draft)

    def tokens(self, seq_id: int) -> list[int]:
        """A sequence's text as far as it is known, with what was chosen."""
        return self._tracks[seq_id].text.since(0)

    def make_room(self, seq_id: int, n_keep: int, n_discard: int = 0) -> int:
        """`context_shift.shift`, if a sequence is full. -> how many tokens left"""
        track = self._tracks[seq_id]
        self._settle(track)
        held = self.ctx.memory.seq_pos_max(seq_id) + 1
        if not track.begun or held < self.ctx.cparams.n_ctx_seq:
            return 0
        n = shift(self.ctx, seq_id, n_keep, n_discard)
        track.text.remove(n_keep, n)
        track.told = None
        for one in self._drafters.values():
            one.shift(seq_id, n_keep, n, held)
            one.begin(seq_id, track.text.ids)
        return n

    def has_rows(self, seq_id: int) -> bool:
        """Whether a token can be taken before the next `advance`."""
        return self._tracks[seq_id].has_rows

    def take(self, seq_id: int, choose: Choose) -> tuple[int, F32]:
        """Choose the next token. Its id, and the logits [n_vocab] that it was chosen from."""
        track = self._tracks[seq_id]
        if track.rows is None or not track.has_rows:
            raise ContextError(f"sequence {seq_id} has no logits left; advance it first")
        row = track.rows[track.n_taken]
        id = choose(row)
        track.text.add([id])
        if track.n_taken < len(track.draft) and track.draft[track.n_taken] == id:
            track.n_accepted += 1
        track.n_taken += 1
        if not track.has_rows:
            self._settle(track)
        return id, row

    def finish(self, seq_id: int, whole: bool = True) -> None:
        """A sequence goes on no more: the memory then has all of its tokens but the last, or
        without `whole` those that it has anyway."""
        track = self._tracks.pop(seq_id, None)
        if track is None:
            return
        self._settle(track)
        if whole and track.begun and len(track.pending) > 1:
            self._read(track, len(track.pending) - 1)

    def close(self) -> None:
        """Give the memory of drafters back; the context stays."""
        for one in self._drafters.values():
            one.close()
        self._drafters = {}
        if self._loaded is not None:
            self._loaded.close()

    def text(self) -> str:
        """The statistics, a line for each way to draft."""
        return "\n".join(f"{name}: {s.text()}" for name, s in self.statistics.items())

    def _settle(self, track: Track) -> None:
        """Take back what was not chosen; the memory may then lack more than the last token."""
        if track.rows is None:
            return
        text = track.text
        at = self.rollback.back_to(track.seq_id, text.end - (1 if track.n_taken else 0))
        if at < text.first:
            raise ContextError(
                f"sequence {track.seq_id} cannot go back, and what it began with is not known; do"
                " not decode others of this context in the middle of a draft"
            )
        track.pending = text.since(at)
        self._tell(track, at)
        if track.draft:
            self.statistics[track.author].add(len(track.draft), track.n_accepted)
            track.length(track.author).update(len(track.draft), track.n_accepted)
            for name, one in self._drafters.items():
                one.accept(track.seq_id, track.n_accepted, name == track.author)
        track.draft, track.rows, track.n_taken, track.n_accepted = [], None, 0, 0

    def _draft(self, tracks: Sequence[Track]) -> None:
        room = self.ctx.cparams.n_ubatch // max(len(tracks), 1) - 1
        # what had to be taken back to a checkpoint is first computed again
        able = (t for t in tracks if not t.mixed)
        open = {t.seq_id: t for t in able if len(t.pending) == 1 and t.text.n > 1}
        for name, one in self._drafters.items():
            requests = []
            for track in open.values():
                free = self.ctx.cparams.n_ctx_seq - track.text.end
                n = min(one.n_max(self.params), track.n_left - 1, room, free, self._most(track) - 1)
                if self.params.spec_draft_adaptive and n > 0:
                    n = track.length(name).best(n)
                if n > 0:
                    text = track.text
                    requests.append(Request(track.seq_id, text.ids, text.end - 1, n))
            start = perf_counter()
            drafts = self._guesses(one, requests) if requests else {}
            self.statistics[name].seconds += perf_counter() - start
            for request in requests:
                guess = list(drafts.get(request.seq_id, ()))[: request.n_max]
                if (allowed := open[request.seq_id].allowed) is not None:
                    guess = guess[: allowed(guess)]
                if guess:
                    track = open.pop(request.seq_id)
                    track.draft, track.author = guess, name

    def _guesses(self, one: Drafter, requests: Sequence[Request]) -> Mapping[int, list[int]]:
        try:
            return one.draft(requests)
        except ContextError:
            if not self.ctx.cparams.kv_unified:  # only sequences that share cells may lack some
                raise
            return {}

    def _decode(self, tracks: Sequence[Track], most: Mapping[int, int]) -> None:
        for track in tracks:
            if not track.pending:
                raise ContextError(
                    f"sequence {track.seq_id} has nothing to go on from: take a token, or start it"
                )
            while track.seq_id not in most and 1 < len(track.pending) > (n := self._most(track)):
                self._read(track, n)
        for track in tracks:
            self.rollback.mark(track.seq_id, len(track.draft))
        parts = [self._part(track, most) for track in tracks]
        starts = [t.pos for t in tracks]
        try:
            rows = self._rows(parts)
        except BaseException:
            self._drop_guesses(tracks)
            raise
        row = 0
        for ids, n, track in parts:
            if n == 0:
                track.pending = track.pending[len(ids) :]
                self._tell(track, track.pos)
                continue
            track.rows, row = rows[row : row + n], row + n
            track.begun = True
            if not track.draft:
                self._tell(track, track.text.end)
        self._show([(t, pos, ids) for (ids, _, t), pos in zip(parts, starts, strict=True)])

    def _rows(self, parts: Sequence[tuple[list[int], int, Track]]) -> F32:
        """Compute tokens of sequences: the logits of as many at the end of each as it says."""
        # rows of a draft are taken one by one
        keep = self.keeps_rows or any(n > 1 for _, n, _ in parts)
        if len(parts) == 1 and len(parts[0][0]) == parts[0][1] == 1 and self._follows(parts[0][2]):
            # its graph is there
            return self.ctx.decode(parts[0][0], seq_id=parts[0][2].seq_id, copy=keep)
        batch = Batch(
            [id for ids, _, _ in parts for id in ids],
            pos=[t.pos + i for ids, _, t in parts for i in range(len(ids))],
            seq_ids=[(t.seq_id,) for ids, _, t in parts for _ in ids],
            outputs=[i >= len(ids) - n for ids, n, _ in parts for i in range(len(ids))],
        )
        return self.ctx.decode(batch, copy=keep)

    def _follows(self, track: Track) -> bool:
        """Whether what is pending follows at the position after the last in memory."""
        return not track.mixed or self.ctx.memory.seq_pos_max(track.seq_id) + 1 == track.pos

    def _part(self, track: Track, most: Mapping[int, int]) -> tuple[list[int], int, Track]:
        """What of a sequence is computed now, and of how many tokens at its end there are rows."""
        n = len(track.pending)
        if n > 1 and (n := min(most.get(track.seq_id, n), self._most(track))) < len(track.pending):
            return track.pending[:n], 0, track
        return [*track.pending, *track.draft], len(track.draft) + 1, track

    def _drop_guesses(self, tracks: Sequence[Track]) -> None:
        """Roll back what a failed decode has computed of drafts."""
        for track in tracks:
            held = self.ctx.memory.seq_pos_max(track.seq_id) + 1
            track.begun = False
            if held != track.told or not self.ctx.reuse.knows(track.seq_id):
                track.told = None
            if track.draft:
                self.rollback.back_to(track.seq_id, track.text.end)

    def _read(self, track: Track, n: int, logits: Wanted = "none") -> F32:
        """Compute the first n pending tokens."""
        ids, pos = track.pending[:n], track.pos
        batch = Batch(ids, None, range(pos, pos + n), [(track.seq_id,)] * n)
        rows = self.ctx.decode(batch, logits, copy=False)
        track.pending = track.pending[n:]
        self._tell(track, pos + n)
        self._show([(track, pos, ids)])
        return rows

    def _most(self, track: Track) -> int:
        """Tokens that may be computed at once: a snapshot may be due after them."""
        n = None if track.told is None else self.ctx.reuse.until_snapshot(track.seq_id)
        if n is not None and track.told is not None:
            n = max(n - (track.pos - track.told), 0)
        return min(self.ctx.cparams.n_batch, n or self.ctx.cparams.n_batch)

    def _tell(self, track: Track, pos: int) -> None:
        """Let the context know what is in the memory for good: tokens before a position."""
        if track.mixed and self.ctx.memory.seq_pos_max(track.seq_id) + 1 != pos:
            return  # the token behind an image makes the memory end where the text does
        if track.told is None or pos < track.told:
            track.told = None
        elif pos > track.told:
            ids = track.text.since(track.told)[: pos - track.told]
            self.ctx.reuse.advance(ids, track.seq_id)
            track.told = pos

    def _show(self, parts: Sequence[tuple[Track, int, Sequence[int]]]) -> None:
        """Let drafters see what was computed: of each sequence its first position and tokens."""
        h, at, seen = self.ctx.h_nextn, 0, []
        for track, pos, ids in parts:
            end = at + len(ids)
            layers = {il: rows[at:end] for il, rows in self.ctx.layer_inp.items()}
            if not track.mixed:
                rows = None if h is None else h[at:end]
                seen.append(Seen(track.seq_id, pos, ids, rows, layers))
            at = end
        for one in self._drafters.values():
            one.observe(seen)


def speculator_of(ctx: Context, p: SpeculativeParams) -> Speculator:
    """The one of a context with these options: it is kept, as it knows what was said before."""
    options = {name: getattr(p, name) for name in _OPTIONS}
    found = ctx.speculator
    if isinstance(found, Speculator):
        if found.params == SpeculativeParams(**options):
            return found
        found.close()
    ctx.speculator = None
    made = ctx.speculator = Speculator(ctx, **options)
    return made
