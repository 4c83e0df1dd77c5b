"""Drafters of a context's sequences: they propose tokens and receive the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from ggml_py.errors import ContextError
from llama_py.context import Context
from llama_py.decoding.drafting.drafter import (
    ComputedTokens,
    Drafter,
    DrafterSetting,
    DraftRequest,
    drafter,
)
from llama_py.decoding.drafting.needs import load_draft, resolve_draft_method
from llama_py.decoding.drafting.statistics import DraftStatistics
from llama_py.decoding.track import Track
from llama_py.loading.model import LoadedModel
from llama_py.params.speculative import SpeculativeParams

N_GRAPHS = 16  # built graphs per context: each draft length has a graph


class Drafts:
    """The chosen draft methods, in their order.

    statistics   by name of the draft method
    """

    def __init__(self, ctx: Context, params: SpeculativeParams) -> None:
        """Create the drafters of a context.

        Raises ContextError for a draft method that the model does not support, ModelError for a
        draft model with another vocabulary, and errors of loading it."""
        self.ctx, self.params = ctx, params
        p = resolve_draft_method(params)
        kinds = {name: drafter(name) for name in p.drafters}
        self._loaded = load_draft(ctx, p, kinds.values())
        given = p.model_draft if isinstance(p.model_draft, LoadedModel) else self._loaded
        self._drafters: dict[str, Drafter] = {}
        self.statistics = {name: DraftStatistics() for name in kinds}
        ctx.runner.n_graphs = max(ctx.runner.n_graphs, N_GRAPHS)
        try:
            for name, kind in kinds.items():
                self._drafters[name] = kind.create(DrafterSetting(ctx, p, given))
        except BaseException:
            self.close()
            raise

    @property
    def contexts(self) -> list[Context]:
        """Draft contexts of all drafters."""
        return [ctx for one in self._drafters.values() for ctx in one.contexts]

    @property
    def n_max(self) -> int:
        """Tokens of the longest drafts."""
        return max((one.n_max(self.params) for one in self._drafters.values()), default=0)

    def begin(self, track: Track) -> None:
        """Notify drafters of a sequence's current text."""
        for one in self._drafters.values() if track.drafted else ():
            one.begin(track.seq_id, track.text.ids)

    def shift(self, track: Track, pos: int, n: int, end: int) -> None:
        """Notify drafters that n of a sequence's `end` tokens were removed at `pos`."""
        for one in self._drafters.values() if track.drafted else ():
            one.shift(track.seq_id, pos, n, end)
            one.begin(track.seq_id, track.text.ids)

    def draft(self, tracks: Sequence[Track], most: Callable[[Track], int]) -> None:
        """Draft for sequences that lack one token, by the first drafter with a proposal.

        most   number of a sequence's tokens that may be computed at once
        """
        room = self.ctx.cparams.n_ubatch // max(len(tracks), 1) - 1
        # tokens after a checkpoint are computed first, without a draft
        able = (t for t in tracks if t.drafted)
        open = {t.seq_id: t for t in able if len(t.pending) == 1 and t.text.n > 1}
        for name, one in self._drafters.items():
            requests = []
            for track in open.values():
                free = self.ctx.cparams.n_ctx_seq - track.text.end
                n = min(one.n_max(self.params), track.n_left - 1, room, free, most(track) - 1)
                if self.params.spec_draft_adaptive and n > 0:
                    n = track.length(name).find_best(n)
                if n > 0:
                    text = track.text
                    requests.append(DraftRequest(track.seq_id, text.ids, text.end - 1, n))
            start = perf_counter()
            guesses = self._guesses(one, requests) if requests else {}
            self.statistics[name].seconds += perf_counter() - start
            for request in requests:
                guess = list(guesses.get(request.seq_id, ()))[: request.n_max]
                if (allowed := open[request.seq_id].allowed) is not None:
                    guess = guess[: allowed(guess)]
                if guess:
                    track = open.pop(request.seq_id)
                    track.draft, track.author = guess, name

    def _guesses(self, one: Drafter, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        try:
            return one.draft(requests)
        except ContextError:
            if not self.ctx.cparams.kv_unified:  # only a unified KV cache may lack cells
                raise
            return {}

    def accept(self, track: Track) -> None:
        """Notify drafters of the accepted tokens of a sequence's draft."""
        self.statistics[track.author].add(len(track.draft), track.n_accepted)
        track.length(track.author).update(len(track.draft), track.n_accepted)
        for name, one in self._drafters.items():
            one.accept(track.seq_id, track.n_accepted, name == track.author)

    def observe(self, parts: Sequence[tuple[Track, int, Sequence[int]]]) -> None:
        """Pass computed tokens to drafters: of each sequence the first position and the tokens."""
        h, at, seen = self.ctx.h_nextn, 0, []
        for track, pos, ids in parts:
            end = at + len(ids)
            layers = {il: rows[at:end] for il, rows in self.ctx.layer_inp.items()}
            if track.drafted:
                rows = None if h is None else h[at:end]
                seen.append(ComputedTokens(track.seq_id, pos, ids, rows, layers))
            at = end
        for one in self._drafters.values():
            one.observe(seen)

    def text(self) -> str:
        """Return the statistics, one line per draft method."""
        return "\n".join(f"{name}: {s.text()}" for name, s in self.statistics.items())

    def close(self) -> None:
        """Give the memory of drafters back."""
        for one in self._drafters.values():
            one.close()
        self._drafters = {}
        if self._loaded is not None:
            self._loaded.close()
