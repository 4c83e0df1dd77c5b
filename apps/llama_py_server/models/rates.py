"""Rates between two reads of the metrics."""

from __future__ import annotations

from llama_py.serving import Metrics


class RateWindow:
    """Metrics at the last read; rates are computed since then."""

    def __init__(self) -> None:
        self.last = Metrics()

    def rates(self, now: Metrics) -> dict[str, tuple[str, float]]:
        """Return help and value by name, since the last call."""
        last, self.last = self.last, now
        experts = now.experts - last.experts
        return {
            "prompt_tokens_seconds": (
                "Average prompt throughput in tokens/s",
                _rate(now.n_prompt - last.n_prompt, now.prompt_seconds - last.prompt_seconds),
            ),
            "predicted_tokens_seconds": (
                "Average generation throughput in tokens/s",
                _rate(now.n_gen - last.n_gen, now.gen_seconds - last.gen_seconds),
            ),
            "experts_hit_ratio": ("Share of used experts that were cached", experts.hit_rate),
            "experts_bytes_per_token": (
                "Bytes of experts read from the file per token",
                experts.bytes_per_token,
            ),
        }


def _rate(n: int, seconds: float) -> float:
    return n / seconds if seconds > 0 else 0.0
