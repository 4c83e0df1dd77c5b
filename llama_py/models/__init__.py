"""Architectures, one file each, found by name and imported when a model needs them.

The file of an architecture is its name with `-` as `_`. Files that start with `_` are shared parts.
"""

from __future__ import annotations

import difflib
import pkgutil
from importlib import import_module

from ggml_py.backend import Device
from ggml_py.errors import UnknownArchitecture
from llama_py.gguf_file import GGUFFile
from llama_py.models._base import Model
from llama_py.placement import Placement
from llama_py.weights import Progress


def load_model(
    file: GGUFFile, where: Device | Placement, *, load_mtp: bool = False,
    progress: Progress | None = None,
) -> Model:  # fmt: skip
    """The model of a file with its weights on a device, or on several.

    load_mtp  also load the NextN layers, which draft tokens ahead
    progress  called as progress(done, total, tensor name), in bytes
    Raises UnknownArchitecture, HParamsError or WeightsError.
    """
    return model_class(file.architecture)(file, where, load_mtp=load_mtp, progress=progress)


def known_architectures() -> list[str]:
    """What general.architecture may be; nothing is imported."""
    modules = (m.name for m in pkgutil.iter_modules(__path__) if not m.ispkg)
    return sorted(name.replace("_", "-") for name in modules if not name.startswith("_"))


def model_class(arch: str) -> type[Model]:
    """The class for a general.architecture; UnknownArchitecture with the known and nearest ones."""
    known = known_architectures()
    if arch not in known:
        nearest = difflib.get_close_matches(arch, known, n=1)
        hint = f" (nearest: {nearest[0]})" if nearest else ""
        raise UnknownArchitecture(
            f"architecture {arch!r} is not supported; known are {', '.join(known)}{hint}; "
            f"llama_py/models/README.md tells how to add one"
        )
    module = import_module(f"{__name__}.{arch.replace('-', '_')}")
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, Model) and vars(value).get("arch") == arch:
            return value
    raise UnknownArchitecture(f"{module.__name__} defines no Model with arch = {arch!r}")
