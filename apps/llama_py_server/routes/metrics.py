"""Route /metrics: numbers for Prometheus (server-task.cpp:to_metrics)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from llama_py.serving import Now
from llama_py_server.routes.leases import find_summary
from llama_py_server.wire.errors import not_supported
from llama_py_server.wire.responses import GONE, as_written

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelPool


class MetricLine(NamedTuple):
    """Metric with its name, help and value."""

    name: str
    help: str
    value: Callable[[Now], float]


COUNTERS = (
    MetricLine(
        "prompt_tokens_total",
        "Number of prompt tokens processed, excluding cached tokens",
        lambda now: now.total.n_prompt,
    ),
    MetricLine(
        "prompt_tokens_cached_total",
        "Number of prompt tokens reused from the cache",
        lambda now: now.total.n_reused,
    ),
    MetricLine(
        "prompt_seconds_total",
        "Total time spent processing prompts",
        lambda now: now.total.prompt_seconds,
    ),
    MetricLine(
        "tokens_predicted_total",
        "Number of generation tokens processed",
        lambda now: now.total.n_gen,
    ),
    MetricLine(
        "tokens_predicted_seconds_total",
        "Total time spent generating tokens",
        lambda now: now.total.gen_seconds,
    ),
    MetricLine("n_decode_total", "Total number of steps", lambda now: now.total.n_steps),
    MetricLine(
        "n_tokens_max",
        "Largest observed sequence length (prompt + generation)",
        lambda now: now.total.n_longest,
    ),
    MetricLine(
        "spec_decode_num_drafts_total",
        "Speculative: Total speculative verification steps",
        lambda now: now.total.n_drafts,
    ),
    MetricLine(
        "spec_decode_num_draft_tokens_total",
        "Speculative: Total draft tokens generated",
        lambda now: now.total.n_drafted,
    ),
    MetricLine(
        "spec_decode_num_accepted_tokens_total",
        "Speculative: Total draft tokens accepted by the target model",
        lambda now: now.total.n_accepted,
    ),
    MetricLine(
        "texts_read_total",
        "Number of texts processed for embeddings and reranking",
        lambda now: now.total.n_texts,
    ),
    MetricLine(
        "tokens_scored_total",
        "Number of given tokens whose log probabilities were computed",
        lambda now: now.total.n_scored,
    ),
    MetricLine(
        "experts_used_total",
        "Number of experts that layers used, if experts are cached",
        lambda now: now.total.experts.n_used,
    ),
    MetricLine(
        "experts_missed_total",
        "Number of used experts that were not cached",
        lambda now: now.total.experts.n_missed,
    ),
    MetricLine(
        "experts_read_bytes_total",
        "Bytes of experts read from the file",
        lambda now: now.total.experts.n_bytes,
    ),
    MetricLine(
        "experts_wait_seconds_total",
        "Total time that layers waited for experts",
        lambda now: now.total.experts.wait_seconds,
    ),
    MetricLine("states_evicted_total", "Number of checkpoints evicted", lambda now: now.n_evicted),
)

GAUGES = (
    MetricLine("requests_processing", "Number of requests processing", lambda now: now.n_busy),
    MetricLine("requests_deferred", "Number of requests deferred", lambda now: now.n_waiting),
    MetricLine(
        "n_busy_slots_per_decode",
        "Average number of busy slots per step",
        lambda now: now.total.n_busy / max(now.total.n_steps, 1),
    ),
    MetricLine("kv_cells", "Tokens in the KV cache, of all sequences", lambda now: now.n_cells),
    MetricLine("state_bytes", "Bytes of cached states in host memory", lambda now: now.state_bytes),
    MetricLine(
        "state_limit_bytes",
        "Limit of state_bytes, --cache-ram (-1: no limit)",
        lambda now: now.state_limit,
    ),
)


async def get(request: Request, pool: ModelPool) -> Response:
    """Return metrics for Prometheus."""
    found = await find_summary(request, pool)
    if found is None:
        return GONE
    entry, summary = found
    if not summary.options.server.metrics:
        raise not_supported(
            "This server does not support metrics endpoint. Start it with `--metrics`"
        )
    now, record = summary.now, entry.record
    lines: list[str] = []
    for one in COUNTERS:
        lines += _lines("counter", one.name, one.help, one.value(now))
    for one in GAUGES:
        lines += _lines("gauge", one.name, one.help, one.value(now))
    for name, (help, value) in record.window.rates(now.total).items():
        lines += _lines("gauge", name, help, value)
    lines += [
        "# HELP llamacpp:requests_ended_total Requests that have ended, by reason",
        "# TYPE llamacpp:requests_ended_total counter",
        *(
            f'llamacpp:requests_ended_total{{reason="{reason}"}} {n}'
            for reason, n in sorted(now.total.ended.items())
        ),
    ]
    clients = [c for c in request.app.state.clients.values() if c.name.startswith("key ")]
    for name, help in (
        ("requests", "Requests per API key or address"),
        ("tokens", "Prompt and generated tokens per API key or address"),
    ):
        full = f"llamacpp:client_{name}_total"
        lines += [f"# HELP {full} {help}", f"# TYPE {full} counter"] if clients else []
        lines += [f'{full}{{client="{c.name}"}} {getattr(c, f"n_{name}")}' for c in clients]
    made = Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")
    made.raw_headers += as_written({"Process-Start-Time-Unix": str(int(record.started))})
    return made


def _lines(kind: str, name: str, help: str, value: float) -> list[str]:
    full = f"llamacpp:{name}"
    return [f"# HELP {full} {help}", f"# TYPE {full} {kind}", f"{full} {value:.10g}"]
