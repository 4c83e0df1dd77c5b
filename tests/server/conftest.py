"""One server of the demo model for all files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from llama_py_server.models.state import ModelState
from tests.server.chat_page import on_a_socket
from tests.server.served import served, talking
from tests.support.browser import chromium
from tests.support.eyes import files_of


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, ModelState]]:
    folder = str(tmp_path_factory.mktemp("slots"))
    with served("--metrics", "--slot-save-path", folder) as found:
        yield found


@pytest.fixture(scope="session")
def calling() -> Iterator[TestClient]:
    """Of one with a template that has tools."""
    with served(*talking()) as (client, _):
        yield client


@pytest.fixture
def client(serving: tuple[TestClient, ModelState]) -> TestClient:
    return serving[0]


@pytest.fixture
def state(serving: tuple[TestClient, ModelState]) -> ModelState:
    return serving[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server of the demo model, which answers greedily, and if it may for minutes: with its
    own template an answer would end where the other one's turn begins, and it has to fit."""
    endless = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    flags = ("--ignore-eos", "-c", "65536", "-n", "40", "--chat-template", endless)
    with served(*flags) as (client, _), on_a_socket(client) as found:
        yield found


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a tiny model that sees."""
    pytest.importorskip("PIL.Image")
    model, eyes = files_of("pixtral", tmp_path_factory.mktemp("eyes"))
    flags = ("-m", str(model), "--mmproj", str(eyes), "-n", "6")
    with served(*flags) as (client, _), on_a_socket(client) as found:
        yield found
