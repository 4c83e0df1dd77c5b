"""Keys `general.*` of a converted model: from its model card, its configuration and its name
(gguf-py: Metadata)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.model_name import NameParts, split_name, title

log = logging.getLogger("llama_py")

HUB = re.compile(r"https?://huggingface.co/([^/]+/[^/]+)$")
# Sampling of generation_config.json: our key, its type, and the key there.
SAMPLING = (
    ("sequence", "str", ("sequence",)),
    ("top_k", "i32", ("top_k",)),
    ("top_p", "f32", ("top_p",)),
    ("min_p", "f32", ("min_p",)),
    ("xtc_probability", "f32", ("xtc_probability",)),
    ("xtc_threshold", "f32", ("xtc_threshold",)),
    ("temp", "f32", ("temperature",)),
    ("penalty_last_n", "i32", ("penalty_last_n",)),
    ("penalty_repeat", "f32", ("penalty_repeat", "repetition_penalty")),
    ("mirostat", "i32", ("mirostat",)),
    ("mirostat_tau", "f32", ("mirostat_tau",)),
    ("mirostat_eta", "f32", ("mirostat_eta",)),
)
# Values of a model card, by key of the file; the first present name counts.
CARD: Mapping[str, tuple[str, ...]] = {
    "name": ("name", "model_name"),
    "author": ("author", "model_author", "model_creator"),
    "version": ("version", "model_version"),
    "organization": ("organization", "model_organization"),
    "finetune": ("finetune", "model_finetune"),
    "basename": ("basename", "model_basename", "model_type"),
    "description": ("description", "model_description"),
    "size_label": ("size_label", "model_size_label"),
    "license": ("license",),
    "license.name": ("license_name",),
    "license.link": ("license_link",),
    "source.url": ("url", "model_url"),
    "source.doi": ("doi", "model_doi"),
    "source.uuid": ("uuid", "model_uuid"),
    "source.repo_url": ("repo_url", "model_repo_url"),
}
ORDER = (
    "name", "author", "version", "organization", "finetune", "basename", "description",
    "quantized_by", "size_label", "license", "license.name", "license.link", "url", "doi", "uuid",
    "repo_url", "source.url", "source.doi", "source.uuid", "source.repo_url",
)  # fmt: skip
ENTRY = (
    "name", "author", "version", "organization", "description", "url", "doi", "uuid", "repo_url",
)  # fmt: skip


class ModelMetadata:
    """Metadata of a folder.

    values     of general.*, by key
    overrides  values that replace them, by full key
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        n_params: int,
        name: str = "",
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.overrides = overrides or {}
        self.sampling = folder.json_or_nothing("generation_config.json")
        card = read_card(folder.text("README.md"))
        self.values: dict[str, Any] = {}
        for key, names in CARD.items():
            found = next((card[n] for n in names if card.get(n) is not None), None)
            if found is not None:
                self.values[key] = found
        self.base_models = _entries(card, ("base_model", "base_models", "base_model_sources"))
        self.datasets = _entries(card, ("datasets", "dataset", "dataset_sources"))
        self.tags = [*_list_texts(card.get("tags")), *_list_texts(card.get("pipeline_tag"))]
        self.languages = [*_list_texts(card.get("languages")), *_list_texts(card.get("language"))]
        stored_name = folder.whole_config.get("_name_or_path")
        if isinstance(stored_name, str) and stored_name and stored_name.count("/") <= 1:
            self._complete(split_name(stored_name, n_params))
        self._complete(split_name(folder.path.resolve().name, n_params))
        if name:
            self.values["name"] = name
        self.n_params = n_params

    def _complete(self, parts: NameParts) -> None:
        """Set missing values from a name."""
        found = parts._asdict()
        for key in ("name", "organization"):
            found[key] = title(found[key]) if found[key] is not None else None
        for key, value in found.items():
            if value is not None and self.values.get(key) is None:
                self.values[key] = value

    def write(self, out: KeyValues, label: str) -> None:
        """Set the keys in the order of llama.cpp's converter; label: size without another."""
        if self.n_params > 0:
            self.values.setdefault("size_label", label)
        for key, kind, names in SAMPLING:
            value = next((self.sampling[n] for n in names if n in self.sampling), None)
            value = self.overrides.get(f"general.sampling.{key}", value)
            if value is not None:
                out.add(kind, f"general.sampling.{key}", value)
        for key in ORDER:
            value = self.overrides.get(f"general.{key}", self.values.get(key))
            if value is not None:
                listed = ",".join(map(str, value)) if isinstance(value, list) else value
                out.text(f"general.{key}", listed if isinstance(listed, str) else str(listed))
        base_models = self.overrides.get("general.base_models", self.base_models)
        for kind, entries in (("base_model", base_models), ("dataset", self._datasets())):
            if entries is not None:
                out.u32(f"general.{kind}.count", len(entries))
                for i, entry in enumerate(entries):
                    for key in ENTRY:
                        if key in entry:
                            out.text(f"general.{kind}.{i}.{key}", entry[key])
        for key, values in (("tags", self.tags), ("languages", self.languages)):
            out.array(f"general.{key}", self.overrides.get(f"general.{key}", values))

    @property
    def file_stem(self) -> str:
        """Beginning of a file's name, without its type (gguf-py: naming_convention)."""
        return self._join_stem("size_label", "finetune", "version")

    @property
    def short_stem(self) -> str:
        """Beginning of the name of a file that does not have the whole model."""
        return self._join_stem("finetune", "version")

    def _join_stem(self, *keys: str) -> str:
        name = self.values.get("basename") or self.values.get("name") or "ggml-model"
        parts = [name, *(self.values.get(k) for k in keys)]
        stem = "-".join(str(part).strip().replace(" ", "-") for part in parts if part)
        return stem.replace("/", "-").replace("\\", "-")

    def _datasets(self) -> Any:
        return self.overrides.get("general.datasets", self.datasets)


def read_card(text: str | None) -> dict[str, Any]:
    """Return the YAML head of a model card; empty without one."""
    lines = (text or "").splitlines()
    if not lines or lines[0] != "---":
        return {}
    end = lines.index("---", 1) if "---" in lines[1:] else len(lines)
    head = "\n".join(lines[1:end]) + "\n"
    try:
        yaml = import_module("yaml")
    except ImportError:
        log.warning("the model card (README.md) is not read; to read it, pip install pyyaml")
        return {}
    try:  # `no` is Norwegian, not False
        found = yaml.safe_load(head.replace("- no\n", '- "no"\n').replace("\t", "  "))
    except yaml.YAMLError as e:
        log.warning(
            "the model card (README.md) is not read, because its head is not valid YAML: %s",
            _join(e),
        )
        return {}
    return found if isinstance(found, dict) else {}


def write_card(metadata: Mapping[str, Any]) -> str:
    """Return a model card with the keys general.*, the inverse of `read_card`; "" without any."""
    found: dict[str, Any] = {
        names[0]: value
        for key, names in CARD.items()
        if isinstance(value := metadata.get(f"general.{key}"), str)
    }
    for kind, name in (("base_model", "base_models"), ("dataset", "datasets")):
        n = metadata.get(f"general.{kind}.count")
        entries = [
            {
                key: value
                for key in ENTRY
                if isinstance(value := metadata.get(f"general.{kind}.{i}.{key}"), str)
            }
            for i in range(n if isinstance(n, int) else 0)
        ]
        if entries:
            found[name] = entries
    for key in ("tags", "languages"):
        if isinstance(value := metadata.get(f"general.{key}"), list):
            found[key] = value
    lines = (f"{key}: {json.dumps(value)}\n" for key, value in found.items())  # JSON is YAML
    return f"---\n{''.join(lines)}---\n" if found else ""


def read_overrides(text: str) -> dict[str, Any]:
    """Return the values of a file of --metadata. Raises ValueError unless it is a JSON object."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("it must be a JSON object")
    return found


def _join(e: Exception) -> str:
    return " ".join(str(e).split())


def _list_texts(value: Any) -> Iterator[str]:
    values = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    yield from (str(v) for v in values)


def _entries(card: Mapping[str, Any], names: tuple[str, ...]) -> list[dict[str, str]] | None:
    """Return the models or datasets that a card names; None if it has no such key."""
    key = next((n for n in names if n in card), None)
    if key is None:
        return None
    value = card[key]
    listed = value if isinstance(value, list) else [value] if value is not None else []
    return [_entry(v) for v in listed if isinstance(v, str | dict)]


def _entry(given: str | dict[str, str]) -> dict[str, str]:
    if isinstance(given, dict):
        return given
    found = dict[str, str]()
    is_url = given.startswith(("http://", "https://", "ssh://"))
    match = HUB.match(given)
    if is_url:
        found["repo_url"] = given
    if is_url and not match:
        return found
    parts = split_name(match[1] if match else given, 0)
    if parts.name is not None:
        found["name"] = title(parts.name)
    if parts.organization is not None:
        found["organization"] = title(parts.organization)
    if parts.version is not None:
        found["version"] = parts.version
    if not is_url and parts.organization is not None and parts.name is not None:
        found["repo_url"] = f"https://huggingface.co/{parts.organization}/{parts.name}"
    return found
