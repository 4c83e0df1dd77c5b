"""What the documentation site makes of docstrings, links and files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dev.docs.docs_site import hooks
from dev.docs.docs_site.docstrings import lists


def test_columns_become_a_list() -> None:
    text = """Sizes.

n_head, n_head_kv   query heads,
                    and key heads
file.ne  its shape

    code   stays
What  is no name stays."""
    assert (
        lists(text)
        == """Sizes.


- `n_head`, `n_head_kv`: query heads, and key heads
- `file.ne`: its shape

    code   stays
What  is no name stays."""
    )


def moved(uri: str, markdown: str) -> str:
    page = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    return hooks.on_page_markdown(markdown, page, None, None)


@pytest.mark.parametrize(
    ("uri", "link", "expected"),
    [
        ("guides.md", "../mkdocs.yml", "files/mkdocs.yml.md"),
        ("api/index.md", "../../README.md#speed", "../files/README.md#speed"),
        ("guides.md", "ops.md", "ops.md"),
        ("files/README.md", "docs/ops.md", "../ops.md"),
        ("files/CONTRIBUTING.md", "backends", "backends/README.md"),
        ("guides.md", "nowhere.md", "nowhere.md"),
        ("guides.md", "https://host/mkdocs.yml", "https://host/mkdocs.yml"),
    ],
)
def test_links_lead_to_pages_of_files(uri: str, link: str, expected: str) -> None:
    assert moved(uri, f"a [b]({link}) c") == f"a [b]({expected}) c"


def test_images_of_files_are_found() -> None:
    text = "![a](docs/tour/chat.svg)"
    assert moved("files/README.md", text) == "![a](../tour/chat.svg)"


def test_links_around_pictures_lead_to_pages() -> None:
    text = "[![a](docs/tour/chat.svg)](pyproject.toml)"
    assert moved("files/README.md", text) == "[![a](../tour/chat.svg)](pyproject.toml.md)"


def test_code_is_left_alone() -> None:
    text = "```\n[a](../mkdocs.yml)\n```\n"
    assert moved("guides.md", text) == text


def test_bars_in_cells_have_no_backslash() -> None:
    html = "<td><code>N[K\\|M]</code></td><p>a \\| b</p>"
    assert hooks.on_page_content(html, None, None, None) == html.replace("K\\|M", "K|M")


def test_every_family_of_ops_has_a_page() -> None:
    folder = Path(hooks.ROOT) / "ggml_py" / "ops"
    assert "norm" in hooks._families()
    assert len(hooks._families()) == len(list(folder.glob("*.py"))) - 3


def test_the_site_has_the_version_and_repository_of_the_project() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((Path(hooks.ROOT) / "pyproject.toml").read_text("utf-8"))["project"]
    config = SimpleNamespace(nav=[{"Reference": [{"API": ["api/index.md", hooks.FAMILIES]}]}])
    hooks.on_config(config)
    assert f"llama-py {project['version']}" in config.copyright
    assert config.repo_url == project.get("urls", {}).get("Repository", "")
    (reference,) = config.nav[0]["Reference"]
    assert list(reference["API"][1]) == ["Ops by family"]
    assert "api/ops/norm.md" in reference["API"][1]["Ops by family"]
