"""Runs of draft models without a target model.

Random states with the magnitude of normalized states replace the target model's states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dev.record.golden.case import Case, Result
from llama_py.batch import Batch

Floats = NDArray[np.float32]
N_SHARED = 4  # tokens in a draft model's batch if it shares the target's cache
NEVER = np.float32(-3.4e38)  # replaces -inf, the score of tokens missing in the head


def random_states(n: int, width: int, key: int = 9) -> Floats:
    """Return random states [n, width]."""
    raw = np.random.Philox(key=key).random_raw(n * width) >> np.uint64(40)
    return ((raw.astype(np.float32) - 2**23) / 2**22).reshape(n, width)


def features(case: Case, **how: Any) -> Result:
    """Run the encoder on random features of the target model's layers."""
    n = case.tiny.prompt
    rows = random_states(n, case.facts.enc_width)
    with case.open(**how) as engine:
        engine.set_embeddings_nextn(masked=True)
        engine.run(_batch(None, 0, rows), encode=True)
        return Result(engine.nodes, {} if "nodes" in how else {"h": engine.h_nextn(n)})


def states(case: Case, **how: Any) -> Result:
    """Run a prompt, each token with a state; then greedy tokens with other states.

    If the draft model attends to the target model's cache, the target processes the prompt, and the
    draft model processes few tokens after it.
    """
    ids, shared, first = case.tokens(case.tiny.prompt), case.facts.shared, 0
    with case.open(mtp=shared, **how) as engine:
        if shared:
            engine.fill(_batch(ids, 0, None))
            ids, first = ids[:N_SHARED], len(ids)
        h = random_states(len(ids), case.facts.state_width)
        after = first + len(ids) * (not shared)
        engine.set_embeddings_nextn(masked=True)
        engine.run(_batch(ids, first, h))
        if "nodes" in how:
            engine.run(_batch([1], after, h[-1:]))
            return Result(engine.nodes)
        n = len(ids)
        values: dict[str, NDArray[Any]]
        values = {"prompt": _known(engine.logits(n)), "h": engine.h_nextn(n)}
        row, tokens, rows = values["prompt"][-1], [], []
        for i, state in enumerate(random_states(case.tiny.steps, case.facts.state_width, 10)):
            tokens.append(int(row.argmax()))
            engine.run(_batch(tokens[-1:], after + i * (not shared), state[None]))
            row = _known(engine.logits(1))[0]
            rows.append(row)
        values["step_h"] = engine.h_nextn(1)
        values |= {"tokens": np.array(tokens, np.int32), "steps": np.stack(rows)}
        return Result(values=values)


def exact(case: Case) -> Result:
    """Run `states` without rounding."""
    found = states(case, flash=False, cache="f32").values
    rows = np.concatenate((found["prompt"][-1:], found["steps"][:2]))
    return Result(values={"rows": rows})


def sequences(case: Case, **how: Any) -> Result:
    """Run `states` for sequences of different lengths together; then one more token each."""
    n_seqs, width = case.tiny.sequences, case.facts.state_width
    lengths = [case.tiny.prompt - 7 * s for s in range(n_seqs)]
    parts = [
        _batch(case.tokens(n, 1 + s), 0, random_states(n, width, 20 + s), s)
        for s, n in enumerate(lengths)
    ]
    last = [_batch([5 + s], n, random_states(1, width, 30 + s), s) for s, n in enumerate(lengths)]
    shared = case.facts.shared
    with case.open(n_seqs=n_seqs, mtp=shared, **how) as engine:
        if shared:
            engine.fill(_joined(replace(part, embd=None) for part in parts))
            parts = last
        rows = []
        for batches in (parts, last):
            engine.run(_joined(batches))
            if "nodes" not in how:
                rows.append(_known(engine.logits(sum(len(b.pos or ()) for b in batches))))
        return Result(engine.nodes, {"rows": np.concatenate(rows)} if rows else {})


def blocks(case: Case, n_seqs: int = 1, **how: Any) -> Result:
    """Run the target model's features for several sequences; then one block per sequence.

    The sequences have different lengths. Masks follow the first token of each block.
    """
    block, width = case.facts.block, case.facts.enc_width
    lengths = [case.tiny.prompt - 7 * s for s in range(n_seqs)]
    stored = [_batch(None, 0, random_states(n, width, 9 + s), s) for s, n in enumerate(lengths)]
    masked = [_batch([3 + s, *[1] * (block - 1)], n, None, s) for s, n in enumerate(lengths)]
    if case.facts.anchored:
        size = case.tiny.keys["embedding_length"]
        masked = [replace(b, embd=random_states(block, size, 40 + s)) for s, b in enumerate(masked)]
    with case.open(n_seqs=n_seqs, **how) as engine:
        engine.see_all()
        engine.set_embeddings_nextn(masked=False)
        first = _joined(replace(b, outputs=[False] * len(b.pos or ())) for b in stored)
        if case.facts.axes:  # embeddings need explicit axes
            first = replace(first, pos=np.tile(np.array(first.pos, np.int32), (case.facts.axes, 1)))
        engine.run(first)
        engine.run(_joined(masked))
        if "nodes" in how:
            return Result(engine.nodes)
        n, values = n_seqs * block, dict[str, NDArray[Any]]()
        values["rows"] = _known(engine.logits(n))
        if case.facts.sure:
            values["sure"] = engine.h_nextn(n)
        values["tokens"] = values["rows"].argmax(-1).astype(np.int32)
        if case.facts.pairs:
            rows, k = engine.h_nextn(n).reshape(n_seqs, block, -1), case.facts.pairs
            values["tokens"] = _walked(rows, k)
            if case.facts.anchored:
                values["scores"] = rows[:, 1:, k : k * (k + 1)].reshape(-1, k * k)
        return Result(values=values)


def _walked(rows: Floats, k: int) -> NDArray[np.int32]:
    """Return the best successor of each token, from the first token on."""
    found = []
    for block in rows:
        at = 0
        for row in block[1:]:
            at = int(row[k * (1 + at) : k * (2 + at)].argmax())
            found.append(int(row[at]))
    return np.array(found, np.int32)


def _batch(ids: Sequence[int] | None, first: int, rows: Floats | None, seq: int = 0) -> Batch:
    n = len(ids) if rows is None and ids is not None else len(rows if rows is not None else ())
    pos = list(range(first, first + n))
    return Batch(ids, rows, pos, [(seq,)] * n, [True] * n)


def _joined(batches: Iterable[Batch]) -> Batch:
    parts = [*batches]
    found: dict[str, Any] = {
        name: [x for p in parts for x in getattr(p, name)]
        for name in ("tokens", "pos", "seq_ids", "outputs")
        if getattr(parts[0], name) is not None
    }
    rows = [p.embd for p in parts if p.embd is not None]
    return Batch(**found, embd=np.concatenate(rows) if rows else None)


def _known(rows: Floats) -> Floats:
    return np.maximum(rows, NEVER)
