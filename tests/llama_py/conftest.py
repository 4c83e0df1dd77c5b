"""The demo model for several files, with both interfaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import llama_py
from llama_py.compat.llama_cpp import Llama
from tests.support.llama_cpp_python import make


@pytest.fixture(scope="module")
def llm() -> Iterator[Llama]:
    made = make()
    yield made
    made.close()


@pytest.fixture(scope="module")
def model() -> Iterator[llama_py.Model]:
    with llama_py.load() as found:
        yield found
