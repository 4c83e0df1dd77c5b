"""Models that clients created from other models: a name for a model with other options.

They are in one file, `created.json` in the folder of --model-url.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from llama_py.support.whole_file import replace_file
from llama_py_tools.models.url import folder

Recipe = dict[str, Any]


def created_file() -> Path:
    """Return the path of the file."""
    return folder() / "created.json"


def read_created() -> dict[str, Recipe]:
    """Return the recipes of created models by name.

    A recipe has `from`, the name of another model, or `files`, digests of blobs by file name. It
    may have `adapters` (digests), `settings` (options by the names of their fields), `parameters`
    (the same by Ollama's names), `template`, `system`, `messages` and `license`. ModelError if the
    file is damaged.
    """
    path = created_file()
    try:
        found = json.loads(path.read_text("utf-8"))
        if isinstance(found, dict) and all(isinstance(one, dict) for one in found.values()):
            return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise ModelError(f"{path}: {e}; repair or remove the file") from None
    raise ModelError(f"{path}: expected an object of objects; repair or remove the file")


def write_created(models: Mapping[str, Recipe]) -> None:
    """Replace the recipes of all created models. OSError if the file cannot be written."""
    path = created_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [json.dumps(models, indent=1, ensure_ascii=True).encode()])
