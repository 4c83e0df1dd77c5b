"""Normal form C, independent of the Python version."""

from __future__ import annotations

import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_py.tokenizer import nfc as module
from llama_py.tokenizer.characters import category
from llama_py.tokenizer.nfc import nfc
from tests.support.vocabularies import FORMS, texts

# Characters that every Unicode version has from 13 on.
OLD = (
    "aeo\u0302\u0323\u0301\u0300\u0316\u0334\u0344\u212b\uf900\u0915\u093c\u0958\u09c7\u09be\u09d7"
    "\u1100\u1161\u11a8\uac00\uac01\u304b\u3099\u0f71\u0f72\u0f73\U0001d15e\U0001d165\U00011131"
)


@given(st.text(OLD, max_size=80))
def test_old_characters_have_the_form_of_python(text: str) -> None:
    assert nfc(text) == unicodedata.normalize("NFC", text)


def test_forms() -> None:
    assert nfc("\U0001611e\U0001611e\U0001611f") == "\U00016126"  # Unicode 16
    assert nfc("a\u0897\u0334") == "a\u0334\u0897"
    assert nfc("a\u1acf\u0334") == "a\u1acf\u0334"  # Unicode 17
    assert nfc("e\udcff\u0301") == "e\udcff\u0301"
    assert nfc("a" + "\u0301\u0323" * 50000) == "ạ\u0323" + "\u0323" * 49998 + "\u0301" * 50000


def another_unicode(newer: bool) -> SimpleNamespace:
    """A module `unicodedata` that lacks the later characters, or knows ones of the future."""

    def differs(c: str) -> bool:
        later = c in module._later_classes() or c in module._later_pairs()
        return not newer if later else category(c) == "-"

    def normalize(form: str, text: str) -> str:
        if any(map(differs, text)):
            return "\u00c1" if newer else text
        return unicodedata.normalize(form, text)

    def combining(c: str) -> int:
        return 230 * newer if differs(c) else unicodedata.combining(c)

    def decomposition(c: str) -> str:
        return "0041 0301" * newer if differs(c) else unicodedata.decomposition(c)

    return SimpleNamespace(normalize=normalize, combining=combining, decomposition=decomposition)


@pytest.mark.parametrize("newer", [False, True])
def test_the_unicode_of_python_changes_nothing(
    newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [*texts(pieces=FORMS), "q\u1acf\u0334", "q\U0001e6e3\u0334"]
    expected, table = [nfc(text) for text in many], module._table()
    monkeypatch.setattr(module, "unicodedata", another_unicode(newer))
    monkeypatch.setattr(module, "_cached", module._normalize)
    assert [nfc(text) for text in many] == expected
    assert (module._table.__wrapped__() == table).all()
