"""Facts about a model's file for lists, without loading the model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ggml_py.errors import GGMLError
from llama_py.chat.go_template import takes_suffix
from llama_py.gguf.file_types import FILE_TYPES, guess_type
from llama_py.loading.open import open_model
from llama_py.serving import model_size

MAX_FILES = 1024  # cached files


@dataclass(frozen=True)
class FileFacts:
    """Facts about a model's file.

    Attributes:
        size: Bytes of all shards; n_params: number of weights.
        changed: Time of the last change, in seconds since 1970.
        digest: Hash of the file's name, size and time, not of its contents.
        kind: Name of the file type, such as Q4_K_M.
        metadata: The file's values; None instead of lists.
        capabilities: Ollama's names of tasks, without vision.
    """

    arch: str
    size: int
    changed: float
    digest: str
    n_params: int
    kind: str
    metadata: Mapping[str, Any]
    template: str
    capabilities: tuple[str, ...]

    def number(self, key: str) -> int:
        """Return a number of the architecture's metadata; 0 if it is absent."""
        found = self.metadata.get(f"{self.arch}.{key}")
        return found if isinstance(found, int) else 0

    @property
    def change_time(self) -> str:
        """Time of the last change, as ISO 8601."""
        found = datetime.fromtimestamp(self.changed, timezone.utc).isoformat()
        return found.replace("+00:00", "Z")


def read_facts(path: str) -> FileFacts | None:
    """Return the facts about a file, cached until it changes; None for a file that is no model."""
    try:
        known = Path(path).stat()
        return _read(path, known.st_mtime_ns, model_size(path))
    except (OSError, GGMLError):
        return None


@lru_cache(MAX_FILES)
def _read(path: str, changed: int, size: int) -> FileFacts:
    with open_model(path) as file:
        found = {key: to_json_value(v) for key, v in file.metadata.items() if not _is_list(v)}
        types = {name: info.type for name, info in file.tensors.items()}
        said = found.get("general.file_type")
        number = said if isinstance(said, int) else guess_type(types) if types else -1
        template = found.get("tokenizer.chat_template")
        template = template if isinstance(template, str) else ""
        n_params = sum(math.prod(info.ne) for info in file.tensors.values())
        facts = {**found, **{key: None for key in file.metadata if key not in found}}
        stamp = f"{Path(path).name} {size} {changed}".encode()
        return FileFacts(
            arch=file.architecture,
            size=size,
            changed=changed / 1e9,
            digest=hashlib.sha256(stamp).hexdigest(),
            n_params=n_params,
            kind=next((t.name for t in FILE_TYPES.values() if t.number == number), "unknown"),
            metadata=facts,
            template=template,
            capabilities=list_capabilities(file.architecture, facts, template),
        )


def list_capabilities(arch: str, facts: Mapping[str, Any], template: str) -> tuple[str, ...]:
    """Return Ollama's names of a model's tasks; facts: its metadata, template: in Jinja"""
    if facts.get(f"{arch}.pooling_type"):
        return ("embedding",)
    found = ["completion"]
    marks = (f"tokenizer.ggml.{name}_token_id" in facts for name in ("fim_pre", "fim_suf"))
    if all(marks) or takes_suffix(template):
        found.append("insert")
    if "tools" in template:
        found.append("tools")
    if template and _thinks(template):
        found.append("thinking")
    return tuple(found)


def _thinks(template: str) -> bool:
    from llama_py.chat import ChatTemplate

    try:
        return ChatTemplate(template).thinking is not None
    except GGMLError:  # an invalid template
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray)


def to_json_value(value: Any) -> Any:
    """Return a value of a file's metadata as one for JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [to_json_value(one) for one in value] if isinstance(value, list) else value


def read_all(path: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the whole metadata of a file with its lists, and its tensors.

    Raises:
        GGUFError: The file is invalid.
    """
    with open_model(path) as file:
        metadata = {key: to_json_value(value) for key, value in file.metadata.items()}
        tensors = [
            {"name": name, "type": info.type.name, "shape": [*info.ne]}
            for name, info in file.tensors.items()
        ]
    return metadata, tensors
