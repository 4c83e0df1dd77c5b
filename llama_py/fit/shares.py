"""Distribution of layers by size: the best answer that fits, or the nearest one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence

from llama_py.fit.answer import FitAnswer
from llama_py.fit.sizes import ModelSizes

SHIFTS = 8  # maximum move of a boundary between devices, in layers, to fit more experts


class LayerShares:
    """room     bytes of each device for weights and caches, the host's last
    largest  bytes of one buffer, None for no limit; caches of a device are in one
    """

    def __init__(
        self, sizes: ModelSizes, room: Sequence[int], largest: Sequence[int | None]
    ) -> None:
        self.sizes, self.largest = sizes, largest
        self.room = [n - always for n, always in zip(room, sizes.always, strict=True)]
        self.n_all = len(sizes.layers)
        self.moe = frozenset(il for il, x in enumerate(sizes.layers) if x.experts)

    def create_answer(
        self, n_layers: Sequence[int], n_ctx: int, on_host: frozenset[int]
    ) -> FitAnswer:
        return FitAnswer(tuple(n_layers), on_host, n_ctx, self.n_all, len(self.moe))

    def dealt(
        self,
        n_ctx: int,
        n: int,
        on_host: frozenset[int],
        slack: int = 0,
        devices: Collection[int] | None = None,
    ) -> FitAnswer | None:
        """Distribute the n last layers over `devices` (default: all), leaving `slack` bytes per
        device; None if they do not fit."""
        layers, caches = self.sizes.layers, self.caches(n_ctx)
        counts = [0] * (len(self.room) - 1)
        i = len(counts) - 1
        used = cached = 0
        for il in reversed(range(self.n_all - n, self.n_all)):
            layer, kept = layers[il], il in on_host
            widest = layer.widest if kept else max(layer.widest, layer.widest_expert)
            size = layer.dense + caches[il] + (0 if kept else layer.experts)
            while i >= 0 and not (
                (devices is None or i in devices)
                and used + size <= self.room[i] - slack
                and self.allows(i, max(widest, cached + caches[il]))
            ):
                i, used, cached = i - 1, 0, 0
            if i < 0:
                return None
            counts[i] += 1
            used, cached = used + size, cached + caches[il]
        return self.create_answer(counts, n_ctx, on_host)

    def compactly(self, n_ctx: int) -> FitAnswer | None:
        """Distribute the whole model over the fewest devices, the largest first: a layer on another
        device costs a copy per graph, and saves no time. None if it does not fit."""
        by_room = sorted(range(len(self.room) - 1), key=lambda i: -self.room[i])
        for n in range(1, len(by_room) + 1):
            chosen = by_room[:n]
            if found := self.dealt(n_ctx, self.n_all, frozenset(), devices=chosen):
                return self.evenly(found, chosen)
        return None

    def evenly(self, answer: FitAnswer, devices: Collection[int] | None = None) -> FitAnswer:
        """Distribute the same layers over `devices` (default: all) so that their least free memory
        is maximal."""
        low, high, n = 0, max(self.room), sum(answer.n_layers)
        several = len(answer.n_layers if devices is None else devices) > 1
        while several and high - low > max(self.room) >> 12:
            slack = (low + high) // 2
            found = self.dealt(answer.n_ctx, n, answer.on_host, slack, devices)
            low, high = (slack, high) if found else (low, slack)
            answer = found or answer
        return answer

    def with_experts(self, answer: FitAnswer) -> FitAnswer:
        """Add the maximum number of experts to the devices of an answer, last layers first. Move
        boundaries if more fit then."""
        best = self._fill_experts(answer.n_layers, answer.n_ctx)
        for i in range(len(answer.n_layers) - 1):
            start = best.n_layers
            for shift in range(-SHIFTS, SHIFTS + 1):
                moved = [*start]
                moved[i], moved[i + 1] = moved[i] + shift, moved[i + 1] - shift
                if min(moved) >= 0 and self._fit(moved, answer.n_ctx):
                    found = self._fill_experts(moved, answer.n_ctx)
                    best = found if found.rank > best.rank else best
        return best

    def _fit(self, n_layers: Sequence[int], n_ctx: int) -> bool:
        """Return True if these layers, without experts, fit the devices."""
        return all(
            room >= 0 and self.allows(i, cached)
            for i, (room, cached) in enumerate(self._rest(n_layers, n_ctx))
        )

    def _rest(self, n_layers: Sequence[int], n_ctx: int) -> list[tuple[int, int]]:
        """Return each device's free bytes after its layers without experts, and the bytes of their
        caches."""
        found, end, caches = [], self.n_all - sum(n_layers), self.caches(n_ctx)
        for i, n in enumerate(n_layers):
            start, end = end, end + n
            dense = sum(layer.dense for layer in self.sizes.layers[start:end])
            cached = sum(caches[start:end])
            found.append((self.room[i] - dense - cached, cached))
        return found

    def _fill_experts(self, n_layers: Sequence[int], n_ctx: int) -> FitAnswer:
        on_host = set(self.moe)
        end = self.n_all - sum(n_layers)
        for i, (room, _) in enumerate(self._rest(n_layers, n_ctx)):
            start, end = end, end + n_layers[i]
            for il in reversed(range(start, end)):
                layer = self.sizes.layers[il]
                if layer.experts <= room and self.allows(i, layer.widest_expert):
                    room -= layer.experts
                    on_host.discard(il)
        return self.create_answer(n_layers, n_ctx, frozenset(on_host))

    def caches(self, n_ctx: int) -> Sequence[int]:
        """Return bytes of each layer's cache on the layer's device; 0 if caches are on the host."""
        return [0] * self.n_all if self.sizes.on_host else self.sizes.get_caches(n_ctx)

    def allows(self, i: int, size: int) -> bool:
        """Return True if a device supports a buffer of this size."""
        most = self.largest[i]
        return most is None or size <= most

    def host_has_room(self, answer: FitAnswer) -> bool:
        return self.sizes.sum_sizes(answer)[-1] - self.sizes.always[-1] <= self.room[-1]


def find_best(shares: LayerShares, contexts: Sequence[int]) -> tuple[FitAnswer, bool]:
    """Return the best answer that fits and True, else the nearest answer and False.

    contexts   possible numbers of cells, ascending
    """
    for kept in dict.fromkeys((frozenset(), shares.moe)):
        if _place_all_layers(shares, contexts[0], kept) is not None:
            n = bisect_right(
                contexts, 0, key=lambda n: 0 if _place_all_layers(shares, n, kept) else 1
            )
            found = _place_all_layers(shares, contexts[n - 1], kept)
            assert found is not None, "it fitted before"
            return found, True
    found = _most_layers(shares, contexts[0])
    return found, shares.host_has_room(found)


def _place_all_layers(shares: LayerShares, n_ctx: int, kept: frozenset[int]) -> FitAnswer | None:
    """Put all layers on the devices, without some experts of `kept`; or all on a lone host."""
    if len(shares.room) == 1:
        alone = shares.create_answer((), n_ctx, frozenset())
        return alone if shares.host_has_room(alone) else None
    if kept:
        dealt = shares.dealt(n_ctx, shares.n_all, kept)
        found = dealt and shares.with_experts(shares.evenly(dealt))
    else:
        found = shares.compactly(n_ctx)
    if found is None:
        return None
    return found if shares.host_has_room(found) else None


def _most_layers(shares: LayerShares, n_ctx: int) -> FitAnswer:
    """Place the maximum number of layers on devices, their experts on the host."""
    none = shares.create_answer([0] * (len(shares.room) - 1), n_ctx, frozenset())
    n = bisect_right(
        range(1, shares.n_all + 1),
        0,
        key=lambda n: 0 if len(shares.room) > 1 and shares.dealt(n_ctx, n, shares.moe) else 1,
    )
    found = shares.dealt(n_ctx, n, shares.moe) if n else None
    if found is None:
        return none
    found = shares.evenly(found)
    return shares.with_experts(found) if n == shares.n_all else found
