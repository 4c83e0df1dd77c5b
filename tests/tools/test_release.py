"""One version and one name everywhere, a changelog of both, and badges that are true."""

from __future__ import annotations

import re

import llama_py
from dev.docs.absolute_links import make_absolute
from ggml_py.machine.release import DISTRIBUTION, VERSION
from llama_py_server.models.state import build
from llama_py_tools.command import version
from tests.support.commands import ROOT

PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")


def value(key: str) -> str:
    """A string of pyproject.toml's first table with this key."""
    (found, *_) = re.findall(rf'^{key} = "([^"]+)"', PROJECT, re.MULTILINE)
    return str(found)


def test_the_version_is_the_same_everywhere() -> None:
    assert value("version") == VERSION == llama_py.__version__
    assert version.text().startswith(f"llama-py {VERSION}\n")
    assert build() == f"b{VERSION}-llama-py"


def test_extras_of_the_project_have_its_name() -> None:
    assert value("name") == DISTRIBUTION
    assert set(re.findall(r'"(llama-py[\w-]*)\[', PROJECT)) == {DISTRIBUTION}


def test_addresses_are_in_one_table() -> None:
    """Until the first release it is a comment."""
    start, _, rest = PROJECT.partition("[project.urls]\n")
    table = rest.split("\n\n")[0].replace("# ", "")
    found = dict(re.findall(r'^(\w+) = "(https://[^"]+)"$', table, re.MULTILINE))
    assert found.keys() == {"Documentation", "Repository", "Issues", "Changelog"}
    assert all(address.startswith(found["Repository"]) for address in found.values())
    assert start.endswith("# ") == ("://HOST/" in table)


def test_links_of_a_released_readme_are_absolute() -> None:
    readme = make_absolute((ROOT / "README.md").read_text("utf-8"), "https://h/p")
    assert not re.findall(r"\]\((?!https://)", readme)
    assert "[![CI](https://h/p/raw/main/docs/img/badge-ci.svg)](https://h/p/blob/main/." in readme
    assert make_absolute("[a](#b), [c](https://d/e)", "f") == "[a](#b), [c](https://d/e)"


def test_the_changelog_has_releases_and_changes_to_come() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *others = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    for title in others:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", title)


def badge(name: str) -> str:
    text = (ROOT / "docs" / "img" / f"badge-{name}.svg").read_text("utf-8")
    (title,) = re.findall(r"<title>(.*)</title>", text)
    assert text.count(title.split(": ")[1]) == 3  # label, title and text
    return str(title)


def test_badges_are_true() -> None:
    classified = re.findall(r"Python :: (3\.\d+)", PROJECT)
    assert badge("python") == f"Python: {classified[0]} to {classified[-1]}"
    assert value("requires-python") == f">={classified[0]}"
    assert badge("license") == f"license: {value('license')}"
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert badge("ci") == "CI: Linux, macOS, Windows"
    assert all(name in workflow for name in ("ubuntu-", "macos-", "windows-"))


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 100
