"""Catalog of a server's models: from -m, folders, presets and the Hugging Face cache."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from ggml_py.errors import ModelError
from llama_py.loading.hub import is_model
from llama_py.serving import model_size
from llama_py_server.models import preset
from llama_py_server.models.created_files import find_model
from llama_py_server.models.model_pool import ModelEntry
from llama_py_server.models.preset import ALL, Preset
from llama_py_server.models.state import ModelRecord, ModelState
from llama_py_server.params import ModelsParams, ServerParams
from llama_py_tools.command.logs import log
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.generate import vision
from llama_py_tools.generate.vision import VisionParams
from llama_py_tools.models import blobs, created, hub, local_models

Open = Callable[[argparse.Namespace, ModelRecord], "ModelState"]
# Options of the server's command line that apply to a single model.
NOT_ITS_OWN = ("alias", "model_url", "hf_repo", "hf_file", "hf_repo_draft", "mmproj")


@dataclass(frozen=True)
class CatalogEntry:
    """Model that the server found, before its options are set."""

    name: str
    path: str
    kind: str
    others: tuple[str, ...] = ()
    mmproj: str = ""
    recipe: Mapping[str, Any] = field(default_factory=dict)


def single(args: argparse.Namespace, opened: Open) -> ModelEntry:
    """Return the entry of the server's only model."""
    models = read(args, ModelsParams).model
    own = argparse.Namespace(**{**vars(args), "model": models[0] if models else ""})
    embeds = read(args, ServerParams).embedding
    return ModelEntry("", lambda record: opened(own, record), embeds=embeds)


def entries(
    args: argparse.Namespace, given: Sequence[str], parser: OptionParser, opened: Open
) -> list[ModelEntry]:
    """Return an entry for each model that requests may name.

    given   arguments of the server's command line, which apply to all models
    parser  parser of the command line; it cannot be used again afterwards

    Raises ModelError for duplicate names and invalid presets.
    """
    o = read(args, ModelsParams)

    def refuse(message: str) -> NoReturn:  # no exit: the server may already be running
        raise ModelError(f"{o.models_preset}: {message}")

    parser.error = refuse  # type: ignore[method-assign]
    presets = preset.read(o.models_preset, parser) if o.models_preset else {}
    for_all = presets.pop(ALL, Preset())
    made: list[ModelEntry] = []
    hidden: set[str] = set()
    found = {one.name: one for one in _list_entries(o)}
    found |= {one.name: one for one in _list_created(found)} if o.models_cached else {}
    for name in [*found, *(name for name in presets if name not in found)]:
        one = found.get(name)
        recipe = one.recipe if one else {}
        its = presets.get(recipe.get("from", name), for_all)
        own = parser.parse_args([*its.flags, *given])
        _settle(own, one, its, parser, name)
        _apply(recipe, own)
        if its.dedup:
            of = {own.hf_repo, own.hf_repo_draft} - {"", None}
            hidden |= {repo.partition(":")[0] for repo in of}
        path = one.path if one else own.model or ""
        made.append(
            ModelEntry(
                name,
                lambda record, own=own: opened(own, record),  # type: ignore[misc]
                size=_size(path) + _size(own.mmproj),
                path=path,
                sees=bool(own.mmproj),
                kind=one.kind if one else "preset",
                others=(*(one.others if one else ()), *(own.alias or ())),
                flags=its.flags,
                args=its.args,
                at_start=its.at_start and not recipe,
                recipe=recipe,
            )
        )
        own.alias = (name,)
    for entry in made:
        entry.hidden = entry.kind == "cache" and entry.name.partition(":")[0] in hidden
    return made


def _settle(
    own: argparse.Namespace, one: CatalogEntry | None, its: Preset, parser: OptionParser, name: str
) -> None:
    """Set the model file and vision encoder: the found files, or the files in the preset."""
    said = parser.parse_args(list(its.flags))
    for option in NOT_ITS_OWN:
        setattr(own, option, getattr(said, option))
    models = [*(said.model or ())] if isinstance(said.model, tuple) else []
    own.model = one.path if one else models[-1] if models else ""
    beside = one.mmproj if one and read(own, VisionParams).mmproj_auto else ""
    own.mmproj = own.mmproj or vision.usable(beside)
    if not (own.model or own.hf_repo or own.model_url):
        raise ModelError(
            f"preset [{name}] has no model; set `model = FILE` or `hf-repo = USER/MODEL`"
        )


def _list_entries(o: ModelsParams) -> Iterator[CatalogEntry]:
    seen: dict[str, str] = {}
    for one in (
        *_of_line(o),
        *_of_folder(o.models_dir),
        *(_list_cached() if o.models_cached else ()),
    ):
        if one.name not in seen:
            seen[one.name] = one.path
            yield one
        elif Path(seen[one.name]) != Path(one.path) and one.kind != "cache":
            raise ModelError(
                f"two models have the name {one.name}: {seen[one.name]} and {one.path}; rename "
                "one, or name them in --models-preset"
            )


def _of_line(o: ModelsParams) -> Iterator[CatalogEntry]:
    for name in o.model:
        path = name if Path(name).exists() else str(local_models.find(name) or name)
        if not Path(path).exists():
            raise FileNotFoundError(2, "No such file or directory", path)
        yield CatalogEntry(local_models.short_name(Path(path)), path, "file")


def _of_folder(folder: str) -> Iterator[CatalogEntry]:
    """Yield models in a folder: files, and folders with shards or additional files."""
    if not folder:
        return
    for path in sorted(Path(folder).iterdir()):
        if path.is_dir():
            files = [p for p in sorted(path.glob("*.gguf")) if is_model(p.name)]
            if files:
                yield CatalogEntry(path.name, str(files[0]), "folder", mmproj=_eyes(files[0]))
        elif path.suffix == ".gguf" and is_model(path.name):
            yield CatalogEntry(local_models.short_name(path), str(path), "folder")


def _list_cached() -> Iterator[CatalogEntry]:
    """Yield cached models by short name, and Hub models by repository and type.

    llama-server names Hub models in the same way.
    """
    repos, known = hub.cached_names(), local_models.known_models()
    for short, path in known.items():
        if path not in repos.values():
            yield CatalogEntry(short, str(path), "cache")
    shorts = {path: (short,) for short, path in known.items()}
    for name, path in repos.items():
        yield CatalogEntry(name, str(path), "cache", shorts.get(path, ()), _eyes(path))


def _list_created(found: Mapping[str, CatalogEntry]) -> Iterator[CatalogEntry]:
    """Yield the models that users created; `found` has their base models by name."""
    for name, recipe in created.read_created().items():
        source, base = recipe.get("from", ""), found.get(recipe.get("from", ""))
        if recipe.get("files"):
            path, source = find_model(recipe), "file"
            eyes = _eyes(path) if path else ""
            eyes = eyes or (base.mmproj if base else "")
            base = CatalogEntry(name, str(path), "created", mmproj=eyes) if path else None
        if base is None or name in found:
            log.warning("created model %s is omitted: no model %s", name, source)
            continue
        yield replace(base, name=name, kind="created", others=(), recipe=recipe)


def _apply(recipe: Mapping[str, Any], own: argparse.Namespace) -> None:
    """Set the options that the recipe of a created model contains."""
    for name, value in recipe.get("settings", {}).items():
        setattr(own, name, tuple(value) if isinstance(value, list) else value)
    if recipe.get("template"):
        own.chat_template, own.chat_template_file = recipe["template"], ""
    own.system_prompt = recipe.get("system", "")
    if adapters := recipe.get("adapters"):
        files = ((str(blobs.blob_path(digest)), 1.0) for digest in adapters)
        own.lora = (*(own.lora or ()), *files)


def _eyes(path: Path) -> str:
    """Return the path of the vision encoder in a model's folder, or "" if it is missing."""
    folder = path.parent
    found = hub.find_vision_file(path.name, sorted(p.name for p in folder.glob("*.gguf")))
    return str(folder / found) if found else ""


def _size(path: str) -> int:
    return model_size(path) if path and Path(path).exists() else 0
