"""Distribution of a model over devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llama_py.fit.ranges import match_numbers
from llama_py.weights.placement import EXPERTS


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """n_layers   of each device but the host, counted back from the output, which is one
    on_host    layers on devices with their experts on the host
    n_all      layers of the model, the output included
    n_moe      number of layers with experts
    """

    n_layers: tuple[int, ...]
    on_host: frozenset[int]
    n_ctx: int
    n_all: int
    n_moe: int = 0

    @property
    def devices(self) -> list[int]:
        """The number of each layer's device, then the output's; the host is the last."""
        host = len(self.n_layers)
        kept = [host] * (self.n_all - sum(self.n_layers))
        return kept + [i for i, n in enumerate(self.n_layers) for _ in range(n)]

    @property
    def rank(self) -> tuple[int, ...]:
        """A larger one is better."""
        n = sum(self.n_layers)
        whole = n == self.n_all
        alone = whole and not self.on_host
        unused = self.n_layers.count(0) if alone else 0
        return (whole, alone, n, self.n_ctx, -len(self.on_host), unused)

    def options(self, host: str) -> dict[str, Any]:
        """Return options of ModelParams; `host` is the host's name."""
        found: dict[str, Any] = {"n_gpu_layers": sum(self.n_layers)}
        if len(self.n_layers) > 1 and any(self.n_layers):
            found["tensor_split"] = tuple(map(float, self.n_layers))
        n = len(self.on_host)
        first = self.n_all - sum(self.n_layers)  # earlier layers are on the host
        if self.n_moe and n + min(first, self.n_moe) >= self.n_moe:
            found["cpu_moe"] = True
        elif n and max(self.on_host) < n + first:
            found["n_cpu_moe"] = max(self.on_host) + 1
        elif n:
            found["tensor_overrides"] = {rf"blk\.{match_numbers(self.on_host)}{EXPERTS}": host}
        return found
