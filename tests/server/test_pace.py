"""How long a client that sends many requests waits."""

from __future__ import annotations

from llama_py_server.wire.pace import BURST, RATE, Pace


def test_a_flood_is_slowed_down_to_a_rate() -> None:
    pace = Pace()
    pace.open("a")
    pace.open("b")
    assert max(pace.delay("a", 1.0) for _ in range(BURST)) < 1e-9
    waits = [pace.delay("a", 1.0) for _ in range(50)]
    assert waits == sorted(waits) and abs(waits[-1] - 50 / RATE) < 1e-6
    assert pace.delay("b", 1.0) == 0  # another client does not wait
    assert pace.delay("a", 1.0 + (BURST + 60) / RATE) == 0


def test_one_client_alone_does_not_wait() -> None:
    pace = Pace()
    pace.open("a")
    assert not any(pace.delay("a", 0.0) for _ in range(10 * BURST))
    pace.open("b")
    pace.close("b")
    assert pace.delay("a", 0.0) == 0
    assert not any(pace.delay("", 0.0) for _ in range(10 * BURST))  # a unix socket
