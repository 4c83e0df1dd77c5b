"""Conversion of a profile to a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing.

The format: "Trace Event Format" (complete events `X`, metadata `M`); times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from llama_py.fit.ranks import find_rank
from llama_py_tools.graph.layers import shape
from llama_py_tools.graph.profile import ProfiledRun, ProfiledStep

if TYPE_CHECKING:
    from ggml_py.plan import SplitTime

PROCESS = 1  # process number of rank 0; other ranks have the numbers after it

Event = dict[str, Any]


def trace(runs: Sequence[ProfiledRun], title: str) -> Event:
    """Return the data to write as JSON."""
    first = min((run.start for run in runs), default=0)
    tracks = _Tracks()
    events = [event for run in runs for event in _events(run, tracks, first)]
    return {
        "displayTimeUnit": "ms",
        "otherData": {"model": title},
        "traceEvents": [*tracks.events(title), *events],
    }


Track = tuple[int, int]  # process and number


class _Tracks(dict[tuple[int, str], Track]):
    """Numbers of tracks by rank and name, in order of first use."""

    def __missing__(self, key: tuple[int, str]) -> Track:
        self[key] = PROCESS + key[0], sum(rank == key[0] for rank, _ in self)
        return self[key]

    def get_track(self, device: str, what: str) -> Track:
        return self[find_rank(device), f"{device}: {what}"]

    def events(self, title: str) -> Iterator[Event]:
        ranks = sorted({rank for rank, _ in self})
        for rank in ranks:
            of_rank = f", rank {rank}" if len(ranks) > 1 else ""
            process = PROCESS + rank, 0
            yield _meta("process_name", process, {"name": f"llama-py {title}{of_rank}"})
            if of_rank:
                yield _meta("process_sort_index", process, {"sort_index": rank})
        for (_, name), track in self.items():
            yield _meta("thread_name", track, {"name": name})
            yield _meta("thread_sort_index", track, {"sort_index": track[1]})


def _meta(name: str, track: Track, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": track[0], "tid": track[1], "args": args}


def _events(run: ProfiledRun, tracks: _Tracks, first: int) -> Iterator[Event]:
    """Yield events: of each device splits with the copies before them, layers, steps, and thread
    activity; idle threads wait for others."""
    end = run.start + round(run.wall * 1e9)
    yield _span(run.what, "decode", tracks[0, "decode"], run.start - first, end - first, {})
    for device in dict.fromkeys(
        [*(s.split.device.name for s in run.splits), *(s.device for s in run.steps)]
    ):
        own = [s for s in run.splits if s.split.device.name == device]
        if own:
            yield from _splits(own, tracks.get_track(device, "splits"), first)
        steps = [s for s in run.steps if s.device == device]
        track = tracks.get_track(device, "layers")
        for layer, of_layer in groupby(steps, key=lambda s: s.layer):
            inside = list(of_layer)
            yield _span(layer, "layer", track, inside[0].start - first, inside[-1].end - first, {})
        track = tracks.get_track(device, "steps")
        for s in steps:
            node = s.time.node
            yield _span(node.name, node.op, track, s.start - first, s.end - first, _about(s))
        for s in steps:
            for number, (start, end) in enumerate(s.time.threads):
                track = tracks.get_track(device, f"thread {number}")
                yield _span(s.time.node.name, s.time.node.op, track, start - first, end - first, {})
    for one in run.ranks:
        for p in one.passed:
            about: Event = {"messages": p.n, "bytes": p.n_bytes, "waited_us": p.waited / 1e3}
            track, start = tracks[one.rank, "messages"], p.start - first
            yield _span(p.what, "message", track, start, p.end - first, about)
            if p.waited:
                yield _span("wait", "wait", track, start, start + p.waited, {})


def _splits(splits: Sequence[SplitTime], track: Track, first: int) -> Iterator[Event]:
    for s in splits:
        nodes = s.split.nodes
        about = {"nodes": len(nodes), "from": nodes[0].name, "to": nodes[-1].name}
        yield _span(f"{len(nodes)} nodes", "split", track, s.start - first, s.end - first, about)
        for t, start, end in s.copied:
            name, about = f"copy {t.name}", {"shape": shape(t), "bytes": t.nbytes}
            yield _span(name, "copy", track, start - first, end - first, about)


def _about(s: ProfiledStep) -> Event:
    node = s.time.node
    sources = [f"{t.name} {shape(t)}" for t in node.src if t is not None]
    return {
        "op": node.op,
        "shape": shape(node),
        "kernel": s.time.kernel,
        "layer": s.layer,
        "sources": sources,
    }


def _span(name: str, kind: str, track: Track, start: int, end: int, args: Event) -> Event:
    """Return an event. It ends a nanosecond early: readers add ts and dur as floats, so it would
    otherwise seem to overlap the next."""
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "pid": track[0],
        "tid": track[1],
        "ts": start / 1e3,
        "dur": max(end - start - 1, 0) / 1e3,
        "args": args,
    }
