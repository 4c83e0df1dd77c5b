"""Scores of cached experts, and the choice of slots."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dev.compare.compare_policies import Trace, best_possible, replay, replay_pages
from ggml_cpu.experts.policies import POLICIES, Usage, farthest_layer
from ggml_cpu.experts.slots import Slots


def used(*layers_of_passes: list[list[int]]) -> Usage:
    """Return the usage of three layers with four experts each, after passes: experts by layer."""
    usage = Usage(np.repeat(np.arange(3), 4))
    for layers in layers_of_passes:
        for il, experts in enumerate(layers):
            usage.note(4 * il + np.array(experts, np.int64), il, il == 0)
    return usage


def order(name: str, usage: Usage, experts: list[int]) -> list[int]:
    """Return the experts in the order in which the policy evicts them."""
    numbers = np.array(experts, np.int64)
    return numbers[np.argsort(POLICIES[name](usage, numbers), kind="stable")].tolist()


def test_policies() -> None:
    usage = used([[0, 1], [0], [0]], [[1], [0], [1]], [[2], [2]])
    # The next layer is 2, then 0, then 1.
    experts = [0, 1, 2, 4, 6, 8, 9]
    assert order("lru", usage, experts) == [0, 8, 1, 4, 9, 2, 6]
    assert order("least-stale", usage, experts) == [0, 8, 4, 1, 9, 6, 2]
    # Used twice: 1 and 4. Others once, the oldest first; in a pass layer 1 first.
    assert order("lfu", usage, experts) == [0, 8, 9, 6, 2, 4, 1]


def test_the_layer_that_just_ran_is_evicted_for_a_prompt() -> None:
    usage = used([[0], [0], [0]], [[0, 1, 2, 3], [0, 1, 2, 3]])
    scores = farthest_layer(usage, np.array([0, 4, 8]))
    assert scores[1] < scores[0] < scores[2]


def test_slots() -> None:
    slots = Slots(5, 64)
    assert slots.address(1) - slots.address(0) == 64 and slots.view(4).size == 64

    def score(experts: np.ndarray) -> np.ndarray:
        return -experts.astype(float)

    assert slots.find(2, score).tolist() == [0, 1]
    slots.owner[:] = [10, 11, -1, 13, 14]
    assert slots.find(2, score).tolist() == [2, 4]  # a free slot, then the lowest score
    slots.users[4], slots.loading[3] = 1, True
    assert sorted(slots.find(9, score).tolist()) == [0, 1, 2]
    assert slots.find(9, score, least=-10.5).tolist() == [2, 1]
    slots.close(np.array([0, 2]))
    assert slots.find(9, score).tolist() == [1] and slots.n_open == 3


def test_replayed_policies(tmp_path: Path) -> None:
    """No policy beats the one that knows later uses; all miss each expert's first use."""
    rng = np.random.default_rng(0)
    layers = np.tile(np.arange(3), 60)
    experts = [np.unique(rng.zipf(1.5, 3) % 8) for _ in layers]
    Trace(layers, experts, 3, 8).save(tmp_path / "trace.npz")
    trace = Trace.load(tmp_path / "trace.npz")
    best = sum(replay(trace, 9, best_possible(trace)))
    misses = [sum(replay(trace, 9, policy)) for policy in POLICIES.values()]
    misses.append(sum(replay_pages(trace, 9)))
    assert best < min(misses) and max(misses) < sum(e.size for e in experts)
    first = len({int(n) for _, numbers in trace for n in numbers})
    assert {sum(replay(trace, 24, policy)) for policy in POLICIES.values()} == {first}
    assert trace.hit_rate(replay_pages(trace, 24), 0) == 1 - first / sum(e.size for e in experts)
