"""One client: requests one after the other, each a stream."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

LIMIT = 600.0  # seconds without a word


@dataclass(slots=True)
class Answer:
    """Times of a request and its tokens (seconds of one clock).

    n_prompt  tokens of its prompt;  n_cached  cached tokens among them
    """

    sent: float
    came: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    n_prompt: int = 0
    n_cached: int = 0

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.came[0] - self.sent

    @property
    def between(self) -> list[float]:
        """Seconds between consecutive tokens."""
        return [b - a for a, b in zip(self.came, self.came[1:], strict=False)]


async def ask(
    client: httpx.AsyncClient, prompt: Sequence[int], n: int, id_slot: int = -1
) -> Answer:
    """Request n tokens after a prompt of ids, by llama-server's /completion. RuntimeError for an
    error, or a response of another length."""
    body = {
        "prompt": list(prompt),
        "n_predict": n,
        "stream": True,
        "cache_prompt": True,
        "temperature": 0,
        "ignore_eos": True,
        "return_tokens": True,
        "return_progress": False,
        "id_slot": id_slot,
    }
    answer = Answer(time.perf_counter())
    async with client.stream("POST", "/completion", json=body, timeout=LIMIT) as response:
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {(await response.aread()).decode()}")
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                _note(answer, json.loads(line.removeprefix("data: ")))
    if len(answer.ids) != n:
        raise RuntimeError(f"{len(answer.ids)} tokens came, {n} were asked for")
    return answer


def _note(answer: Answer, event: dict[str, Any]) -> None:
    if "error" in event:
        raise RuntimeError(json.dumps(event))
    ids = event.get("tokens") or []
    answer.came += [time.perf_counter()] * len(ids)
    answer.ids += ids
    if "timings" in event and event.get("stop"):
        answer.n_prompt = event.get("tokens_evaluated", 0)
        answer.n_cached = event["timings"].get("cache_n", 0)


async def watch_health(
    client: httpx.AsyncClient, until: float, every: float, times: list[float], faults: list[str]
) -> None:
    """Request /health up to a time of the monotonic clock; note the seconds of each request, and
    each other response than 200 as a fault."""
    while time.monotonic() < until:
        start = time.monotonic()
        try:
            status: int | str = (await client.get("/health")).status_code
        except httpx.HTTPError as e:
            status = f"{e!r}"
        times.append(time.monotonic() - start)
        if status != 200:
            faults.append(f"/health: {status}")
        await asyncio.sleep(every)
