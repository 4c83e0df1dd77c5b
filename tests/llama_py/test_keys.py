"""Hyperparameters as declared fields: defaults, checks, values by layer, classes that differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggml_py.errors import HParamsError
from llama_py.gguf.keys import DeclaredKeys, Keys, fields, flag, number, numbers, text, uint, uints


class Sizes(DeclaredKeys):
    n_embd: int = uint("embedding_length", least=1)
    n_layer_all: int = uint("block_count", 2, most=8)
    n_inner: int = uint("inner_size", lambda s: 2 * s.n_embd)
    n_ff: tuple[int, ...] = uints("feed_forward_length", lambda s: s.n_inner + 1, least=1)
    factors: tuple[float, ...] = numbers("factors", 0.5)
    sections: tuple[int, ...] = uints("sections", 0, count=lambda _: 3)
    eps: float = number("epsilon", 1e-5, least=0)
    kind: str = text("kind", "round", choices=("round", "square"))
    causal: bool = flag("causal", True)


def read(cls: type[DeclaredKeys] = Sizes, /, **values: Any) -> Any:
    metadata = {f"a.{key}": value for key, value in {"embedding_length": 4, **values}.items()}
    return cls(Keys(metadata, "a"))


def refusal(cls: type[DeclaredKeys] = Sizes, /, **values: Any) -> str:
    with pytest.raises(HParamsError) as caught:
        read(cls, **values)
    return str(caught.value)


def test_defaults() -> None:
    sizes = read()
    assert (sizes.n_embd, sizes.n_layer_all, sizes.eps) == (4, 2, 1e-5)
    assert (sizes.kind, sizes.causal) == ("round", True)


def test_a_default_may_follow_from_what_was_read_before() -> None:
    assert (read().n_inner, read().n_ff) == (8, (9, 9))
    assert read(inner_size=3).n_ff == (4, 4)
    assert read(embedding_length=5).n_inner == 10


def test_a_value_of_each_layer() -> None:
    assert read(block_count=3, feed_forward_length=7).n_ff == (7, 7, 7)
    assert read(feed_forward_length=np.array([7, 6], np.uint32)).n_ff == (7, 6)
    assert read(factors=[1, 2.5]).factors == (1.0, 2.5)
    assert read(sections=[1, 2, 3]).sections == (1, 2, 3)
    assert read(sections=[True, False, True]).sections == (1, 0, 1)  # the converter's flags
    assert refusal(feed_forward_length=[1, 2, 3]).endswith(
        "must have 2 items instead of 3, got [1, 2, 3]; convert the model again"
    )
    assert (
        refusal(sections=[1, 2])
        == "a.sections must have 3 items instead of 2, got [1, 2]; convert the model again"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"embedding_length": 0},
            "a.embedding_length must be at least 1, got 0; convert the model again",
        ),
        ({"block_count": 9}, "a.block_count must be from 0 to 8, got 9; convert the model again"),
        (
            {"feed_forward_length": [1, 0]},
            "a.feed_forward_length must be at least 1, got [1, 0]; convert the model again",
        ),
        ({"epsilon": -1.0}, "a.epsilon must be at least 0, got -1.0; convert the model again"),
        (
            {"epsilon": float("nan")},
            "a.epsilon must be a finite number, got nan; convert the model again",
        ),
        (
            {"kind": "flat"},
            "a.kind must be one of round, square, got 'flat'; convert the model again",
        ),
        ({"causal": 2}, "a.causal must be true or false, got 2; convert the model again"),
        (
            {"factors": [1.0, "x"]},
            "a.factors items must each be a finite number, got [1.0, 'x']; convert the model again",
        ),
    ],
)
def test_what_is_wrong_is_told_with_key_and_value(values: dict[str, Any], message: str) -> None:
    assert refusal(**values) == message


def test_a_key_without_default_is_needed() -> None:
    with pytest.raises(HParamsError, match=r"a\.embedding_length is missing, which .* 'a' needs"):
        Sizes(Keys({}, "a"))


class Fixed(Sizes):
    """As above, but of one inner size, and its epsilon must be there."""

    n_inner = 100
    eps: float = number("epsilon")


def test_a_class_may_replace_a_field_by_a_value_or_another() -> None:
    fixed = read(Fixed, inner_size=3, epsilon=0.5)
    assert (fixed.n_inner, fixed.n_ff, fixed.eps) == (100, (101, 101), 0.5)
    assert "a.epsilon is missing," in refusal(Fixed)
    assert "n_inner" not in dict(fields(Fixed))


def test_fields_are_read_from_the_first_class_on() -> None:
    class More(Sizes):
        n_embd: int = uint("width", least=1)  # n_inner still comes after it
        n_more: int = uint("more", lambda s: s.n_ff[0])

    assert [name for name, _ in fields(More)][:3] == ["n_embd", "n_layer_all", "n_inner"]
    assert read(More, width=6).n_more == 13


def test_a_class_may_take_a_default_back() -> None:
    class Small(Fixed):
        n_inner: int = uint("inner_size", 1)

    assert read(Small, epsilon=0).n_inner == 1
