"""Chat templates that llama.cpp knows by name (src/llama-chat.cpp), as Jinja texts.

`llama_py/data/templates.txt` has them, each after a line `=== NAME ===`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from ggml_py.errors import ModelError
from llama_py.chat.go_template import is_go_template, to_jinja
from llama_py.params.near import did_you_mean

DEFAULT = "chatml"  # for models without a template
FILE = Path(__file__).parents[1] / "data" / "templates.txt"


@cache
def named_templates() -> dict[str, str]:
    """Return the templates by name."""
    _, *parts = re.split(r"^=== (\S+) ===\n", FILE.read_text("utf-8"), flags=re.MULTILINE)
    return {name: source[:-1] for name, source in zip(parts[::2], parts[1::2], strict=True)}


def template_source(text: str) -> str:
    """Return the text of a template: of a known name, or the text itself if it is not a single
    word. A text without `{` is also a template, the same for every conversation. A Go template,
    like in Ollama's Modelfiles, is translated.

    Raises ModelError, which lists all names, for an unknown name, and for an invalid Go template.
    """
    if "{" in text or len(text.split()) > 1:
        return to_jinja(text) if is_go_template(text) else text
    if text not in named_templates():
        meant = did_you_mean(text, named_templates()) or f"known: {', '.join(named_templates())}"
        raise ModelError(f"unknown chat template {text!r}; {meant}")
    return named_templates()[text]
