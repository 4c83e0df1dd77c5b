"""Grammar of the response that parameters specify."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ggml_py.errors import GrammarError
from llama_py.grammar.compiled import Grammar, compile_grammar


def create_grammar(params: Any) -> Grammar | None:
    """Return the grammar that SamplingParams specify, or None.

    Raises GrammarError for an invalid grammar, or for several; OSError for a missing file.
    """
    given = constraint_text(params)
    return compile_grammar(*given) if given is not None else None


def constraint_text(params: Any) -> tuple[str, str] | None:
    """Return the type and the text of the constraint of SamplingParams, or None.

    Raises GrammarError and OSError like `create_grammar`.
    """
    given = {name: getattr(params, name) for name in params.constraints}
    if not given:
        return None
    if len(given) > 1:
        raise GrammarError(
            f"{' and '.join(given)} cannot be combined, because a response can "
            "satisfy only one; set only one"
        )
    [(name, value)] = given.items()
    if isinstance(value, (Mapping, bool)):
        return name, _dump(value)
    if name.endswith("_file"):
        path, name = Path(value), name.removesuffix("_file")
        if name == "grammar" and path.suffix == ".lark":
            name = "lark"
        try:
            value = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as e:
            raise GrammarError(
                f"{path}: byte {e.start} is not UTF-8; save the file as UTF-8"
            ) from None
    return name, value


def _dump(schema: Any) -> str:
    try:
        return json.dumps(schema)
    except (TypeError, ValueError, RecursionError) as e:
        raise GrammarError(f"json_schema is not JSON: {e}") from None
