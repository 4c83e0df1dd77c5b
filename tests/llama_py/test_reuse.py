"""Whatever happens to sequences: results are those of a fresh computation, and little is computed.

On a toy whose results show any wrong cell or state; what models compute is in test_reuse_models.py.
"""

from __future__ import annotations

from operator import mul
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from llama_py.decoding.prefix_cache import PrefixMatch, budget
from llama_py.decoding.prefix_cache.tree import Tree, common
from tests.support.toy_memory import KINDS, N_VOCAB, Toy, expected

STEP = 8
HYBRIDS = ["hybrid", "both in one layer", "everything"]


def ask(toy: Toy, ids: list[int], seq_id: int = 0, marks: Any = None) -> PrefixMatch:
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
        seq=st.integers(0, 2),
        of=st.integers(0, 9),
        keep=st.integers(0, 40),
        more=st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=12),
        marks=st.none() | st.lists(st.integers(0, 60), max_size=2),
    )
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
    def offload(self, seq):
        self.toy.reuse.offload(seq)
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
    stack = [*tree.roots.values()]
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


def run(machine: type[Sequences], n: int) -> None:
    phases = (Phase.reuse, Phase.generate, Phase.shrink)
    how = settings(
        max_examples=n,
        stateful_step_count=12,
        deadline=None,
        phases=phases,
        suppress_health_check=[HealthCheck.too_slow],  # on a busy machine
    )
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_sequences(kind: str, unified: bool) -> None:
    class Machine(Sequences):
        pass

    Machine.kind, Machine.unified = kind, unified
    run(Machine, 12)


@pytest.mark.parametrize("options", [{"cache_ram": 0}, {"ctx_checkpoints": 2}, {"n_ubatch": 3}])
@pytest.mark.parametrize("kind", ["window", "everything"])
def test_with_less_room(kind: str, options: dict[str, Any]) -> None:
    class Machine(Sequences):
        pass

    Machine.kind, Machine.options = kind, options
    run(Machine, 8)


def hybrid(kind: str = "hybrid", **options: Any) -> Toy:
    return Toy(kind, fill=0x3E, **{"checkpoint_min_step": STEP, **options})


@pytest.mark.parametrize("kind", HYBRIDS)
def test_an_edit_costs_one_interval_at_most(kind: str) -> None:
    toy, ids = hybrid(kind), text(40)
    assert ask(toy, ids).n_reused == 0
    told = ask(toy, [*ids[:21], 5, *ids[22:]])
    assert (told.n_same, told.n_reused, told.source) == (21, 16, "this sequence")
    assert told.reason == "edited at token 21; nearest checkpoint at token 16"
    again = ask(toy, [*ids[:21], 4, 4])  # where prompts part there is a snapshot now
    assert (again.n_same, again.n_reused) == (21, 21) and again.reason == "new from token 21"
    assert ask(toy, [1 - ids[0] % 2, 3]).reason == "no cached sequence starts with this prompt"


@pytest.mark.parametrize("kind", HYBRIDS)
def test_the_same_prompt_again_costs_one_token(kind: str) -> None:
    toy, ids = hybrid(kind), text(27)
    ask(toy, ids)
    for id in (1, 2, 3):
        toy.reuse.decode([id])
    told = ask(toy, ids)
    assert (told.n_reused, told.n_computed) == (26, 1)
    told = ask(toy, [*ids, 1])  # the state behind the prompt is gone, but one token back is there
    assert (told.n_same, told.n_reused) == (27, 27)


@pytest.mark.parametrize("unified", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_users_share_is_computed_once(kind: str, unified: bool) -> None:
    """Eight of them; that the text they share ends there is said, as Conversation does."""
    system, toy = text(100), Toy(kind, 0x3E, unified, n_seq_max=8)
    for user in range(8):
        told = ask(toy, [*system, user % 2, user // 2, 3], user, marks=[100])
        assert told.n_reused >= (100 if user else 0)
    assert toy.n_decoded <= 100 + 8 * 3


def test_a_prompt_that_is_put_away_comes_back() -> None:
    toy, ids = hybrid(), text(30)
    ask(toy, ids)
    toy.reuse.offload(0)
    assert toy.memory.seq_pos_max(0) == -1
    told = ask(toy, [*ids, 1, 2], 2)
    assert (told.n_reused, told.source) == (30, "host memory")


def test_another_prompt_does_not_lose_the_one_before() -> None:
    """Two conversations take turns in one sequence."""
    toy, a, b = hybrid(), [0, *text(30)], [1, *text(30)]
    for _ in range(3):
        a, b = [*a, 2, 2, 2], [*b, 3, 3, 3]
        told = [ask(toy, a), ask(toy, b)]
    assert [t.n_computed for t in told] == [3, 3]


def test_least_recently_used_states_go_first() -> None:
    """There is room for one whole state beside the one in use."""
    toy = hybrid()
    budget, prompts = toy.reuse.budget, [[i, *text(30)] for i in range(3)]
    ask(toy, prompts[0])
    ask(toy, prompts[1])
    budget.limit = budget.size + 500
    ask(toy, prompts[2])
    assert budget.n_evicted > 0 and budget.size <= budget.limit
    assert ask(toy, [*prompts[1], 1]).n_computed == 1  # used later than the first
    assert ask(toy, [*prompts[0], 1]).n_reused == 0
    assert budget.size <= budget.limit


def test_a_snapshot_is_only_what_cannot_be_taken_back() -> None:
    """Recurrent rows and what windows show, not the keys of all tokens."""
    toy = hybrid("everything")
    ask(toy, text(70))
    assert toy.memory.recr is not None
    rows = sum(t.nb[1] for t in toy.memory.recr.all_tensors())
    windows = sum(
        t.nb[1] * 5
        for kv in toy.memory.windows
        for t in (*kv.tensors.k.values(), *kv.tensors.v.values())
    )
    sizes = [len(k.data) for _, k in toy.reuse.snapshots.find_states(0)]
    assert len(sizes) == 9 and sum(sizes) == toy.reuse.budget.size
    assert rows < min(sizes) and max(sizes) < rows + windows + 300


def test_few_snapshots_are_kept_of_a_long_prompt() -> None:
    toy = hybrid(ctx_checkpoints=3)
    ids = text(200)
    ask(toy, ids)
    ends = [at.end for at, _ in toy.reuse.snapshots.find_states(0)]
    assert len(ends) == 3 and 199 in ends and min(ends) <= 128
    for id in text(50, 1):
        toy.reuse.decode([id])
    ends = [at.end for at, _ in toy.reuse.snapshots.find_states(0)]
    assert len(ends) == 3 and 199 in ends
    check_tree(toy)


def test_without_snapshots_or_host_memory() -> None:
    for options in ({"ctx_checkpoints": 0}, {"cache_ram": 0}):
        toy = hybrid(**options)
        ask(toy, text(30))
        told = ask(toy, text(30))
        assert (told.n_same, told.n_reused) == (29, 0)
        assert told.reason == "same prompt as before; no checkpoint"
        assert ask(toy, [*text(30), 1]).n_computed == 1  # it goes on where it stands
        assert not len(toy.reuse.budget)


def test_a_rollback_that_the_memory_can_do_needs_no_snapshot() -> None:
    toy = hybrid(n_rs_seq=0, ctx_checkpoints=0)
    ids = text(20)
    ask(toy, ids)
    assert not toy.memory.supports_rollback and Toy("kv").memory.supports_rollback
    toy = Toy("kv")
    ask(toy, ids)
    assert ask(toy, [*ids[:7], 5, 5]).n_reused == 7


def test_too_few_cells_for_a_copy_compute_everything() -> None:
    """In shared cells there is room for keys that are copied from host memory only once."""
    toy, ids = Toy("hybrid", 0x3E, unified=True, checkpoint_min_step=STEP), text(120)
    ask(toy, ids, 0)
    toy.reuse.offload(0)
    ask(toy, [5, *text(150)], 1)
    told = ask(toy, [*ids[:50], 1], 2)
    assert told.n_reused == 0 and "host memory" not in str(told)
    assert toy.reuse.tokens(1) == [5, *text(150)]


def test_who_follows_another_leaves_no_runs_of_one_token() -> None:
    tree: Tree[str, bytes] = Tree(False, lambda _: None)
    tree.hold("a", range(50))
    tree.hold("b", [0])
    for id in range(1, 40):
        tree.grow("b", [id])
        assert len([*tree.ends["b"].path()]) == 1
        assert len([*tree.ends["a"].path()]) == 2
    tree.grow("b", [99, 98])
    assert tree.tokens(tree.ends["b"]) == [*range(40), 99, 98]
    assert tree.tokens(tree.ends["a"]) == [*range(50)]
    assert [node.holders for node in tree.ends["b"].path()] == [{"b"}, {"a", "b"}]
    assert tree.match(range(60)) == ([*reversed([*tree.ends["a"].path()])], 50)
    tree.release("b")
    assert tree.tokens(tree.ends["a"]) == [*range(50)] and tree.match([0, 99])[1] == 1


@pytest.mark.parametrize(
    ("given", "usual", "free", "limit"),
    [
        (None, None, 64 << 30, 8 << 30),
        (None, None, 4 << 30, 1 << 30),
        (None, 16 << 30, 64 << 30, 8 << 30),
        (None, 1 << 30, 64 << 30, 1 << 30),
        (None, 0, 64 << 30, 64 << 20),
        (8192, 0, 1 << 30, 8 << 30),
        (-1, 0, 1, None),
    ],
)
def test_kept_states_leave_memory_to_others_unless_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
    given: int | None,
    usual: int | None,
    free: int,
    limit: int | None,
) -> None:
    monkeypatch.setattr(budget, "memory", lambda: (free, free))
    assert budget.byte_limit(given, usual) == limit


def test_the_usual_limit_has_room_for_contexts_and_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four contexts of keys and values; states and windows once for each checkpoint."""
    monkeypatch.setattr(budget, "CACHE_RAM_LEAST", 0)
    for kind, factors in {"kv": [4], "hybrid": [4, 9], "window": [4, 9], "recurrent": [9]}.items():
        toy = Toy(kind, ctx_checkpoints=9)
        sizes = [sum(part.memory_breakdown().values()) for part in toy.memory.parts]
        assert toy.reuse.budget.limit == sum(map(mul, sizes, factors)) > 0
