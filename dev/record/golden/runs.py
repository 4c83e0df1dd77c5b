"""Runs of a tiny model on llama-py or llama.cpp; a run returns node lists, values, or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden import drafts
from dev.record.golden.case import Case, Facts, Result, batch, joined
from dev.record.golden.engines import Engine
from dev.tiny_models import Tiny


def nodes(case: Case, **how: Any) -> Result:
    """Record the nodes of a prompt and of one more token."""
    with case.open(nodes=True, **how) as engine:
        ids, first = case.prompt(engine), case.tiny.first
        engine.run(batch(ids, first, case.outputs))
        if case.facts.memory:
            engine.run(batch([1], first + len(ids)))
        return Result(engine.nodes)


def logits(case: Case, **how: Any) -> Result:
    """Return logits of the whole prompt, then of greedy tokens, one by one."""
    with case.open(**how) as engine:
        ids, first = case.prompt(engine), case.tiny.first
        engine.run(batch(ids, first, "all"))
        values = {"prompt": engine.logits(len(ids))}
        if case.facts.memory:
            values |= greedy(engine, values["prompt"][-1], first + len(ids), case.tiny.steps)
        return Result(values=values)


def greedy(engine: Engine, row: NDArray[Any], n_past: int, n: int) -> dict[str, NDArray[Any]]:
    tokens, rows = [], []
    for i in range(n):
        tokens.append(int(row.argmax()))
        engine.run(batch(tokens[-1:], n_past + i))
        row = engine.logits(1)[0]
        rows.append(row)
    return {"tokens": np.array(tokens, np.int32), "steps": np.stack(rows)}


def exact(case: Case, outputs: str = "") -> Result:
    """Run without rounding: no flash attention, F32 caches.

    Return the logits of the prompt's last token and of two more tokens; without a memory, of all
    requested outputs of the prompt. outputs: requested outputs instead of the default.
    """
    with case.open(flash=False, cache="f32") as engine:
        ids, first = case.prompt(engine), case.tiny.first
        engine.run(batch(ids, first, outputs or case.outputs))
        n_rows = 1 if (outputs or case.outputs) == "last" else len(ids)
        rows = [engine.logits(n_rows)[-1 if case.facts.memory else -n_rows :]]
        for i in range(2 if case.facts.memory else 0):
            engine.run(batch([3 + i], first + len(ids) + i))
            rows.append(engine.logits(1))
        return Result(values={"rows": np.concatenate(rows)})


def sequences(case: Case, **how: Any) -> Result:
    """Run sequences of different lengths together; then one more token each."""
    n_seqs, most = case.tiny.sequences, min(case.tiny.prompt, 40)
    lengths = [most - 7 * s for s in range(n_seqs)]
    ids, first = [case.tokens(n, 1 + s) for s, n in enumerate(lengths)], case.tiny.first
    start = case.facts.start
    # Relative positions of encoder-decoder models do not support separate streams.
    with case.open(n_seqs=n_seqs, unified=start is not None, **how) as engine:
        if start is not None:
            engine.run(joined(batch(t, seq=s) for s, t in enumerate(ids)), encode=True)
            ids = [[start, *t[: 2 + s]] for s, t in enumerate(ids)]
        parts = (batch(t, first, case.outputs, seq=s) for s, t in enumerate(ids))
        engine.run(joined(parts))
        n_rows = n_seqs if case.facts.memory else sum(map(len, ids))
        rows = [] if "nodes" in how else [engine.logits(n_rows)]
        if case.facts.memory:
            step = (batch([5 + s], first + len(t), seq=s) for s, t in enumerate(ids))
            engine.run(joined(step))
            rows += [] if "nodes" in how else [engine.logits(n_seqs)]
        return Result(engine.nodes, {"rows": np.concatenate(rows)} if rows else {})


def snapshots(case: Case) -> Result:
    """Run a prompt, and tokens that may be rolled back, if recurrent states are saved."""
    with case.open(nodes=True, n_rs_seq=3) as engine:
        engine.run(batch([1, 2]))
        engine.run(batch([3, 4, 5, 6], 2, "all"))
        return Result(engine.nodes)


def trunk(case: Case) -> Result:
    """Return the hidden states of a prompt, the input of drafts."""
    # with several streams, llama.cpp overwrites some states of tokens without outputs
    masked = case.facts.state_width > 0
    with case.open() as engine:
        engine.set_embeddings_nextn(masked=masked)
        engine.run(batch(case.tokens(case.tiny.prompt), outputs="all" if masked else "last"))
        return Result(values={"h": engine.h_nextn(case.tiny.prompt)})


def draft(case: Case, **how: Any) -> Result:
    """Run the NextN layer on a prompt, each token with the previous state; then one more draft.

    The states are random, with the magnitude of normalized states.
    """
    ids, values = case.tokens(case.tiny.prompt), {}
    h = drafts.random_states(len(ids), case.facts.state_width or case.tiny.keys["embedding_length"])
    with case.open(mtp=True, **how) as engine:
        engine.set_embeddings_nextn(masked=True)
        engine.run(batch(ids, outputs="all", embd=h))
        if "nodes" not in how:
            values = {"prompt": engine.logits(len(ids)), "h": engine.h_nextn(len(ids))[-1:]}
        engine.run(batch([1], len(ids), embd=h[-1:]))
        if "nodes" not in how:
            values |= {"step": engine.logits(1), "step_h": engine.h_nextn(1)}
        return Result(engine.nodes, values)


def encoder(case: Case) -> Result:
    """Return the encoder's output for the decoder."""
    ids = case.tokens(case.tiny.prompt)
    with case.open(pooling="none") as engine:
        engine.run(batch(ids, outputs="all"), encode=True)
        return Result(values={"embd": engine.embeddings(len(ids))})


def pooled(case: Case, kind: str, **how: Any) -> Result:
    """Return embeddings of several sequences: of each token, or of each sequence."""
    lengths = [case.tiny.prompt - 7 * s for s in range(case.tiny.sequences)]
    parts = [batch(case.tokens(n, 1 + s), outputs="all", seq=s) for s, n in enumerate(lengths)]
    with case.open(pooling=kind, n_seqs=len(parts), **how) as engine:
        engine.run(joined(parts))
        if "nodes" in how:
            return Result(engine.nodes)
        if kind == "none":
            return Result(values={"embd": engine.embeddings(sum(lengths))})
        rows = [engine.embeddings_seq(s) for s in range(len(parts))]
        return Result(values={"embd": np.stack(rows)})


def score_options(case: Case, **how: Any) -> Result:
    """Return the scores of marked options, and of a text without marks."""
    ids, marks = case.tokens(case.tiny.prompt), [int(mark) for mark in case.tiny.marks]
    found = []
    for some in (marks, None):
        with case.open(pooling="none", **how) as engine:
            engine.run(replace(batch(ids, outputs="all"), marks=some))
            if "nodes" in how:
                return Result(engine.nodes)
            found.append(engine.embeddings(len(ids))[:, 0])
    return Result(values={"scores": found[0], "unmarked": found[1]})


POOLING = ("none", "mean", "cls", "last", "rank")
RUNS: dict[str, Callable[[Case], Result]] = {
    "nodes-fa-on": nodes,
    "nodes-fa-off": lambda case: nodes(case, flash=False),
    "nodes-unfused": lambda case: nodes(case, unfused="delta_net"),
    "nodes-indexer": lambda case: nodes(case, unfused="lightning_indexer"),
    "nodes-streams": lambda case: nodes(case, unfused="hyper_connections"),
    "nodes-sequences": lambda case: sequences(case, nodes=True),
    "nodes-snapshots": snapshots,
    "nodes-draft": lambda case: draft(case, nodes=True),
    "nodes-draft-fa-off": lambda case: draft(case, nodes=True, flash=False),
    "logits": logits,
    "indexer": lambda case, **how: logits(case, unfused="lightning_indexer", **how),
    "streams": lambda case: logits(case, unfused="hyper_connections"),
    "exact": exact,
    "sequences": sequences,
    "trunk": trunk,
    "draft": draft,
    "exact-draft": lambda case: draft(case, flash=False, cache="f32"),
    "encoder": encoder,
    "nodes-marked": lambda case: score_options(case, nodes=True),
    "nodes-marked-fa-off": lambda case: score_options(case, nodes=True, flash=False),
    "marked": score_options,
    "nodes-features": lambda case: drafts.features(case, nodes=True),
    "nodes-states": lambda case: drafts.states(case, nodes=True),
    "nodes-states-fa-off": lambda case: drafts.states(case, nodes=True, flash=False),
    "nodes-states-sequences": lambda case: drafts.sequences(case, nodes=True),
    "nodes-blocks": lambda case: drafts.blocks(case, nodes=True),
    "nodes-blocks-fa-off": lambda case: drafts.blocks(case, nodes=True, flash=False),
    "nodes-blocks-sequences": lambda case: drafts.blocks(case, 3, nodes=True),
    "nodes-blocks-unified": lambda case: drafts.blocks(case, 3, nodes=True, unified=True),
    "blocks": drafts.blocks,
    "exact-blocks": lambda case: drafts.blocks(case, flash=False, cache="f32"),
    "blocks-sequences": lambda case: drafts.blocks(case, 3),
    "features": drafts.features,
    "states": drafts.states,
    "exact-states": drafts.exact,
    "states-sequences": drafts.sequences,
}
DRAFT = ("nodes-draft", "nodes-draft-fa-off", "trunk", "draft", "exact-draft")
ENCODED = [name for name in RUNS if name.endswith("features")]
STATES = [name for name in RUNS if "states" in name]
BLOCKS = [name for name in RUNS if "blocks" in name]
for _kind in POOLING:
    RUNS[f"nodes-pooled-{_kind}"] = lambda case, kind=_kind: pooled(case, kind, nodes=True)
    RUNS[f"pooled-{_kind}"] = lambda case, kind=_kind: pooled(case, kind)


# Runs that select experts or tokens: a small rounding error could change the selection.
DECIDING = ("logits", "indexer", "sequences", "draft", "states", "states-sequences", "blocks")
ROUNDINGS: list[dict[str, Any]] = [{"flash": False}, {"flash": False, "cache": "f32"}]


def instability(case: Case) -> float:
    """Return the difference of values in the same engine under other roundings.

    The difference is the largest normalized mean squared error of a row; infinite if other tokens
    are chosen.
    """
    worst = 0.0
    for name in set(DECIDING) & set(wanted(case.tiny, case.facts)):
        run: Callable[..., Result] = RUNS[name]
        expected = run(case).values
        for how in ROUNDINGS:
            found = run(case, **how).values
            worst = max([worst, *(_distance(expected[key], x) for key, x in found.items())])
    return worst


def _distance(expected: NDArray[Any], found: NDArray[Any]) -> float:
    if expected.dtype.kind == "i":
        return 0.0 if np.array_equal(expected, found) else np.inf
    a, b = expected.astype(np.float64), found.astype(np.float64)
    return float((np.square(a - b).sum(-1) / np.square(a).sum(-1)).max())


def wanted(tiny: Tiny, facts: Facts) -> list[str]:
    """Return the runs that apply to a model."""
    of_drafts = ENCODED * bool(facts.enc_width) + STATES * bool(facts.state_width)
    of_drafts += BLOCKS * bool(facts.block)
    if tiny.drafts_for is not None:
        return [name for name in of_drafts if name in (tiny.runs or of_drafts)]
    without = {
        # The newest build uses different ops.
        "nodes-unfused": not facts.delta_net or tiny.newest,
        "nodes-indexer": not facts.indexer,
        "indexer": not facts.indexer,
        "nodes-streams": not facts.streams,
        "streams": not facts.streams,
        "nodes-snapshots": not facts.rollback,
        **dict.fromkeys(DRAFT, not facts.n_nextn),
        "encoder": facts.start is None,
        **dict.fromkeys(("nodes-marked", "nodes-marked-fa-off", "marked"), not tiny.marks),
        **dict.fromkeys(("nodes-sequences", "sequences", "logits", "exact"), not facts.logits),
    }
    for kind in POOLING:
        without |= dict.fromkeys(
            (f"nodes-pooled-{kind}", f"pooled-{kind}"), kind not in tiny.pooling
        )
    every = [name for name in RUNS if name not in (*ENCODED, *STATES, *BLOCKS)]
    if tiny.runs:
        every = [name for name in every if name in tiny.runs]
    return [name for name in every if not without.get(name)]
