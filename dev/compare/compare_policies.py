"""Hit rates of the replacement policies of the cache of experts, on choices of a real router.

    python -m dev.compare.compare_policies record -m MODEL.gguf --memory 5G -n 512 TRACE.npz
    python -m dev.compare.compare_policies replay TRACE.npz --cached 25,50,75

`record` writes the experts that each layer used while the model generates from `--tokens`, or from
its own choices. `replay` prints a row per policy: the share of used experts that were cached, if
the cache has this percentage of all experts. "pages" is Linux's page cache with two lists. "best
possible" evicts the expert with the farthest next use (Belady).
"""

from __future__ import annotations

import argparse
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ggml_cpu.experts import cache
from ggml_cpu.experts.layer import CachedLayer
from ggml_cpu.experts.policies import POLICIES, Numbers, Policy, Scores, Usage
from ggml_cpu.experts.slots import Slots


@dataclass(frozen=True)
class Trace:
    """Uses in order: layers i64 [n_uses], and the experts i64 of each.

    n_layers, n_experts  of the model
    """

    layers: Numbers
    experts: Sequence[Numbers]
    n_layers: int
    n_experts: int

    def __iter__(self) -> Iterator[tuple[int, Numbers]]:
        """Yield the layer and the numbers of the experts of each use."""
        for layer, experts in zip(self.layers.tolist(), self.experts, strict=True):
            yield layer, layer * self.n_experts + experts

    @property
    def n_uses(self) -> int:
        return sum(e.size for e in self.experts)

    def save(self, path: Path) -> None:
        shape = [self.n_layers, self.n_experts]
        ends = np.cumsum([e.size for e in self.experts])
        flat = np.concatenate(self.experts)
        np.savez_compressed(path, shape=shape, layers=self.layers, ends=ends, experts=flat)

    @classmethod
    def load(cls, path: Path) -> Trace:
        with np.load(path) as found:
            n_layers, n_experts = found["shape"].tolist()
            experts = np.split(found["experts"], found["ends"][:-1])
            return cls(found["layers"], experts, n_layers, n_experts)


def record(path: str, memory: int, n: int, tokens: Sequence[int]) -> Trace:
    """Generate n tokens after a first one, and return the uses of experts."""
    import llama_py

    uses, begin = list[tuple[int, Numbers]](), cache.ExpertCache.begin

    def note(
        self: cache.ExpertCache, use: cache.CacheUse, layer: CachedLayer, experts: Numbers, *n: int
    ) -> object:
        uses.append((layer.number, experts.copy()))
        return begin(self, use, layer, experts, *n)

    cache.ExpertCache.begin = note  # type: ignore[method-assign, assignment]
    with llama_py.load(path, max_memory=memory, progress=False) as model:
        ctx = model.context(n_ctx=n + 8, progress=False)
        token = tokens[0] if tokens else 5
        for i in range(n):
            rows = ctx.decode([token])
            token = tokens[i + 1] if i + 1 < len(tokens) else int(np.argmax(rows[-1]))
        h = model.hparams
        layers, experts = zip(*uses, strict=True)
        return Trace(np.array(layers), experts, max(layers) + 1, h.n_expert)


def replay(trace: Trace, n_slots: int, policy: Policy) -> float:
    """Return the hit rate of a policy; the experts of the running layer are not evicted."""
    usage = Usage(np.repeat(np.arange(trace.n_layers), trace.n_experts))
    slots, slot_of, before, missed = Slots(n_slots, 1), np.full(usage.last.size, -1), -1, 0
    for layer, numbers in trace:
        usage.note(numbers, layer, layer <= before)
        before = layer
        held = slot_of[numbers]
        missing, held = numbers[held < 0], held[held >= 0]
        slots.users[held] = 1
        found = slots.find(missing.size, partial(policy, usage))
        slots.users[held] = 0
        evicted = slots.owner[found]
        slot_of[evicted[evicted >= 0]] = -1
        slot_of[missing], slots.owner[found] = found, missing
        missed += missing.size
    return 1 - missed / trace.n_uses


def replay_pages(trace: Trace, n_slots: int) -> float:
    """Return the hit rate of two lists: an expert's second use moves it to the active list. The
    oldest of a long active list moves back; the oldest of the other list is evicted."""
    active, inactive, missed = OrderedDict[int, None](), OrderedDict[int, None](), 0
    for _, numbers in trace:
        for n in numbers.tolist():
            missed += n not in active and n not in inactive
            (active if n in active or n in inactive else inactive)[n] = None
            if n in active:
                inactive.pop(n, None)
                active.move_to_end(n)
            if len(active) > n_slots // 2:
                inactive[active.popitem(last=False)[0]] = None
            if len(active) + len(inactive) > n_slots:
                inactive.popitem(last=False)
    return 1 - missed / trace.n_uses


def best_possible(trace: Trace) -> Policy:
    """Return the policy that knows all later uses."""
    times: dict[int, list[int]] = {}
    for time, (_, numbers) in enumerate(trace, 1):
        for n in numbers.tolist():
            times.setdefault(n, []).append(time)
    later = [np.array(times.get(n, ())) for n in range(trace.n_layers * trace.n_experts)]

    def score(usage: Usage, experts: Numbers) -> Scores:
        at = (np.searchsorted(later[n], usage.now, "right") for n in experts.tolist())
        found = (
            later[n][i] if i < later[n].size else np.inf
            for n, i in zip(experts.tolist(), at, strict=True)
        )
        return -np.fromiter(found, np.float64)

    return score


def table(trace: Trace, shares: Sequence[float]) -> Iterator[str]:
    """Yield a Markdown table: a row per policy, a column per share of the experts."""
    policies = {**POLICIES, "best possible": best_possible(trace)}
    counts = [round(share * trace.n_layers * trace.n_experts) for share in shares]
    yield "| policy |" + "".join(f" {share:.0%} |" for share in shares)
    yield "|---|" + "---:|" * len(shares)
    yield "| pages |" + "".join(f" {replay_pages(trace, n):.1%} |" for n in counts)
    for name, policy in policies.items():
        yield f"| {name} |" + "".join(f" {replay(trace, n, policy):.1%} |" for n in counts)


def main(words: Sequence[str] | None = None) -> None:
    from llama_py.params.texts import byte_count

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = p.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record", help="record the experts that a model uses")
    one.add_argument("trace", type=Path)
    one.add_argument("-m", "--model", required=True)
    one.add_argument("--memory", type=byte_count, default=0)
    one.add_argument("-n", type=int, default=512)
    one.add_argument("--tokens", type=Path, help="JSON list of token ids")
    two = commands.add_parser("replay", help="print the hit rate of each policy")
    two.add_argument("trace", type=Path)
    two.add_argument("--cached", default="25,50,75", help="percentages of the experts")
    a = p.parse_args(words)
    if a.command == "record":
        tokens = json.loads(a.tokens.read_text()) if a.tokens else []
        record(a.model, a.memory, a.n, tokens).save(a.trace)
    else:
        shares = [float(x) / 100 for x in a.cached.split(",")]
        print("\n".join(table(Trace.load(a.trace), shares)))


if __name__ == "__main__":
    main()
