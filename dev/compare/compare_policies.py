"""Hit rates of the replacement policies of the cache of experts, on choices of a real router.

    python -m dev.compare.compare_policies record -m MODEL.gguf --memory 5G -n 512 TRACE.npz
    python -m dev.compare.compare_policies replay TRACE.npz --cached 25,50,75

`record` writes the experts that each layer used while the model generates from `--tokens`, or from
its own choices. `replay` prints a row per policy: the share of used experts that were cached after
`--warmup` tokens, if the cache has this percentage of all experts. "pages" is Linux's page cache
with two lists. "best possible" evicts the expert with the farthest next use (Belady).
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

    def hit_rate(self, missed: Sequence[int], n_warmup: int) -> float:
        """Return the share of used experts that were cached, after a number of tokens.

        missed  missing experts of each use
        """
        first = n_warmup * self.n_layers
        return 1 - sum(missed[first:]) / max(1, sum(e.size for e in self.experts[first:]))

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


def replay(trace: Trace, n_slots: int, policy: Policy) -> list[int]:
    """Return the missing experts of each use; the experts of the running layer are not evicted."""
    usage = Usage(np.repeat(np.arange(trace.n_layers), trace.n_experts))
    slots, slot_of, before = Slots(n_slots, 1), np.full(usage.last.size, -1), -1
    missed = list[int]()
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
        missed.append(missing.size)
    return missed


def replay_pages(trace: Trace, n_slots: int) -> list[int]:
    """Return the missing experts of each use with two lists.

    An expert's second use moves it to the active list. The oldest of a long active list moves back;
    the oldest of the other list is evicted.
    """
    active, inactive = OrderedDict[int, None](), OrderedDict[int, None]()
    missed = list[int]()
    for _, numbers in trace:
        missed.append(0)
        for n in numbers.tolist():
            missed[-1] += n not in active and n not in inactive
            (active if n in active or n in inactive else inactive)[n] = None
            if n in active:
                inactive.pop(n, None)
                active.move_to_end(n)
            if len(active) > n_slots // 2:
                inactive[active.popitem(last=False)[0]] = None
            if len(active) + len(inactive) > n_slots:
                inactive.popitem(last=False)
    return missed


def best_possible(trace: Trace) -> Policy:
    """Return the policy that knows all later uses."""
    uses = [numbers for _, numbers in trace]
    following = np.full(trace.n_layers * trace.n_experts, np.inf)
    after = list[Scores]()  # time of the next use of the experts of each use
    for time, numbers in reversed([*enumerate(uses)]):
        after.append(following[numbers])
        following[numbers] = time
    after.reverse()

    def score(usage: Usage, experts: Numbers) -> Scores:
        for time in range(known[0], usage.now):
            following[uses[time]] = after[time]
        known[0] = usage.now
        return -following[experts]

    known = [0]
    return score


def table(trace: Trace, shares: Sequence[float], n_warmup: int) -> Iterator[str]:
    """Yield a Markdown table: a row per policy, a column per share of the experts."""
    policies = {"pages": partial(replay_pages, trace)}
    policies |= {name: partial(replay, trace, policy=p) for name, p in POLICIES.items()}
    policies["best possible"] = lambda n: replay(trace, n, best_possible(trace))
    counts = [round(share * trace.n_layers * trace.n_experts) for share in shares]
    yield "| policy |" + "".join(f" {share:.0%} |" for share in shares)
    yield "|---|" + "---:|" * len(shares)
    for name, missed in policies.items():
        rates = (trace.hit_rate(missed(n), n_warmup) for n in counts)
        yield f"| {name} |" + "".join(f" {rate:.1%} |" for rate in rates)


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
    two.add_argument("--warmup", type=int, default=100, help="tokens that do not count")
    a = p.parse_args(words)
    if a.command == "record":
        tokens = json.loads(a.tokens.read_text()) if a.tokens else []
        record(a.model, a.memory, a.n, tokens).save(a.trace)
    else:
        shares = [float(x) / 100 for x in a.cached.split(",")]
        print("\n".join(table(Trace.load(a.trace), shares, a.warmup)))


if __name__ == "__main__":
    main()
