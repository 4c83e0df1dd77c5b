"""Links that are slow: when what was sent comes out, and what is read of the programs' output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.compare import compare_links
from dev.compare.links import delayed, turns
from dev.compare.links.spaces import Speed


@pytest.fixture
def ends() -> Iterator[tuple[int, int, int, int]]:
    """Where packets are written, and taken; where they are put, and read. Non-blocking."""
    found = *os.pipe()[::-1], *os.pipe()[::-1]
    for end in found:
        os.set_blocking(end, False)
    yield found
    for end in found:
        os.close(end)


def test_packets_come_in_turn_and_late(
    ends: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    written, taken, put, read = ends
    now = 100.0
    monkeypatch.setattr(delayed.time, "monotonic", lambda: now)
    way = delayed.Way(taken, put, latency=1.0, rate=10.0)
    for packet in (b"x" * 20, b"y" * 10):  # 2 s and 1 s of the link, one after the other
        os.write(written, packet)
        way.take()
    assert way.hand_on() == pytest.approx(103.0)
    with pytest.raises(BlockingIOError):
        os.read(read, 100)
    now = 103.5
    assert way.hand_on() == pytest.approx(104.0)
    assert os.read(read, 100) == b"x" * 20
    now = 104.0
    assert way.hand_on() is None and os.read(read, 100) == b"y" * 10


def test_rates_by_test_and_split_mode() -> None:
    text = """
{"n_prompt": 64, "n_gen": 0, "split_mode": "layer", "samples_ts": [5.5]}
not JSON
{"n_prompt": 0, "n_gen": 16, "split_mode": "graph", "samples_ts": [2, 1, 9]}
"""
    assert compare_links.rates(text) == {"layer pp": 5.5, "graph tg": 2.0}
    assert Speed(1e-4, 1e8).name == "0.1 ms, 100 Mbit/s"


def test_a_link_is_found_from_messages_of_three_sizes() -> None:
    latency, meeting, rate, ends, few, many = 1e-3, 2e-4, 2e8, 1e8, 4096, 262144
    each = [(latency + n / rate, latency + meeting + n / ends) for n in (0, few, many)]
    link = compare_links.link_of("\n".join(f"{a} {b}" for a, b in each), few, many)
    assert (link.latency, link.message) == (pytest.approx(latency), 0.0)
    assert link.meeting == pytest.approx(meeting)
    for n in (few, many):
        assert link.exchange(n) == pytest.approx(latency + meeting + n / ends)
    assert link.seconds(many) == pytest.approx(latency + many / rate)


def test_processes_beside_each_other_share_the_median(tmp_path: Path) -> None:
    script = tmp_path / "bench.py"
    lines = '{"n_prompt": 4, "samples_ts": [1, 2]}', '{"n_prompt": 0, "samples_ts": [5, 9, 7]}'
    script.write_text(f"print(*{lines!r}, sep=chr(10))")
    assert compare_links.rates_beside([sys.executable, str(script)]) == {"pp": 1.5, "tg": 7}
    script.write_text("raise SystemExit(3)")
    with pytest.raises(OSError, match="ended with 3"):
        compare_links.rates_beside([sys.executable, str(script)])


class Scripted:
    """A player that takes what it is told to."""

    def __init__(self, name: str, took: dict[str, float], log: list[str]) -> None:
        self.name, self.took, self.log = name, took, log

    def seconds(self, test: str) -> float:
        self.log.append(self.name)
        return self.took[test]


def test_players_compute_by_turns_and_each_is_first_at_times() -> None:
    log: list[str] = []
    names = {"a": {"pp": 1.0, "tg": 4.0}, "b": {"pp": 2.0, "tg": 5.0}}
    players: dict[str, Any] = {name: Scripted(name, took, log) for name, took in names.items()}
    found = turns.taken(players, 2)
    assert found == {"pp": {"a": [1, 1], "b": [2, 2]}, "tg": {"a": [4, 4], "b": [5, 5]}}
    assert "".join(log) == "abba" * 2


def test_ratios_are_of_one_round_each() -> None:
    """Both became slower together: that says nothing about either."""
    own, other = [1.0, 2.0, 4.0], [1.25, 2.5, 5.0]
    assert turns.rate_kept(own, other) == pytest.approx((0.8, 0.8, 0.8))


def test_a_player_that_ends_is_an_error() -> None:
    with pytest.raises(OSError, match="ended with 3"):
        turns.Player([sys.executable, "-c", "raise SystemExit(3)"], os.environ)
