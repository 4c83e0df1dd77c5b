"""Names of models in requests: also with Ollama's tags and the Hub's address."""

from __future__ import annotations

from collections.abc import Iterable

from llama_py.loading.hub import USUAL
from llama_py_tools.models.local_models import split_type

LATEST = "latest"  # Ollama's tag of a name without one
_HUB = ("hf.co/", "huggingface.co/")


def find_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a request means, or None.

    It is the name itself, also with the tag `latest`; or the name with its type as a tag, in upper
    or lower case; without a type, the only name, or the name with a usual type.
    """
    names = [*known]
    name = strip_host(name)
    for one in (name, name.removesuffix(f":{LATEST}")):
        if one in names:
            return one
    base, _, kind = name.lower().partition(":")
    of = {one: split_type(one.lower()) for one in names}
    if kind not in ("", LATEST):
        return next((one for one, pair in of.items() if pair == (base, kind)), None)
    found = {pair[1]: one for one, pair in of.items() if pair[0] == base}
    usual = (found[kind.lower()] for kind in USUAL if kind.lower() in found)
    return next(iter(found.values())) if len(found) == 1 else next(usual, None)


def strip_host(name: str) -> str:
    """Return a name without the Hub's host."""
    for host in _HUB:
        name = name.removeprefix(host)
    return name


def with_tag(name: str) -> str:
    """Return a name in Ollama's form, which has a tag."""
    return name if ":" in name else f"{name}:{LATEST}"
