"""Routes of resumable streams:

    GET /v1/stream?conv_id=ID&from=BYTES    sent bytes, then new bytes
    DELETE /v1/stream?conv_id=ID            stop
    POST /v1/streams/lookup                 list the given conversations with a stream

If the server has keys, each sees only its own streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.stream.replay import Replay
from llama_py_server.wire.body import check_length, read_object
from llama_py_server.wire.clients import holder
from llama_py_server.wire.errors import HTTPError, invalid
from llama_py_server.wire.responses import as_json

MAX_DIGITS = 18  # digits of an offset

if TYPE_CHECKING:
    from llama_py_server.models.model_pool import ModelPool


def _id(request: Request) -> str:
    id = request.query_params.get("conv_id", "")
    if not id:
        raise invalid("Missing conversation id in path")
    return id


async def get(request: Request, pool: ModelPool) -> Response:
    """Return a resumable stream from a byte on."""
    saved = request.app.state.streams.get(_id(request), holder(request))
    if saved is None:
        raise HTTPError("not_found_error", "Stream not found or expired")
    if not saved.runs:
        raise HTTPError("unavailable_error", "Stream owner model is loading, retry later")
    said = request.query_params.get("from", "0")
    if not said.isdecimal() or len(said) > MAX_DIGITS:
        raise invalid("Invalid 'from' offset")
    if int(said) < saved.dropped:
        raise invalid("Stream offset lost, please restart")
    return Replay(saved, int(said))


async def delete(request: Request, pool: ModelPool) -> Response:
    """Stop the response of a resumable stream."""
    request.app.state.streams.stop(_id(request), holder(request))
    return Response(status_code=204, media_type="application/json")


async def lookup(request: Request, pool: ModelPool) -> Response:
    """List conversations that have a resumable stream."""
    ids = (await read_object(request)).get("conversation_ids", [])
    if not isinstance(ids, list):
        raise invalid("'conversation_ids' must be an array")
    check_length("conversation_ids", len(ids))
    names = [id for id in ids if isinstance(id, str) and id]
    return as_json(request.app.state.streams.lookup(names, holder(request)))
