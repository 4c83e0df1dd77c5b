"""Pool of a server's models, which finds the model of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ggml_py.errors import AllocError
from llama_py.serving import Lease, ModelInfo, Models, Source
from llama_py_server.models.feed import Feed
from llama_py_server.models.fetches import Fetches
from llama_py_server.models.names import find_name
from llama_py_server.models.state import ModelRecord
from llama_py_server.models.summary import ModelSummary, summarize
from llama_py_server.wire.errors import HTTPError, UnknownModel, invalid, without_folders
from llama_py_tools.models.local_models import PULL

if TYPE_CHECKING:
    from llama_py_server.models.loss import Loss
    from llama_py_server.models.state import ModelState


_NO_MODELS = (
    f"; the server has no models: download one, such as: {PULL}, then start the server again or"
    " open /v1/models?reload=1"
)
MAX_NAMES = 8  # that an error lists


@dataclass
class ModelEntry:
    """A model, loaded or not.

    name, others  names in requests
    load          loads the model, with the record that survives unloading
    size          bytes, approximately;  path  of its file, if known
    kind          its origin: file, folder, cache or preset
    flags         its specific flags;  args  flags that clients may see
    hidden        /models does not list it;  at_start  it is loaded with the server
    sees          it takes images;  embeds  it may return embeddings
    recipe        of a created model, see `llama_py_tools.models.created`
    keep          idle seconds until it is unloaded, by its last request of Ollama's API; negative:
                  it is not, None: the server's
    summary       of the model when it was unloaded
    """

    name: str
    load: Callable[[ModelRecord], ModelState]
    size: int = 0
    path: str = ""
    kind: str = "file"
    others: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    hidden: bool = False
    at_start: bool = False
    sees: bool = False
    embeds: bool = True
    recipe: Mapping[str, Any] = field(default_factory=dict)
    keep: float | None = None
    record: ModelRecord = field(default_factory=ModelRecord)
    summary: ModelSummary | None = None

    @property
    def origin(self) -> tuple[Any, ...]:
        """Values that change if the model must be loaded again."""
        return self.flags, self.path, self.recipe

    @property
    def is_of_hub(self) -> bool:
        """True if it is a repository in the Hub's cache."""
        return self.kind == "cache" and "/" in self.name

    def source(self) -> Source[ServedModel]:
        return Source(lambda: ServedModel(self.load(self.record), self), self.size)


@dataclass(frozen=True)
class Manages:
    """Permission to download and remove models of the Hub.

    who    permitted clients: "here", "all" or "none";  why  reason for "none"
    token  access token of the Hub
    """

    who: str = "none"
    why: str = "the server needs --models-cached"
    token: str = ""


class ServedModel:
    """A model in memory."""

    def __init__(self, state: ModelState, entry: ModelEntry) -> None:
        eyes = state.model.vision
        self.state, self.entry = state, entry
        self.size = state.engine.size + (0 if eyes is None else sum(eyes.sizes.values()))

    @property
    def error(self) -> BaseException | None:
        return self.state.engine.error

    def close(self) -> None:
        try:
            self.entry.summary = summarize(self.state)
            self.entry.record.total = self.entry.summary.now.total
        finally:
            self.state.engine.close()
            self.state.model.close()


class ModelPool:
    """Models of a server.

    models   loaded models and waiting requests
    several  requests name their model, or mean `usual_entry`; otherwise any name is accepted
    autoload a request loads the model that it names
    ready    requests are served
    again    makes the entries again, if models have changed
    loss     of ranks that compute; None without any that could be lost
    manages  permission to change the models;  fetches  downloads
    feed     events for listeners
    """

    def __init__(
        self,
        entries: Sequence[ModelEntry],
        *,
        several: bool = False,
        budget: int | None = None,
        most: int = 0,
        autoload: bool = True,
        idle: float = -1.0,
        again: Callable[[], Sequence[ModelEntry]] | None = None,
        loss: Loss | None = None,
        manages: Manages | None = None,
    ) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.several, self.autoload, self.idle, self.again = several, autoload, idle, again
        self.models: Models[ServedModel] = Models(
            {entry.name: entry.source() for entry in entries}, budget, most
        )
        self.loss = loss
        self.manages, self.feed = manages or Manages(), Feed(self.statuses)
        self.fetches = Fetches(self.feed, self.reload)
        self.ready = several

    @property
    def single_entry(self) -> ModelEntry:
        return next(iter(self.entries.values()))

    @property
    def usual_entry(self) -> ModelEntry | None:
        """Return the only model of -m, or the only model; None if there are several."""
        entries = [*self.entries.values()]
        found = [entry for entry in entries if entry.kind == "file"] or entries
        return found[0] if len(found) == 1 else None

    @property
    def sees(self) -> bool:
        """True if a model takes images, or may do so once it is loaded."""
        if self.several or not self.entries:
            return self.several
        lease = self.models.peek(self.single_entry.name)
        if lease is None:
            return self.single_entry.sees
        try:
            return lease.served.state.sees
        finally:
            lease.end()

    def check_ready(self) -> None:
        if self.loss is not None:
            self.loss.check()
        if not self.ready:
            raise HTTPError("unavailable_error", "Loading model")

    def info(self, entry: ModelEntry) -> ModelInfo:
        return next(one for one in self.models.info() if one.name == entry.name)

    def statuses(self) -> dict[str, str]:
        """Return the status of all models by name."""
        return {info.name: status_name(info) for info in self.models.info()}

    @property
    def only_loads(self) -> bool:
        """True if models are loading, and no model is loaded yet."""
        states = {info.state for info in self.models.info()}
        return "loading" in states and states <= {"loading", "unloaded"}

    def find_entry(self, name: str) -> ModelEntry:
        """Return the entry with this name; HTTPError if it does not exist."""
        if not name:
            names = ", ".join([*self.entries][:MAX_NAMES])
            remedy = f'; set "model" to a name of /v1/models, such as: {names}'
            raise invalid(
                "model name is missing from the request" + (remedy if names else _NO_MODELS)
            )
        known = {other: e for e in self.entries.values() for other in e.others} | self.entries
        found = find_name(name, known)
        if found is None:
            raise UnknownModel(name, "" if known else _NO_MODELS)
        return known[found]

    def summary(self, entry: ModelEntry) -> ModelSummary | None:
        """Return the summary of a model that is in memory, or sleeps."""
        lease = self.models.peek(entry.name)
        if lease is None:
            return entry.summary if self.info(entry).asleep or not self.several else None
        try:
            return summarize(lease.served.state)
        finally:
            lease.end()

    async def take_loaded(
        self, entry: ModelEntry, future: Future[Lease[ServedModel]]
    ) -> Lease[ServedModel]:
        """Return a requested model once it is loaded."""
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.models.forget(future)
            raise
        except (AllocError, MemoryError) as e:
            why = without_folders(str(e))
            message = f"not enough memory for model '{entry.name}': {why}"
            raise HTTPError("unavailable_error", message) from e
        except Exception as e:
            why = without_folders(str(e))
            message = f"model '{entry.name}' could not be loaded: {why}"
            raise HTTPError("server_error", message) from e

    def is_there(self, entry: ModelEntry) -> bool:
        info = self.info(entry)
        return info.state != "unloaded" or info.asleep

    def begin(
        self, entry: ModelEntry, on_end: Callable[[Future[Any]], None] = lambda _: None
    ) -> None:
        """Load a model without a request."""
        future = self.models.acquire(entry.name)
        future.add_done_callback(on_end)
        future.add_done_callback(self.models.forget)

    def tick(self) -> None:
        """Unload idle models; call it regularly."""
        own = {e.name: _limit(e.keep) for e in self.entries.values() if e.keep is not None}
        self.models.tick(_limit(self.idle), own)

    def reload(self) -> None:
        """Update the list of models, and unload changed models."""
        if self.again is None:
            return
        now = {entry.name: entry for entry in self.again()}
        for name, entry in [*self.entries.items()]:
            new = now.get(name)
            if new is None or new.origin != entry.origin:
                self.models.remove(name)
                del self.entries[name]
            else:
                entry.hidden, entry.others = new.hidden, new.others
        for name, entry in now.items():
            if name not in self.entries:
                self.entries[name] = entry
                self.models.add(name, entry.source())
        self.feed.send("models_reload", "*")

    def close(self) -> None:
        """Cancel all responses, and release all memory."""
        self.ready = False
        self.fetches.close()
        for entry in self.entries.values():
            lease = self.models.peek(entry.name)
            if lease is not None:
                lease.served.state.engine.close()
                lease.end()
        self.models.close()


def _limit(seconds: float) -> float:
    """Return a limit of idle seconds for `Models.tick`, which takes 0 for no limit."""
    return max(seconds, 1e-9) if seconds >= 0 else 0.0


def status_name(info: ModelInfo) -> str:
    """Return llama-server's name of a status (server-models.h:server_model_status)."""
    if info.state == "unloading":
        return "unloaded"
    return "sleeping" if info.asleep else info.state
