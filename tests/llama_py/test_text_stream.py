"""Streamed text: characters are whole, and stop strings unseen, however tokens cut the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggml_py.errors import ModelError
from llama_py.text.text_stream import TextStream


class Pieces:
    """Token i is the i-th piece."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def token_to_piece(self, id: int, special: bool = False) -> bytes:
        return self.pieces[id]


def stream(*pieces: bytes, stop: tuple[str, ...] = ()) -> tuple[list[str], str | None]:
    """What each push gave, then flush; and the stop string."""
    text = TextStream(Pieces(*pieces), stop)
    shown = [text.push(i) for i in range(len(pieces))]
    return [*shown, text.flush()], text.stopped


def test_ends_of_turns_count_without_a_constraint_only() -> None:
    held = [False]
    pieces = Pieces(b"a; ", b"b; c")
    for constrained, shown, stopped in [(False, "a", "; "), (True, "a; b; c", None)]:
        held[0] = constrained
        text = TextStream(pieces, turn_ends=("; ",), is_constrained=lambda: held[0])
        assert (text.push(0) + text.push(1) + text.flush(), text.stopped) == (shown, stopped)
    held[0] = False
    text = TextStream(Pieces(b"a;", b" b"), turn_ends=("; ",), is_constrained=lambda: held[0])
    assert text.push(0) == "a"
    held[0] = True  # a call has begun
    assert text.push(1) == "; b" and text.stopped is None


def test_text_comes_at_once() -> None:
    assert stream(b"Hello", b" world") == (["Hello", " world", ""], None)


def test_a_character_comes_when_it_is_whole() -> None:
    assert stream(b"a\xe2", b"\x82", b"\xacb") == (["a", "", "€b", ""], None)


def test_bytes_that_are_no_character() -> None:
    assert stream(b"\xff", b"a") == (["�", "a", ""], None)
    assert stream(b"\xe2\x82", b"a") == (["", "�a", ""], None)
    assert stream(b"a\xe2\x82") == (["a", "�"], None)


def test_a_stop_string_ends_the_text() -> None:
    assert stream(b"ab", b"STOP", b"cd", stop=("STOP",)) == (["ab", "", "", ""], "STOP")
    assert stream(b"a ST", b"OP b", b"c", stop=("STOP",)) == (["a ", "", "", ""], "STOP")


def test_what_might_have_been_a_stop_string_comes_later() -> None:
    assert stream(b"a ST", b"AR", b"T", stop=("STOP",)) == (["a ", "STAR", "T", ""], None)
    assert stream(b"SSST", stop=("STOP",)) == (["SS", "ST"], None)
    assert stream(b"ab", b"ab", b"ac", stop=("abac",)) == (["", "ab", "", ""], "abac")


def test_a_stop_string_of_whole_characters() -> None:
    assert stream(b"x\xe2\x82", b"\xacy", stop=("€",)) == (["x", "", ""], "€")


def test_the_stop_string_that_is_complete_first_counts() -> None:
    assert stream(b"xabcd", stop=("abcd", "bc")) == (["xa", ""], "bc")
    assert stream(b"xabc", stop=("bc", "abc")) == (["x", ""], "abc")


def test_control_tokens_are_shown_on_request() -> None:
    class Special(Pieces):
        def token_to_piece(self, id: int, special: bool = False) -> bytes:
            return b"<c>" if special else b""

    assert TextStream(Special()).push(0) == ""
    assert TextStream(Special(), special=True).push(0) == "<c>"


@given(
    st.lists(st.sampled_from([b"a", b"b", b"ab", b"\xe2", b"\x82\xac", b"\xff", b"\xf0\x9f"])),
    st.lists(st.text("ab€�", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_cuts_make_no_difference(pieces: list[bytes], stop: tuple[str, ...]) -> None:
    whole = b"".join(pieces)
    shown, stopped = stream(*pieces, stop=stop)
    single = stream(*(whole[i : i + 1] for i in range(len(whole))), stop=stop)
    assert ("".join(shown), stopped) == ("".join(single[0]), single[1])
    text = whole.decode("utf-8", "replace")
    assert text.startswith("".join(shown) + (stopped or ""))
    if stopped is None:
        assert "".join(shown) == text
    assert not any(s in "".join(shown) for s in stop)


@pytest.mark.parametrize("stop", ["STOP", [""], ["a", ""]])
def test_bad_stop_strings(stop: list[str]) -> None:
    with pytest.raises(ModelError, match="non-empty strings"):
        TextStream(Pieces(), stop)
