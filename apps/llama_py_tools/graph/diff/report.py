"""Report of a comparison, as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from ggml_py.inspection.judge import Error, compare_values
from ggml_py.opspec import OPS
from ggml_py.types import F32
from llama_py_tools.graph.diff.blame import Verdict, step_keys
from llama_py_tools.graph.diff.found import ALONG, RunComparison, SharedNode
from llama_py_tools.graph.diff.graphs import value
from llama_py_tools.graph.diff.numbers import is_whole
from llama_py_tools.graph.diff.run import Key
from llama_py_tools.graph.diff.weights import group_weight_errors, sort_weight_errors

JUDGE = "ref"
WIDTH = 100
SMALLEST = -16  # power of ten of an empty bar
BAR = 16


def lines(found: RunComparison, verdicts: Mapping[Key, Verdict], top: int) -> Iterator[str]:
    """Yield all lines of the report."""
    yield _summary(found)
    wrong = found.wrong
    if wrong:
        yield ""
        yield from _report_first(found, wrong[0], verdicts)
        if len(wrong) > 1:
            yield ""
            yield from _report_others(wrong, verdicts, found, top)
    if found.is_identical:
        return
    if not found.far_nodes and (grown := next((n for n in found.nodes if _is_grown(n)), None)):
        yield (
            "run separately, the runs diverge: rounding errors grow, and first exceed "
            f"{ALONG:.0e} in {grown.name} ({grown.layer})"
        )
    yield ""
    yield from _layers(found)
    if weights := sort_weight_errors(found):
        yield ""
        yield from _weights(found, weights, top)
    if told := list(_logits(found)):
        yield ""
        yield from told


def _is_grown(node: SharedNode) -> bool:
    return not is_whole(node.record) and not node.error.nmse <= ALONG


def _summary(found: RunComparison) -> str:
    n, wrong, differ = len(found.nodes), len(found.wrong), len(found.far_nodes)
    compared = f"values: {n} nodes of {found.ours.what} and {found.theirs.what} compared"
    if found.n_apart:
        compared += f", {found.n_apart} have no counterpart"
    if found.is_identical:
        return f"{compared}: equal bit for bit"
    if not differ:
        return f"{compared}: no larger differences than rounding explains"
    if differ > wrong:
        also = f", {wrong} of them with the same weights" if wrong else ""
        return f"{compared}: {differ} differ, given the same inputs{also}"
    if found.known:
        far = sum(not node.error.nmse <= ALONG for node in found.nodes)
        also = f"; {far} exceed {ALONG:.0e} in separate runs" if far else ""
        which = "node is" if wrong == 1 else "nodes are"
        return f"{compared}: {wrong} {which} wrong, given the same inputs{also}"
    return f"{compared}: {wrong} differ too much"


def _report_first(
    found: RunComparison, node: SharedNode, verdicts: Mapping[Key, Verdict]
) -> Iterator[str]:
    yield f"first wrong node: {node.name}  (graph {node.key[0]}, node {node.key[1]}, {node.layer})"
    yield f"  {describe(node)}"
    names = _names(found, node)
    if len(names) > 1:
        text = f"one step computes {', '.join(names)}"
        yield from wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
    error = node.made or node.error
    yield f"  {error.problem}; {describe_worst(error)}"
    yield from _stats(found, node)
    yield from _report_verdicts(found, node, verdicts)
    yield "  inputs" + (" (NMSE of separate runs)" if found.known else "")
    for name, kind, told in _inputs(found, node):
        yield f"    {name}  {kind}  {told}"


def _report_verdicts(
    found: RunComparison, node: SharedNode, verdicts: Mapping[Key, Verdict]
) -> Iterator[str]:
    """Yield the reference's verdict on the node, or on the nodes of its step."""
    asked = {key: verdicts[key] for key in step_keys(node) if key in verdicts}
    records, wrong = found.ours.by_key(), {key: v for key, v in asked.items() if v.wrong(found)}
    for key, v in wrong.items():
        yield (
            f"  {JUDGE} computes {records[key]['name']} from the same inputs: {found.ours.what} "
            f"differs by {v.ours.nmse:.1e} from it, {found.theirs.what} by {v.theirs.nmse:.1e}: "
            f"{' and '.join(v.wrong(found))} wrong ({v.problem})"
        )
    if asked and not wrong:
        what = "the fused step" if len(node.step) > 1 else "a kernel that runs at the same time"
        yield f"  computed alone, {found.ours.what} matches {JUDGE}: {what} is wrong"


def describe(node: SharedNode) -> str:
    """Return `MUL_MAT f32 [64, 12]`."""
    return f"{node.record['op']} {value(node.record)}"


def describe_worst(error: Error) -> str:
    """Return the position of the largest error."""
    place = list(error.at)
    while len(place) > 2 and place[-1] == 0:
        place.pop()
    return (
        f"largest error {error.largest:.4g} at {place}: {error.found:.7g} instead of"
        f" {error.expected:.7g}"
    )


def _names(found: RunComparison, node: SharedNode) -> list[str]:
    records = found.ours.by_key()
    return [records[node.key[0], i]["name"] for i in node.step]


def _stats(found: RunComparison, node: SharedNode) -> Iterator[str]:
    sides = [(s, w) for s, w in ((node.ours, found.ours), (node.theirs, found.theirs)) if s]
    width = max((len(w.what) for _, w in sides), default=0)
    yield f"  {'':{width}}  {'min':>12}  {'mean':>12}  {'max':>12}  {'NaN':>6}  {'inf':>6}"
    for s, run in sides:
        yield (
            f"  {run.what:{width}}  {s.low:12.6g}  {s.mean:12.6g}  {s.high:12.6g}  {s.n_nan:6d}"
            f"  {s.n_inf:6d}"
        )


def _inputs(found: RunComparison, node: SharedNode) -> Iterator[tuple[str, str, str]]:
    """Yield name, shape, and distance of each input in independent runs."""
    records, dec = found.ours.by_key(), node.key[0]
    nodes = {n.key: n for n in found.nodes}
    made = set(node.step)
    rows = []
    for i in node.step or (node.key[1],):
        for s in records[dec, i]["src"]:
            index, leaf = _origin(records, dec, i, s["name"])
            at = dec, leaf
            if index is not None and index in made:
                continue
            if index is not None:
                node_there = nodes.get((dec, index))
                told = f"NMSE {node_there.error.nmse:.1e}" if node_there else "not compared"
            elif at in found.inputs:
                told = f"differs before the run: {describe_worst(found.inputs[at])}"
            elif at in found.ours.inputs and at in found.theirs.inputs:
                told = "equal"
            else:
                told = "stored by an earlier step" if leaf.startswith("cache_") else "a weight"
            rows.append((s["name"], value(s), told))
    rows = list(dict.fromkeys(rows))
    widths = [max((len(row[k]) for row in rows), default=0) for k in (0, 1)]
    return ((f"{a:{widths[0]}}", f"{b:{widths[1]}}", c) for a, b, c in rows)


def _origin(
    records: Mapping[Key, Mapping[str, Any]], dec: int, before: int, name: str
) -> tuple[int | None, str]:
    """Return the node that computes a source or the viewed value; None and its name for a leaf."""
    for i in range(before - 1, -1, -1):
        r = records.get((dec, i))
        if r is not None and r["name"] == name:
            if not r["view_src"] or not OPS[r["op"]].view:
                return i, name
            return _origin(records, dec, i, r["view_src"])
    return None, name


def _report_others(
    wrong: Sequence[SharedNode], verdicts: Mapping[Key, Verdict], found: RunComparison, top: int
) -> Iterator[str]:
    yield "also wrong" if found.known else "other nodes that differ too much"
    width = max(len(n.name) for n in wrong[1 : 1 + top])
    for n in wrong[1 : 1 + top]:
        told = f"  {n.name:{width}}  {(n.made or n.error).nmse:9.2e}  {describe(n)}"
        yield told + (f"  ({_verdict_text(verdicts[n.key], found)})" if n.key in verdicts else "")
    if len(wrong) > 1 + top:
        yield f"  and {len(wrong) - 1 - top} more"


def _verdict_text(v: Verdict, found: RunComparison) -> str:
    wrong = v.wrong(found)
    return f"wrong: {', '.join(wrong)}" if wrong else "both correct if computed alone"


def _layers(found: RunComparison) -> Iterator[str]:
    layers = found.layers()
    width = max(*map(len, layers), len("layer"))
    made = f"  {'own error':>10}  by" if found.known else ""
    yield f"{'layer':{width}}  {'nodes':>5}  {'at the end':>10}  {'largest':>9}  {'':{BAR}}{made}"
    for where, nodes in layers.items():
        real = [n for n in nodes if not str(n.record["type"]).startswith("i")] or nodes
        largest = max(n.error.nmse for n in real)
        row = f"{where:{width}}  {len(nodes):5d}  {real[-1].error.nmse:10.1e}  {largest:9.1e}"
        row += f"  {bar(largest):{BAR}}"
        own = [n for n in real if n.made is not None]
        if own:
            most = max(own, key=lambda n: n.made.nmse if n.made else 0.0)
            assert most.made is not None
            row += f"  {most.made.nmse:10.1e}  {most.name}: {most.record['op']}"
        yield row.rstrip()


def bar(nmse: float) -> str:
    """Return a bar with one character per power of ten."""
    if not nmse:
        return ""
    power = 0.0 if nmse == math.inf or math.isnan(nmse) else math.log10(nmse)
    n = (power - SMALLEST) * BAR / -SMALLEST
    return "█" * min(BAR, max(1, round(n)))


def _weights(
    found: RunComparison, weights: Sequence[tuple[str, str, SharedNode]], top: int
) -> Iterator[str]:
    """Yield lines on the errors by different weights."""
    kinds = group_weight_errors(weights)
    width = max(len(kind) for kind, *_ in kinds)
    yield "by type of weight: NMSE of its nodes, given the same inputs"
    for kind, types, n, mean, most in kinds:
        yield f"  {kind:{width}}  {types:14}  {n:4d}  mean {mean:8.2e}  largest {most:8.2e}"
    shown = weights[:top]
    width = max(len(name) for name, *_ in shown)
    yield ""
    yield "weights with the largest errors"
    for name, types, node in shown:
        assert node.made is not None
        yield f"  {name:{width}}  {types:14}  {node.made.nmse:8.2e}  {node.name}"


def _logits(found: RunComparison) -> Iterator[str]:
    import numpy as np

    from llama_py_tools.measure.kl_divergence import compare_logits

    a, b = found.ours.logits, found.theirs.logits
    if not a or not b or any(not x.size or x.shape != y.shape for x, y in zip(a, b, strict=False)):
        return
    ours, theirs = np.concatenate(a), np.concatenate(b)
    finite = np.isfinite(ours).all() and np.isfinite(theirs).all()
    told = f"logits of {len(ours)} tokens: NMSE {compare_values(theirs, ours, 0.0, F32).nmse:.2e}"
    if not finite:
        yield f"{told}, not all are finite"
        return
    d = compare_logits(ours, theirs, list(theirs.argmax(axis=1)))
    kld = np.maximum(d.kld, 0.0)  # negative values are rounding errors
    told_kld, same = f"mean {kld.mean():.2e}, largest {kld.max():.2e}", d.same_top.mean()
    yield f"{told}, KL divergence {told_kld}; same most likely token {same:.1%}"
