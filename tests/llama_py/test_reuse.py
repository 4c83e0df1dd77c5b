"""Whatever happens to sequences: results are those of a fresh computation, and little is computed.

On a toy whose results show any wrong cell or state; what models compute is in test_reuse_models.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from llama_py.reuse import Reused
from llama_py.reuse.tree import common
from tests.toy_memory import KINDS, N_VOCAB, Toy, expected

STEP = 8
import os
from hypothesis import Phase
PHASES = (Phase.generate,) if os.environ.get("QUICK") else (Phase.reuse, Phase.generate, Phase.shrink)
HYBRIDS = ["hybrid", "both in one layer", "everything"]


def ask(toy: Toy, ids: list[int], seq_id: int = 0, marks: Any = None) -> Reused:
    """Compute a prompt; what was reused of it. The result is that of a fresh computation."""
    told = toy.reuse.start(ids, seq_id, marks)
    before = toy.n_decoded
    found = toy.reuse.decode(ids[told.n_reused :], seq_id)
    assert toy.n_decoded - before == told.n_computed > 0
    assert found.shape == (1, 1) and int(found[0, 0]) == expected(toy.kind, ids)
    assert toy.reuse.tokens(seq_id) == ids
    return told


def text(n: int, seed: int = 0) -> list[int]:
    return [(seed * 3 + i * i + i // 5) % N_VOCAB for i in range(n)]


class Sequences(RuleBasedStateMachine):
    """Prompts, answers and what else happens to sequences, beside a dictionary of what they hold.

    held  the tokens of each sequence
    sure  how many of them it is known to have: not where others have put them
    """

    kind, fill, unified, options = "hybrid", 0x3E, False, dict[str, Any]()

    def __init__(self) -> None:
        super().__init__()
        self.toy = Toy(self.kind, self.fill, self.unified, checkpoint_min_step=STEP, **self.options)
        self.held: dict[int, list[int]] = {0: [], 1: [], 2: []}
        self.sure = dict.fromkeys(self.held, 0)
        self.known: list[list[int]] = [text(30)]

    @rule(
        seq=st.integers(0, 2), of=st.integers(0, 9), keep=st.integers(0, 40),
        more=st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=12),
        marks=st.none() | st.lists(st.integers(0, 60), max_size=2),
    )  # fmt: skip
    def prompt(self, seq, of, keep, more, marks):
        """One that begins like one before, perhaps changed in the middle."""
        ids = [*self.known[of % len(self.known)][:keep], *more]
        self.known.append(ids)
        most = max(common(t[: self.sure[s]], ids[:-1]) for s, t in self.held.items())
        told = ask(self.toy, ids, seq, marks)
        assert told.n_tokens == len(ids) and told.n_same >= most
        if self.full_budget:
            # computed again is at most what stands behind the last snapshot
            assert told.n_same - told.n_reused < (STEP if told.stateful else 1)
        self.held[seq], self.sure[seq] = ids, len(ids)

    @property
    def full_budget(self) -> bool:
        return not self.options

    @rule(seq=st.integers(0, 2), ids=st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=5))
    def answer(self, seq, ids):
        for id in ids if self.held[seq] else ():
            self.sure[seq] += self.sure[seq] == len(self.held[seq])
            self.held[seq] = [*self.held[seq], id]
            (found,) = self.toy.reuse.decode([id], seq)
            assert int(found[0]) == expected(self.kind, self.held[seq])

    @rule(seq=st.integers(0, 2))
    def put_away(self, seq):
        self.toy.reuse.put_away(seq)
        assert self.toy.memory.seq_pos_max(seq) == -1
        self.held[seq], self.sure[seq] = [], 0

    @rule(seq=st.integers(0, 2), n=st.integers(0, 40))
    def removed_by_others(self, seq, n):
        if self.toy.memory.seq_rm(seq, n):
            self.held[seq] = self.held[seq][:n]
            self.sure[seq] = min(self.sure[seq], n)

    @rule(src=st.integers(0, 2), dst=st.integers(0, 2))
    def copied_by_others(self, src, dst):
        if src != dst:
            self.toy.memory.seq_rm(dst)
            self.toy.memory.seq_cp(src, dst)
            self.held[dst], self.sure[dst] = self.held[src], 0

    @invariant()
    def memory_has_what_is_held(self):
        for seq, ids in self.held.items():
            assert self.toy.reuse.tokens(seq) == ids[: self.sure[seq]]
        kept = sum(len(k.data) for k in self.toy.reuse.budget._kept)
        budget = self.toy.reuse.budget
        assert kept == budget.size and (budget.limit is None or kept <= budget.limit)
        check_tree(self.toy)


def check_tree(toy: Toy) -> None:
    """Holders are on all nodes of their paths; runs are apart; every state is counted, once."""
    tree, states = toy.reuse.tree, set()
    on: dict[Any, set[Any]] = {}
    for holder, end in tree.ends.items():
        for node in end.path():
            on.setdefault(node, set()).add(holder)
    stack = [tree.root]
    while stack:
        node = stack.pop()
        if node.parent is not None:
            assert node.tokens and node.end == node.parent.end + len(node.tokens)
            assert node.holders == on.get(node, set())
            assert node.holders or node.state or node.children
            if node.state is not None:
                assert node.holders or tree.lonely
                states.add(node.state)
        for first, child in node.children.items():
            assert child.parent is node and child.tokens[0] == first
            stack.append(child)
    whole = {h for h in tree.ends if not isinstance(h, int)}
    assert states | whole == set(toy.reuse.budget._kept)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences(kind: str, unified: bool) -> None:
    class Machine(Sequences):
        pass

    Machine.kind, Machine.unified = kind, unified
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=12, stateful_step_count=12, deadline=None, phases=PHASES)
    )


@pytest.mark.parametrize("options", [{"cache_ram": 0}, {"ctx_checkpoints": 2}, {"n_ubatch": 3}])
@pytest.mark.parametrize("kind", ["window", "everything"])
def test_with_less_room(kind: str, options: dict[str, Any]) -> None:
    class Machine(Sequences):
        pass

    Machine.kind, Machine.options = kind, options
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=8, stateful_step_count=12, deadline=None, phases=PHASES)
    )
