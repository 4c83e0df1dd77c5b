"""A server that is stopped while it is still being started: it ends, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from llama_py_server.params import ListenParams
from llama_py_server.wire import listen
from tests.support.commands import SCRIPTS, clean_environment, heed_interrupts
from tests.support.limits import SECONDS
from tests.support.processes import all_end, compilers

WAIT = SECONDS
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A server whose kernels are being compiled for the first time."""
    process = subprocess.Popen(
        [str(SCRIPTS / "llama-py-server"), "--port", "0"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
        env={**clean_environment(), "LLAMA_PY_CACHE": str(tmp_path)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=WAIT)


@pytest.mark.parametrize(
    ("signals", "code"),
    [((signal.SIGTERM,), 0), ((signal.SIGINT,), 130), ((signal.SIGINT, signal.SIGINT), 130)],
)
def test_a_stop_while_a_model_is_loaded(
    loading: subprocess.Popen[str], signals: Sequence[signal.Signals], code: int
) -> None:
    assert loading.stderr is not None
    for line in loading.stderr:
        if line.startswith("listening on"):
            break
    children = compilers(loading.pid)
    for one in signals:
        loading.send_signal(one)
    _, told = loading.communicate(timeout=WAIT)
    assert loading.returncode == code and "error" not in told and "Traceback" not in told, told
    assert all_end(children)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_stop_at_the_line_that_it_listens(
    sent: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for that line may send a signal at once."""
    heard: list[str] = []

    def tell(line: str) -> None:
        heard.append(line)
        signal.raise_signal(sent)

    monkeypatch.setattr(listen, "tell", tell)
    before = signal.signal(sent, lambda *_: pytest.fail("the server does not handle it yet"))
    flags = ListenParams(host=("127.0.0.1",), port=0)
    never = threading.Event()
    try:
        assert listen.serve(Starlette(), flags, never, never, lambda: None) == code
    finally:
        signal.signal(sent, before)
    assert len(heard) == 1 and heard[0].startswith("listening on http://127.0.0.1:")


def test_a_stop_while_a_request_waits_for_kernels(tmp_path: Path) -> None:
    flags = ["--port", "0", "--no-warmup", "--timeout-stop", "0", "-c", "256"]
    process = subprocess.Popen(
        [str(SCRIPTS / "llama-py-server"), *flags],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**clean_environment(), "LLAMA_PY_CACHE": str(tmp_path)},
    )
    told: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            told.append(line)
            if line.startswith("ready: "):
                break
        url = next(line.split()[-1] for line in told if line.startswith("listening on"))
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(
                httpx.post, f"{url}/completion", json={"prompt": "a"}, timeout=WAIT
            )
            time.sleep(1)  # the request is on its way
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=WAIT)
            assert asking.result().status_code == 503
    finally:
        process.kill()
    assert process.returncode == 0 and "Traceback" not in rest, rest


def test_compilers_end_with_who_was_killed(loading: subprocess.Popen[str]) -> None:
    children = compilers(loading.pid)
    loading.kill()
    assert all_end(children)


SUPERVISED = """
import os, signal, subprocess, sys
from llama_py_tools.command import supervisor

real, n_launched = subprocess.Popen, 0
waits = [sys.executable, "-c", "import signal; signal.pause()"]
loses = [sys.executable, "-c", "import sys; sys.exit('rank 1 on b has ended')"]


def launch(hosts):
    global n_launched
    n_launched += 1
    if {when!r} == "between":
        if n_launched == 1:
            return loses
        os.kill(os.getpid(), signal.SIGTERM)
    return waits


def started(*args, **more):
    if {when!r} == "before":
        os.kill(os.getpid(), signal.SIGTERM)
    found = real(*args, **more)
    if {when!r} == "within":
        os.kill(os.getpid(), signal.SIGTERM)
    return found


supervisor.subprocess.Popen = started
code = supervisor.supervise([("a", 1), ("b", 1)], launch)
print(n_launched, code)
"""


@pytest.mark.parametrize(("when", "n"), [("before", 1), ("within", 1), ("between", 2)])
def test_a_signal_while_a_launcher_is_started(when: str, n: int) -> None:
    """It ends the launcher, and no other one is started."""
    done = subprocess.run(
        [sys.executable, "-c", SUPERVISED.format(when=when)],
        capture_output=True,
        text=True,
        timeout=WAIT,
        env=os.environ,
    )
    assert done.stdout == f"{n} {128 + signal.SIGTERM}\n", done.stderr


@pytest.mark.parametrize(("passed", "left"), [(0.0, 30.0), (12.0, 18.0), (40.0, 0.0)])
def test_the_time_to_finish_counts_from_the_signal(
    passed: float, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from when the event loop notices it."""
    waits: list[float] = []
    now = [100.0]
    monkeypatch.setattr(listen, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(uvicorn.Server, "shutdown", lambda self, sockets: asyncio.sleep(0))
    server = listen.Server(
        uvicorn.Config(Starlette()), threading.Event(), lambda: None, lambda: None
    )
    server.seconds = 30.0

    async def run() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda seconds, _: waits.append(seconds))
        await server.shutdown()

    server.handle_exit(signal.SIGTERM, None)
    now[0] += passed
    asyncio.run(run())
    assert waits == [left] and server.config.timeout_graceful_shutdown == left + listen.CUT
