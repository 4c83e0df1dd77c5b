"""One server of the demo model for all files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from llama_py_server.models.state import ModelState
from tests.server.served import served, talking


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
