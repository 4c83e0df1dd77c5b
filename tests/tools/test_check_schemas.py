"""Answers that are held to JSON schemas are valid, another package says."""

from __future__ import annotations

import json

import pytest

from dev.torture import check_schemas
from dev.torture.schemas.generate import schema
from dev.torture.schemas.run import judged
from tests.support.grammars import takes


@pytest.mark.parametrize("start", [0, 20])
def test_some_of_the_500(start: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert check_schemas.main(["--start", str(start), "--count", "12"]) == 0
    assert "12 schemas: 12 valid, 0 cut, 0 refused, 0 wrong" in capsys.readouterr().out


def test_what_is_cut_or_wrong_is_told() -> None:
    assert judged('{"a": 1', {}).startswith("wrong: no JSON")
    assert judged("3", {"type": "string"}) == "wrong: 3 is not of type 'string'"
    assert judged('"2023-02-29"', {"format": "date"}).startswith("wrong")
    assert judged('"x"', {}) == "valid"


def test_a_number_is_one_schema() -> None:
    assert schema(3) == schema(3) != schema(4)


@pytest.mark.parametrize(
    ("form", "yes", "no"),
    [
        (
            "date",
            ["2024-02-29", "2000-02-29", "2023-12-31", "0001-01-30"],
            ["2023-02-29", "1900-02-29", "2023-02-30", "2023-04-31", "2023-13-01", "0000-01-01"],
        ),
        ("time", ["13:13:59Z", "13:13:59.25-04:00"], ["13:13:60Z", "24:00:00Z", "13:13:59"]),
        ("date-time", ["2024-02-29T13:13:59Z"], ["2023-02-29T13:13:59Z", "2024-02-29T13:13:60Z"]),
    ],
)
def test_dates_and_times_are_some_that_there_are(form: str, yes: list[str], no: list[str]) -> None:
    wanted = {"type": "string", "format": form}
    judge = takes("json_schema", json.dumps(wanted))
    for texts, expected in ((yes, True), (no, False)):
        for text in map(json.dumps, texts):
            assert judge(text) == expected == (judged(text, wanted) == "valid"), text


def test_objects_have_what_is_described() -> None:
    properties = {"a": {"type": "null"}}
    closed = takes("json_schema", json.dumps({"type": "object", "properties": properties}))
    assert closed('{"a": null}') and closed("{}") and not closed('{"b": null}')
    for more in ({"additionalProperties": True}, {"allOf": [{"properties": {"b": {}}}]}):
        wanted = {"type": "object", "properties": properties, **more}
        assert takes("json_schema", json.dumps(wanted))('{"a": null, "b": 1}')
