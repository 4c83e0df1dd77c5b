"""Route /slots: state of sequences; save, restore, erase."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from errno import EACCES, EINVAL, EISDIR, ENAMETOOLONG, ENOENT, ENOTDIR, EPERM
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from llama_py_server.stream.replies import running
from llama_py_server.stream.writers.settings import settings
from llama_py_server.wire.body import read_object, text
from llama_py_server.wire.errors import HTTPError, invalid, not_supported
from llama_py_server.wire.responses import as_json

if TYPE_CHECKING:
    from llama_py.serving import SlotInfo
    from llama_py_server.models.state import ModelState

MAX_NAME = 255
_OF_NAMES = (ENOENT, EISDIR, ENOTDIR, ENAMETOOLONG, EINVAL, EACCES, EPERM)
_FORBIDDEN = set('/\\:*?"<>|')


async def get(request: Request, state: ModelState) -> Response:
    """Return the state of the slots."""
    if not state.params.slots:
        raise not_supported("This server does not support slots endpoint. Start it with `--slots`")
    slots = state.engine.slots()
    if request.query_params.get("fail_on_no_slot") and all(s.state != "idle" for s in slots):
        raise HTTPError("unavailable_error", "no slot available")
    return as_json([_describe_slot(slot, state) for slot in slots])


def _describe_slot(slot: SlotInfo, state: ModelState) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": slot.id,
        "n_ctx": state.engine.n_ctx,
        "speculative": bool(state.options.drafters),
        "is_processing": slot.state != "idle",
    }
    reply = running(state).get(slot.id_request)
    if slot.state == "idle" or reply is None:
        return found
    return found | {
        "id_task": slot.id_request,
        "n_prompt_tokens": slot.n_prompt,
        "n_prompt_tokens_processed": slot.n_done - reply.n_cached,
        "n_prompt_tokens_cache": reply.n_cached,
        "params": settings(reply.request, reply.delivery, state.options),
        "next_token": [
            {
                "has_next_token": True,
                "has_new_line": reply.has_new_line,
                "n_remain": slot.n_left,
                "n_decoded": slot.n_gen,
            }
        ],
    }


async def post(request: Request, state: ModelState) -> Response:
    """Save, restore or erase a slot."""
    if not state.params.slot_save_path:
        raise not_supported(
            "This server does not support slots action. Start it with `--slot-save-path`"
        )
    try:
        id = int(request.path_params["id_slot"])
    except ValueError:
        raise invalid("Invalid slot ID") from None
    action = request.query_params.get("action", "")
    if action not in ("save", "restore", "erase"):
        raise invalid("Invalid action")
    if not 0 <= id < state.engine.n_slots:
        raise invalid("Invalid slot ID")
    if action == "erase":
        n = await asyncio.wrap_future(state.engine.erase_slot(id))
        return as_json({"id_slot": id, "n_erased": n})
    return await (_save if action == "save" else _restore)(request, state, id)


async def _path(request: Request, state: ModelState) -> tuple[str, Path]:
    name = text(await read_object(request), "filename")
    if not is_file_name(name):
        raise invalid("Invalid filename")
    path = Path(state.params.slot_save_path) / name
    if path.is_symlink():
        raise invalid(
            f"Field 'filename': {name!r} is a link; slots are saved to regular files only"
        )
    return name, path


def is_file_name(name: str) -> bool:
    """Return True if a name is a plain file name on any system
    (common.cpp:fs_validate_filename)."""
    if not name or len(name.encode("utf-8", "replace")) > MAX_NAME or name.strip(" ") != name:
        return False
    if name in (".", "..") or name.endswith(".") or ".." in name:
        return False
    return all(c.isprintable() and c not in _FORBIDDEN for c in name)


async def _finish_transfer(what: str, doing: Future[tuple[int, int]]) -> tuple[int, int]:
    """Return the tokens and bytes of a slot's file. HTTPError for a name that cannot be used."""
    try:
        return await asyncio.wrap_future(doing)
    except OSError as e:
        if e.errno not in _OF_NAMES:
            raise
        why = f"Unable to {what} slot: {e.strerror}"
        raise invalid(f"Field 'filename': {why}") from None


async def _save(request: Request, state: ModelState, id: int) -> Response:
    name, path = await _path(request, state)
    start = time.perf_counter()
    n, n_bytes = await _finish_transfer("save", state.engine.save_slot(id, path))
    ms = 1000 * (time.perf_counter() - start)
    return as_json(
        {
            "id_slot": id,
            "filename": name,
            "n_saved": n,
            "n_written": n_bytes,
            "timings": {"save_ms": ms},
        }
    )


async def _restore(request: Request, state: ModelState, id: int) -> Response:
    name, path = await _path(request, state)
    start = time.perf_counter()
    n, n_bytes = await _finish_transfer("restore", state.engine.restore_slot(id, path))
    ms = 1000 * (time.perf_counter() - start)
    return as_json(
        {
            "id_slot": id,
            "filename": name,
            "n_restored": n,
            "n_read": n_bytes,
            "timings": {"restore_ms": ms},
        }
    )
