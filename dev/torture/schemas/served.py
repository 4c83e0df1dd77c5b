"""Parallel responses of a server, constrained to JSON schemas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import httpx

from dev.compare.load.servers import ours, running
from dev.torture.schemas.run import Told, judged, nth

WAYS = {"plain": 1.0, "greedy": 0.0, "hot": 5.0}  # temperatures
PROMPT = "Who is there?"
N_CTX = 2048  # tokens per sequence
TIMEOUT = 600.0  # seconds per response, with all requests in parallel


def served(
    model: str, numbers: Sequence[int], max_tokens: int, n: int, n_threads: int
) -> Iterator[Told]:
    """Yield results from a separate server, with n parallel requests."""
    with TemporaryDirectory() as folder:
        command = ours(model, N_CTX * n, n, n_threads)
        with (
            running(command, Path(folder) / "log") as url,
            httpx.Client(base_url=url, timeout=TIMEOUT) as client,
            ThreadPoolExecutor(n) as pool,
        ):
            yield from pool.map(lambda number: answer(client, number, max_tokens), numbers)


def answer(client: httpx.Client, number: int, max_tokens: int) -> Told:
    wanted, way = nth(number), [*WAYS][number % len(WAYS)]
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": max_tokens,
        "seed": number,
        "temperature": WAYS[way],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "wanted", "schema": wanted},
        },
    }
    began = perf_counter()
    response = client.post("/v1/chat/completions", json=body)
    seconds = perf_counter() - began
    found = response.json()
    if response.status_code != 200:
        what = "refused" if response.status_code == 400 else f"wrong: {response.status_code}"
        return Told(number, way, what, found["error"]["message"], 0, 0.0)
    [choice] = found["choices"]
    text, n_tokens = choice["message"]["content"] or "", found["usage"]["completion_tokens"]
    what = "cut" if choice["finish_reason"] == "length" else judged(text, wanted)
    return Told(number, way, what, text, n_tokens, seconds)
