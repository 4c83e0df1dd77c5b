"""Work of requests that takes long: where it is done, and what ends it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from errno import EMFILE, ENOSPC
from typing import Any

import httpx
import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.testclient import TestClient
from starlette.types import Message

from llama_py.serving import Engine, Event, Timings
from llama_py.serving.reading import Reading
from llama_py.support.stopping import check_stopped
from llama_py.text.embed import N_SEQ
from llama_py_server.models.state import ModelState
from llama_py_server.routes import tokens
from llama_py_server.schema.completion import Delivery, build_defaults
from llama_py_server.stream import response
from llama_py_server.stream.replies import PendingReplies
from llama_py_server.stream.writers.native import NativeWriter
from llama_py_server.wire import body, work
from llama_py_server.wire.body import MAX_ITEMS
from llama_py_server.wire.errors import HTTPError
from llama_py_server.wire.sse import dumps, dumps_by_steps
from llama_py_server.wire.work import Work
from tests.server.served import events, served
from tests.support.commands import clean_environment, heed_interrupts
from tests.support.limits import SECONDS

WAIT = SECONDS


def in_loop(doing: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(doing(), WAIT))


def kind() -> str:
    return threading.current_thread().name.rpartition("_")[0].removeprefix("llama-")


def work_for_ever(began: threading.Event) -> None:
    began.set()
    while True:
        check_stopped()


def test_a_kind_waits_for_its_own_threads_only() -> None:
    go_on, most = threading.Event(), 4 * Work.LONG.n_threads

    async def do() -> None:
        waiting = [asyncio.ensure_future(work.run(Work.LONG, go_on.wait)) for _ in range(most)]
        try:
            assert await work.run(Work.SHORT, kind) == "short"
            assert not any(one.done() for one in waiting)
        finally:
            go_on.set()
        assert all(await asyncio.gather(*waiting))

    in_loop(do)


def test_work_that_turns_out_to_be_of_another_kind_moves() -> None:
    def move() -> str:
        work.require(Work.DECODE)
        return kind()

    async def do() -> None:
        assert await work.run(Work.SHORT, move) == "decode"

    in_loop(do)
    work.require(Work.DECODE)  # a thread of no kind does everything


def test_work_ends_with_the_task_that_waits_for_it() -> None:
    began = threading.Event()

    async def do() -> None:
        task = asyncio.ensure_future(work.run(Work.SHORT, work_for_ever, began))
        while not began.is_set():
            await asyncio.sleep(0)
        assert work.is_busy()
        task.cancel()
        while work.is_busy():
            await asyncio.sleep(0)

    in_loop(do)


@pytest.mark.parametrize("saved", [False, True])
def test_work_ends_when_the_client_leaves(saved: bool) -> None:
    """But for a request whose stream is saved: the client may come again."""
    messages: list[Message] = [{"type": "http.request", "body": b"{}", "more_body": False}]
    go_on = threading.Event()

    async def receive() -> Message:
        if messages:
            return messages.pop()
        go_on.set()
        return {"type": "http.disconnect"}

    def wait() -> str:
        while not saved or not go_on.is_set():
            check_stopped()
        return kind()

    async def do() -> None:
        request = Request({"type": "http", "state": {"saved": object()} if saved else {}}, receive)
        if saved:
            go_on.set()
            assert await work.read(request, wait) == "short"
            return
        with pytest.raises(ClientDisconnect):
            await work.read(request, wait)
        while work.is_busy():
            await asyncio.sleep(0)

    in_loop(do)


def test_work_pauses_while_responses_are_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(work, "SLICE", 0.0)
    monkeypatch.setattr(work.time, "sleep", pauses.append)
    answer = threading.Event()  # any object

    def compute() -> int:
        check_stopped()
        return len(pauses)

    async def do() -> None:
        assert await work.run(Work.SHORT, compute) == 0
        work.ANSWERS.add(answer)
        assert await work.run(Work.SHORT, compute) > 0
        assert all(0 < seconds <= work.MAX_PAUSE for seconds in pauses)

    try:
        in_loop(do)
    finally:
        work.ANSWERS.discard(answer)


def test_work_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SECONDS", 0.0)

    async def do() -> None:
        with pytest.raises(HTTPError, match="takes more than 0 seconds") as caught:
            await work.run(Work.SHORT, work_for_ever, threading.Event())
        assert caught.value.code == 413

    in_loop(do)


def n_values(value: Any) -> int:
    """What JSON costs: commas, 2 for a list or an object, 4 for a key."""
    if not isinstance(value, list | dict):
        return 0
    inner = list(value.values() if isinstance(value, dict) else value)
    keys = 4 * len(inner) if isinstance(value, dict) else 0
    return 2 + keys + max(len(inner) - 1, 0) + sum(map(n_values, inner))


def made(r: random.Random, depth: int = 0) -> Any:
    if depth == 3 or r.random() < 0.4:
        return r.choice(['a"b', "\\", '\\"[,', ",:[{}]", 'x\\\\"', "", 5, None, "é\u0001"])
    some = [made(r, depth + 1) for _ in range(r.randrange(4))]
    return some if r.random() < 0.5 else {f'k"{i}\\': v for i, v in enumerate(some)}


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1 << 20])
def test_values_are_counted_outside_of_strings(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "STEP", step)
    for seed in range(40):
        value = made(random.Random(seed))
        text = json.dumps(value, separators=(",", ":"))
        size = len(re.sub(r'"(\\.|[^"\\])*"', '"', text))
        cost = max(n_values(value), size // 4) + text.count("\\") // 2
        monkeypatch.setattr(body, "MAX_COST", cost)
        body.check_cost(text.encode())
        monkeypatch.setattr(body, "MAX_COST", cost - 1)
        with pytest.raises(HTTPError, match="has more than"):
            body.check_cost(text.encode())


def test_bodies_of_too_many_values_are_not_parsed(client: TestClient) -> None:
    nested = '{"content": "a", "x": [' + ",".join(["[[[[]]]]"] * 100_000) + "]}"
    keys = '{"content": "a", "x": {' + '"k": 1,' * 200_000 + '"k": 1}}'
    powers, digits = f'{{"content": [{"1e9," * 130_000}1]}}', f'{{"content": [{"1" * 2_100_000}]}}'
    for text in (nested, keys, powers, digits):
        found = client.post("/tokenize", content=text)
        assert found.status_code == 413, found.text
        assert "more than 524288 values" in found.json()["error"]["message"]
    long = "a, [b]: {c} " * 100_000
    assert client.post("/tokenize", json={"content": long}).status_code == 200


def test_long_texts_are_read_and_written_in_threads_for_long_work(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    whole = tokens.as_long_json

    def noted(value: Any) -> Any:
        found.append(kind())
        return whole(value)

    monkeypatch.setattr(tokens, "as_long_json", noted)
    for n in (10, 100_000):
        answer = client.post("/tokenize", json={"content": "a" * n, "with_pieces": True}).json()
        assert "".join(one["piece"] for one in answer["tokens"]) == "a" * n
    assert found == ["short", "long"]


def test_texts_beyond_any_context_are_refused(client: TestClient) -> None:
    content = "a " * (5 << 20)
    for path, name in (("/tokenize", "content"), ("/completion", "prompt")):
        found = client.post(path, json={name: content})
        assert found.status_code == 413
        assert "must have at most 8388608" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", ["w"] * 257),
        ("stop", "w" * 1025),
        ("samplers", ["top_k"] * 33),
        ("samplers", "k" * 33),
        ("dry_sequence_breakers", ["w"] * 257),
    ],
)
def test_fields_with_too_many_texts(client: TestClient, field: str, value: Any) -> None:
    found = client.post("/completion", json={"prompt": "a", "n_predict": 1, field: value})
    assert found.status_code == 400 and f"Field '{field}'" in found.json()["error"]["message"]
    fewer = client.post("/completion", json={"prompt": "a", "n_predict": 1, field: value[1:]})
    assert fewer.status_code == 200, fewer.text


def test_fields_with_too_large_numbers(client: TestClient) -> None:
    for n, status in ((51, 400), (50, 200)):
        asked = {"prompt": "a", "max_tokens": 1, "echo": True, "logprobs": n}
        found = client.post("/v1/completions", json=asked)
        assert found.status_code == status and ("Field 'logprobs'" in found.text) == (n > 50)
    found = client.post("/completion", json={"prompt": "a", "n_predict": 1, "n_probs": 2049})
    assert found.status_code == 400 and "Field 'n_probs'" in found.json()["error"]["message"]
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(513)]
    chat = {"messages": [{"role": "user", "content": "a"}], "tools": tools}
    found = client.post("/v1/chat/completions", json=chat)
    assert (
        found.status_code == 400
        and "at most 512 functions, got 513" in found.json()["error"]["message"]
    )


TEXT = {"type": "text", "text": "a"}
SAID = {"role": "user", "content": "a"}
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
LISTS = [  # path, fields of a request with a list of n items, its field
    ("/completion", lambda n: {"prompt": ["a"] * n}, "prompt"),
    ("/v1/completions", lambda n: {"prompt": [[5]] * n}, "prompt"),
    ("/completion", lambda n: {"prompt": "a", "logit_bias": [[i, 1] for i in range(16 * n)]}, ""),
    ("/completion", lambda n: {"prompt": "a", "lora": [{"id": 0}] * n}, "lora"),
    ("/lora-adapters", lambda n: [{"id": 0}] * n, "lora"),
    ("/v1/streams/lookup", lambda n: {"conversation_ids": ["a"] * n}, "conversation_ids"),
    ("/v1/chat/completions", lambda n: {"messages": [SAID] * n}, "messages"),
    ("/v1/chat/completions", lambda n: {"messages": [{**SAID, "content": [TEXT] * n}]}, "messages"),
    ("/apply-template", lambda n: {"messages": [{**SAID, "tool_calls": [CALL] * n}]}, "messages"),
    ("/v1/messages", lambda n: {"messages": [SAID] * n}, "messages"),
    ("/v1/messages", lambda n: {"messages": [SAID], "system": [TEXT] * n}, "system"),
    ("/v1/responses", lambda n: {"input": [SAID] * n}, "input"),
    (
        "/v1/chat/completions",
        lambda n: {"messages": [SAID], "chat_template_kwargs": {f"v{i}": 1 for i in range(n)}},
        "chat_template_kwargs",
    ),
]


@pytest.mark.parametrize(("path", "fields", "name"), LISTS)
def test_lists_with_too_many_items(client: TestClient, path: str, fields: Any, name: str) -> None:
    found = client.post(path, json=fields(MAX_ITEMS + 1))
    assert found.status_code == 400, found.text
    message = found.json()["error"]["message"]
    assert f"Field '{name or 'logit_bias'}': must have at most" in message and ", got " in message


@pytest.mark.parametrize("name", ["input", "content"])
def test_embeddings_of_too_many_texts(name: str) -> None:
    with served("--embeddings") as (client, _):
        found = client.post("/embedding", json={name: ["a"] * (MAX_ITEMS + 1)})
    assert found.status_code == 400 and f"Field '{name}'" in found.json()["error"]["message"]


def test_texts_that_nobody_waits_for_are_not_embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two groups of texts it is seen that the client has left."""
    read, n_read = Reading._read, 0
    left = threading.Event()

    def noted(reading: Reading, *args: Any) -> Any:
        nonlocal n_read
        n_read += 1
        left.wait(WAIT)
        return read(reading, *args)

    monkeypatch.setattr(Reading, "_read", noted)
    with served("--embeddings") as (_, state):
        reading = state.engine.embed([[5]] * (4 * N_SEQ))
        while not n_read:
            time.sleep(0.01)
        is_cancelled = reading.cancel()
        left.set()
        assert is_cancelled
        assert len(state.engine.embed([[5]]).result(WAIT)) == 1
    assert n_read == 2


def test_replies_that_repeat_long_settings(client: TestClient) -> None:
    grammar = 'root ::= "' + "a" * 100_000 + '"'
    asked = {"prompt": ["a"] * 1000, "n_predict": 1, "grammar": grammar}
    found = client.post("/completion", json=asked)
    assert found.status_code == 413 and "'prompt'" in found.json()["error"]["message"]
    response = {"input": "a", "max_output_tokens": 1, "metadata": {"a": "a" * (1 << 20)}}
    found = client.post("/v1/responses", json=response)
    assert found.status_code == 413 and "metadata" in found.json()["error"]["message"]


@pytest.mark.parametrize("n", [2, 40])
def test_many_replies_are_written_in_threads(
    client: TestClient, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    whole = NativeWriter.write_body

    def noted(writer: NativeWriter, replies: Any) -> Any:
        found.append(kind())
        return whole(writer, replies)

    monkeypatch.setattr(NativeWriter, "write_body", noted)
    answers = client.post("/completion", json={"prompt": ["a"] * n, "n_predict": 1}).json()
    assert len(answers) == n and (found == ["write"]) == (n > 16)
    found.clear()
    monkeypatch.setattr(response, "LONG", 20)
    asked = {"prompt": "a", "n_predict": 1, "logit_bias": [[i, 1] for i in range(n)]}
    assert client.post("/completion", json=asked).status_code == 200
    assert (found == ["write"]) == (n > 16)


@pytest.mark.parametrize("n", [3, 30])
def test_many_probabilities_are_written_in_threads(
    client: TestClient, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    whole, partial = NativeWriter.write_body, NativeWriter.partial

    def noted(writer: NativeWriter, replies: Any) -> Any:
        found.append(kind())
        return whole(writer, replies)

    def noted_part(writer: NativeWriter, reply: Any, change: Any) -> Any:
        found.append(kind())
        return partial(writer, reply, change)

    monkeypatch.setattr(NativeWriter, "write_body", noted)
    monkeypatch.setattr(NativeWriter, "partial", noted_part)
    asked = {"prompt": "a", "n_predict": 4, "n_probs": n}
    answer = client.post("/completion", json=asked).json()
    assert len(answer["completion_probabilities"][0]["top_logprobs"]) == n
    assert found == ["write"]
    streamed = events(client.post("/completion", json={**asked, "stream": True}).text)
    probabilities = [one for _, e in streamed for one in e.get("completion_probabilities", ())]
    assert probabilities[:4] == answer["completion_probabilities"]
    assert ("write" in found[1:]) == (n > 20) and len({*found[1:]}) == 1


def test_events_that_are_here_already_hold_up_nothing(state: ModelState) -> None:
    n, ticks = 50, 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def do() -> None:
        request = replace(build_defaults(state.options)[0], prompt=(1,))
        pending = PendingReplies(state, [request], Delivery())
        for _ in range(n):
            pending._tell(pending.replies[0], Event(Timings()))
        ticking = asyncio.ensure_future(tick())
        for _ in range(n):
            await pending.next()
        ticking.cancel()

    in_loop(do)
    assert ticks >= n


@pytest.mark.parametrize(
    "error",
    [
        OSError(ENOSPC, "No space left on device", "/slots/a"),
        OSError(EMFILE, "Too many open files"),
        RuntimeError("can't start new thread"),
        MemoryError("no"),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_the_request(
    error: Exception, client: TestClient, state: ModelState, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Engine, "save_slot", lambda *_: failed(error))
        found = client.post("/slots/0?action=save", json={"filename": "a"})
    assert found.status_code == 503 and "/slots" not in found.json()["error"]["message"]
    assert not any(record.exc_info for record in caplog.records)


def failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def test_json_by_steps_is_the_same() -> None:
    for value in ([1, {"a": "é\ud800"}, [1.5, None, True]], [float("nan")], {}, "a", [[]] * 3000):
        assert dumps_by_steps(value) == dumps(value)


STUCK = """
import sys, time
from llama_py.tokenizer import Tokenizer
from llama_py_server.command import main

tokenize = Tokenizer.tokenize

def stuck(self, text, *args, **how):
    if text != "stuck":
        return tokenize(self, text, *args, **how)
    print("working", file=sys.stderr, flush=True)
    time.sleep(100_000)

Tokenizer.tokenize = stuck
sys.exit(main(["--port", "0", "--no-warmup", "-c", "512", "--timeout-stop", "1"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_server_ends_though_work_cannot_be_stopped() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
        env=clean_environment(),
    )
    assert process.stderr is not None
    ends = threading.Timer(WAIT, process.kill)  # a line that never comes must not hang the tests
    ends.start()
    try:
        lines = iter(process.stderr)
        url = next(line for line in lines if line.startswith("listening on")).split()[-1]
        next(line for line in lines if line.startswith("ready"))
        client = httpx.Client(timeout=WAIT)
        with ThreadPoolExecutor(1) as threads:
            answer = threads.submit(client.post, f"{url}/tokenize", json={"content": "stuck"})
            next(line for line in lines if line.startswith("working"))
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT) == 0
            answer.exception(WAIT)  # if any: the connection may end before
    finally:
        ends.cancel()
        process.kill()
        process.communicate(timeout=WAIT)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a priority is of the process")
@pytest.mark.parametrize("kind", [*Work])
def test_threads_for_long_work_have_a_low_priority(kind: Work) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    more = 0 if kind in (Work.SHORT, Work.FETCH) else work.NICE
    assert asyncio.run(work.run(kind, niceness)) == min(niceness() + more, 19)
