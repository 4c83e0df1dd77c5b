"""A profile as a Chrome trace, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

The format: "Trace Event Format" (complete events `X`, metadata `M`); times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from llama_py_tools.graph.layers import shape
from llama_py_tools.graph.profile import Run, Step

PROCESS = 1
CALLS = 0  # the track of decodes; then one of layers and one of steps for each device

Event = dict[str, Any]


def trace(runs: Sequence[Run], title: str) -> Event:
    """What is written as JSON."""
    devices = list(dict.fromkeys(s.device for run in runs for s in run.steps))
    first = min((run.start for run in runs), default=0)
    return {
        "displayTimeUnit": "ms",
        "otherData": {"model": title},
        "traceEvents": [*_names(devices, title), *_events(runs, devices, first)],
    }


def _names(devices: Sequence[str], title: str) -> Iterator[Event]:
    yield _meta("process_name", 0, {"name": f"llama-py {title}"})
    tracks = ["decode", *(f"{d}: {what}" for d in devices for what in ("layers", "steps"))]
    for number, name in enumerate(tracks):
        yield _meta("thread_name", number, {"name": name})
        yield _meta("thread_sort_index", number, {"sort_index": number})


def _meta(name: str, track: int, args: Event) -> Event:
    return {"name": name, "ph": "M", "pid": PROCESS, "tid": track, "args": args}


def _events(runs: Sequence[Run], devices: Sequence[str], first: int) -> Iterator[Event]:
    for run in runs:
        end = run.start + round(run.wall * 1e9)
        yield _span(run.what, "decode", CALLS, run.start - first, end - first, {})
        for number, device in enumerate(devices):
            steps = [s for s in run.steps if s.device == device]
            layers, track = 1 + 2 * number, 2 + 2 * number
            for layer, of_layer in groupby(steps, key=lambda s: s.layer):
                inside = list(of_layer)
                yield _span(
                    layer, "layer", layers, inside[0].start - first, inside[-1].end - first, {}
                )
            for s in steps:
                yield _span(
                    s.time.node.name, s.time.node.op, track, s.start - first, s.end - first,
                    _about(s),
                )  # fmt: skip


def _about(s: Step) -> Event:
    node = s.time.node
    sources = [f"{t.name} {shape(t)}" for t in node.src if t is not None]
    return {
        "op": node.op, "shape": shape(node), "kernel": s.time.kernel, "layer": s.layer,
        "sources": sources,
    }  # fmt: skip


def _span(name: str, kind: str, track: int, start: int, end: int, args: Event) -> Event:
    return {
        "name": name, "cat": kind, "ph": "X", "pid": PROCESS, "tid": track, "ts": start / 1e3,
        "dur": (end - start) / 1e3, "args": args,
    }  # fmt: skip
