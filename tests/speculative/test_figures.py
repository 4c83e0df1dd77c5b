"""Lengths of drafts, statistics, rollback: by hand."""

from __future__ import annotations

from llama_py.decoding.draft_length import Length
from llama_py.decoding.drafting.statistics import DraftStatistics
from llama_py.decoding.known_text import KnownText


def test_statistics() -> None:
    s = DraftStatistics()
    assert (s.rate, s.rates, s.mean_length) == (0.0, [], 0.0)
    for drafted, accepted in ((3, 3), (3, 1), (2, 0), (1, 1)):
        s.add(drafted, accepted)
    assert (s.n_drafts, s.n_drafted, s.n_accepted) == (4, 9, 5)
    assert s.drafted_at == [4, 3, 2]
    assert s.accepted_at == [3, 1, 1]
    assert s.rates == [3 / 4, 1 / 3, 1 / 2]
    assert s.rate == 5 / 9
    assert s.mean_length == 1 + 5 / 4
    assert s.text() == (
        "drafted 9 tokens in 4 drafts (0.00 s), accepted 5 (55.6%; by position 0.75 0.33 0.50),"
        " 2.25 tokens per verification"
    )


def test_lengths_follow_what_was_accepted() -> None:
    one = Length()
    assert one.find_best(3) == 3
    assert one.find_best(48) == 4  # 0.8^4 = 0.41, 0.8^5 = 0.33
    for _ in range(40):
        one.update(3, 0)
    assert one.find_best(48) == 1
    for _ in range(30):
        one.update(4, 4)
    assert one.find_best(48) > 20
    before = one.rate
    one.update(8, 2)  # two right, one wrong; the others say nothing
    rate = before
    for right in (1, 1, 0):
        rate += (right - rate) / 16
    assert one.rate == rate


def test_a_text_grows_and_is_cut() -> None:
    text = KnownText(first=100)
    text.add(range(1000))
    assert (text.end, text.n, text.tokens_since(1097)) == (1100, 1000, [997, 998, 999])
    text.cut(103)
    text.add([7])
    assert text.ids.tolist() == [0, 1, 2, 7]
    text.cut(0)
    assert text.end == 100
