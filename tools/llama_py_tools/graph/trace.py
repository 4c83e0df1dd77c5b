"""A profile as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format: "Trace Event Format" (complete events `X`, metadata `M`); times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from llama_py_tools.graph.layers import shape
from llama_py_tools.graph.profile import Run, Step

if TYPE_CHECKING:
    from ggml_py.plan import SplitTime

PROCESS = 1
CALLS = 0  # the track of decodes; then those of each device

Event = dict[str, Any]


def trace(runs: Sequence[Run], title: str) -> Event:
    """What is written as JSON."""
    first = min((run.start for run in runs), default=0)
    tracks = _Tracks()
    events = [event for run in runs for event in _events(run, tracks, first)]
    return {
        "displayTimeUnit": "ms",
        "otherData": {"model": title},
        "traceEvents": [*tracks.events(title), *events],
    }


class _Tracks(dict[str, int]):
    """Their numbers by name, in the order in which they are wanted."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]

    def events(self, title: str) -> Iterator[Event]:
        yield _meta("process_name", 0, {"name": f"llama-py {title}"})
        for name, number in self.items():
            yield _meta("thread_name", number, {"name": name})
            yield _meta("thread_sort_index", number, {"sort_index": number})


def _meta(name: str, track: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": PROCESS, "tid": track, "args": args}


def _events(run: Run, tracks: _Tracks, first: int) -> Iterator[Event]:
    """Of a device there are splits, with what is copied there before each, layers, steps, and what
    each of its threads does; where those are busy with nothing, they wait for others."""
    end = run.start + round(run.wall * 1e9)
    yield _span(run.what, "decode", tracks["decode"], run.start - first, end - first, {})
    for device in dict.fromkeys(s.split.device.name for s in run.splits):
        own = [s for s in run.splits if s.split.device.name == device]
        yield from _splits(own, tracks[f"{device}: splits"], first)
        steps = [s for s in run.steps if s.device == device]
        track = tracks[f"{device}: layers"]
        for layer, of_layer in groupby(steps, key=lambda s: s.layer):
            inside = list(of_layer)
            yield _span(layer, "layer", track, inside[0].start - first, inside[-1].end - first, {})
        track = tracks[f"{device}: steps"]
        for s in steps:
            node = s.time.node
            yield _span(node.name, node.op, track, s.start - first, s.end - first, _about(s))
        for s in steps:
            for number, (start, end) in enumerate(s.time.threads):
                track = tracks[f"{device}: thread {number}"]
                yield _span(s.time.node.name, s.time.node.op, track, start - first, end - first, {})


def _splits(splits: Sequence[SplitTime], track: int, first: int) -> Iterator[Event]:
    for s in splits:
        nodes = s.split.nodes
        about = {"nodes": len(nodes), "from": nodes[0].name, "to": nodes[-1].name}
        yield _span(f"{len(nodes)} nodes", "split", track, s.start - first, s.end - first, about)
        for t, start, end in s.copied:
            name, about = f"copy {t.name}", {"shape": shape(t), "bytes": t.nbytes}
            yield _span(name, "copy", track, start - first, end - first, about)


def _about(s: Step) -> Event:
    node = s.time.node
    sources = [f"{t.name} {shape(t)}" for t in node.src if t is not None]
    return {
        "op": node.op, "shape": shape(node), "kernel": s.time.kernel, "layer": s.layer,
        "sources": sources,
    }  # fmt: skip


def _span(name: str, kind: str, track: int, start: int, end: int, args: Event) -> Event:
    """An event. It ends a nanosecond early: readers add ts and dur as floats, and what ended behind
    the start of the next would seem to overlap it."""
    return {
        "name": name, "cat": kind, "ph": "X", "pid": PROCESS, "tid": track, "ts": start / 1e3,
        "dur": max(end - start - 1, 0) / 1e3, "args": args,
    }  # fmt: skip
