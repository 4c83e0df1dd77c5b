"""Speed of replies and progress of prompts (server-common.cpp:server_slot_stats)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_py_server.stream.reply import Reply


def write_progress(reply: Reply) -> dict[str, int]:
    """Return a prompt's progress: all, cached and processed tokens; milliseconds."""
    t = reply.timings
    ms = int(1000 * t.prompt_seconds)
    return {"total": t.n_prompt, "cache": t.n_reused, "processed": t.n_done, "time_ms": ms}


def with_progress(reply: Reply, body: dict[str, Any]) -> dict[str, Any]:
    """Return a stream's object with the prompt's progress."""
    found = {**body, "prompt_progress": write_progress(reply)}
    return found | ({"timings": timings(reply)} if reply.delivery.timings_per_token else {})


def timings(reply: Reply) -> dict[str, Any]:
    """Return token counts, milliseconds and rates."""
    t = reply.timings
    n_read, read_ms = t.n_done - t.n_reused, 1000 * t.prompt_seconds
    n, ms = t.n_gen, 1000 * t.gen_seconds
    found: dict[str, Any] = {
        "cache_n": t.n_reused,
        "prompt_n": n_read,
        "prompt_ms": read_ms,
        "prompt_per_token_ms": read_ms / n_read if n_read else 0.0,
        "prompt_per_second": 1000 * n_read / read_ms if read_ms else 0.0,
        "predicted_n": n,
        "predicted_ms": ms,
        "predicted_per_token_ms": ms / (n - 1) if n > 1 else 0.0,  # without the first token
        "predicted_per_second": t.gen_rate,
    }
    if t.n_drafted:
        found |= {"draft_n": t.n_drafted, "draft_n_accepted": t.n_accepted}
    return found
