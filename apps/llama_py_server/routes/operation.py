"""Operation of a route in /openapi.json, and the features of a server that enable it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llama_py_server.schema.fields import Fields
from llama_py_server.schema.json_schemas import OBJECT, Schema


@dataclass(frozen=True)
class Features:
    """Features of a server. Each is on if a model may have it."""

    embedding: bool = True
    reranking: bool = True
    infill: bool = True
    slots: bool = True
    slot_files: bool = True
    metrics: bool = True
    props: bool = True
    images: bool = True
    several: bool = True

    @property
    def reads(self) -> bool:
        return self.embedding or self.reranking


def _always(features: Features) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, eq=False)
class Operation:
    """One operation of the document.

    Attributes:
        fields: Fields of the body; `required` names fields that must be present.
        body: Schema of a body that is no object of fields.
        query: Parameters of the query; `needed` names parameters that must be present.
        returns: Schema of the response; None for a response without a body.
        status: Status of the response; 0: 200, or 204 without a body.
        media: Media type of the response.
        streams: The response may be a stream of events.
        hugging_face: Errors may have the form of Hugging Face's servers.
        is_on: Whether a server serves it.
    """

    tag: str
    summary: str = ""
    fields: Fields = field(default_factory=dict)
    required: tuple[str, ...] = ()
    body: Schema | None = None
    query: Mapping[str, Schema] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    returns: Schema | None = field(default_factory=lambda: OBJECT)
    status: int = 0
    media: str = "application/json"
    streams: bool = False
    hugging_face: bool = False
    is_on: Callable[[Features], bool] = _always
