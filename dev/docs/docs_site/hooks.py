"""MkDocs hooks that add linked repository files to the site, and a page per family of ops.

Guides become Markdown pages, and code becomes pages with a code block. The page of a file has the
path `files/PATH`. A link to `../llama_py/hparams/hparams.py` thus works in the repository and on
the site.
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
LINK = re.compile(r"(\])\(([^)\s]+)\)")  # also the link around a picture
FENCE = re.compile(r"^(```.*?^```|~~~~.*?^~~~~)$", re.M | re.S)
CELL = re.compile(r"<t[dh]\b.*?</t[dh]>", re.S)
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
    """Set version and repository, and replace the page of ops by the pages of all op families.

    Version and repository are from pyproject.toml, so that a release changes one file.
    """
    project = _project()
    config.site_name = f"llama-py {project['version']}"
    config.copyright = f"{config.site_name}, {project['license']} license"
    config.repo_url = project.get("urls", {}).get("Repository", "")
    config.repo_name = "Source"
    families = [f"{FAMILIES}{name}.md" for name in _families()]
    _expand(config.nav, families)
    return config


def _expand(pages: list[Any], families: list[str]) -> None:
    """Replace the page of ops in the navigation, at any depth."""
    for i, page in enumerate(pages):
        if page == FAMILIES:
            pages[i] = {"Ops by family": families}
        elif isinstance(page, dict):
            for section in page.values():
                if isinstance(section, list):
                    _expand(section, families)


def _project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    import tomllib  # Python 3.11; tests of other functions also run on 3.10

    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each family of ops, and for each file that a page links to."""
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
    """Replace each link to a file by a link to the page of the file."""
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


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Unescape vertical bars in table cells, because the table parser skips code."""
    return CELL.sub(lambda cell: cell[0].replace("\\|", "|"), html)


def _families() -> list[str]:
    """Return the names of the op families, which are files in ggml_py/ops."""
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
