"""MkDocs hooks. Repository files that a page links to become pages of the site: guides as Markdown,
code as code blocks. Each family of ops gets a page.

Therefore a link to `../llama_py/hparams/hparams.py` works if the page is read in the repository,
and on the site. A page of a file is at `files/` and its path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[3]
FILES, FAMILIES = "files/", "api/ops/"
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```|~~~~.*?^~~~~)$", re.M | re.S)
LANGUAGES = {".py": "python", ".cl": "c", ".toml": "toml", ".yml": "yaml"}
LANGUAGES |= dict.fromkeys(["", ".sh"], "bash")
CODE = """---
title: {path}
search:
  exclude: true
---

# {path}

~~~~{language}
{text}~~~~
"""

FAMILY = """# {title}

::: ggml_py.ops.{name}
    options:
      show_root_heading: false
      show_root_toc_entry: false
"""


def on_config(config: Any) -> Any:
    """Replace the page of ops in the navigation by the pages of all families."""
    families = [f"{FAMILIES}{name}.md" for name in _families()]
    for section in config.nav:
        for pages in section.values():
            if isinstance(pages, list) and FAMILIES in pages:
                i = pages.index(FAMILIES)
                pages[i : i + 1] = [{"Ops by family": families}]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the families of ops, and every file that some page leads to."""
    for name in _families():
        text = FAMILY.format(title=name.replace("_", " "), name=name)
        files.append(File.generated(config, f"{FAMILIES}{name}.md", content=text))
    new = [f"docs/{f.src_uri}" for f in files.documentation_pages() if f.generated_by is None]
    known = set(new)
    while new:
        linked = [path for page in new for path in _linked(page) if path not in known]
        new = [path for path in dict.fromkeys(linked) if path.endswith(".md")]
        for path in dict.fromkeys(linked):
            known.add(path)
            files.append(File.generated(config, _uri(path), content=_content(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links lead to the pages of their files."""
    uri = page.file.src_uri
    place = uri[len(FILES) :] if uri.startswith(FILES) else f"docs/{uri}"

    def moved(link: re.Match[str]) -> str:
        path, anchor = _target(place, link[2])
        if not path:
            return link[0]
        return f"{link[1]}({relpath(_uri(path), str(PurePosixPath(uri).parent))}{anchor})"

    return "".join(
        part if part[:3] in ("```", "~~~") else LINK.sub(moved, part)
        for part in FENCE.split(markdown)
    )


def _families() -> list[str]:
    """Return the files of ops, without the registry, which declares them."""
    names = (path.stem for path in (ROOT / "ggml_py" / "ops").glob("*.py"))
    return sorted(name for name in names if name not in ("__init__", "registry", "traffic"))


def _linked(page: str) -> Iterator[str]:
    """Yield files outside docs/ that a page links to, as paths from the root."""
    for part in FENCE.split((ROOT / page).read_text()):
        for link in () if part[:3] in ("```", "~~~") else LINK.finditer(part):
            path, _ = _target(page, link[2])
            if path and not path.startswith("docs/"):
                yield path


def _target(place: str, link: str) -> tuple[str, str]:
    """Return the target file of a link in a file, and the anchor; "" for other links."""
    path, mark, anchor = link.partition("#")
    path = normpath(join(str(PurePosixPath(place).parent), path)) if path else ""
    if "://" in link or not path:
        return "", ""
    if (ROOT / path / "README.md").is_file():
        path = f"{path}/README.md"
    return (path, mark + anchor) if (ROOT / path).is_file() else ("", "")


def _uri(path: str) -> str:
    """Return the path of a file's page on the site."""
    if path.startswith("docs/"):
        return path[len("docs/") :]
    return f"{FILES}{path}" if path.endswith(".md") else f"{FILES}{path}.md"


def _content(path: str) -> str:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    return CODE.format(path=path, language=LANGUAGES.get(Path(path).suffix, "text"), text=text)
