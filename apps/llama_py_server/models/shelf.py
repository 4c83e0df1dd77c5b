"""The models of a server: which there are, and which of them a request means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ggml_py.errors import AllocError
from llama_py.serving import Lease, ModelInfo, Models, Source
from llama_py_server.models.feed import Feed
from llama_py_server.models.fetches import Fetches
from llama_py_server.models.state import Record
from llama_py_server.models.summary import Told, told_of
from llama_py_server.wire.errors import HTTPError, invalid

if TYPE_CHECKING:
    from llama_py_server.models.loss import Loss
    from llama_py_server.models.state import State


@dataclass
class Place:
    """A model, whether it is in memory or not.

    name, others  by which requests name it
    load          has it made, with what stays of it
    size          bytes, about;  path  of its file, where it is known
    kind          where it is from: file, folder, cache or preset
    flags         those that only it has
    hidden        /models does not list it;  at_start  it is loaded with the server
    sees          it takes images
    told          what was to be told of it when it left
    """

    name: str
    load: Callable[[Record], State]
    size: int = 0
    path: str = ""
    kind: str = "file"
    others: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    hidden: bool = False
    at_start: bool = False
    sees: bool = False
    record: Record = field(default_factory=Record)
    told: Told | None = None

    @property
    def is_of_hub(self) -> bool:
        """Whether it is in the hub's cache, by its repository."""
        return self.kind == "cache" and "/" in self.name

    def source(self) -> Source[Loaded]:
        return Source(lambda: Loaded(self.load(self.record), self), self.size)


@dataclass(frozen=True)
class Manages:
    """who  may have models fetched from the hub and removed: here, all, none;  why  none
    token   of the hub"""

    who: str = "none"
    why: str = "this server has no models of the hub (--models-cached)"
    token: str = ""


class Loaded:
    """A model in memory."""

    def __init__(self, state: State, place: Place) -> None:
        eyes = state.model.vision
        self.state, self.place = state, place
        self.size = state.engine.size + (0 if eyes is None else sum(eyes.sizes.values()))

    @property
    def error(self) -> BaseException | None:
        return self.state.engine.error

    def close(self) -> None:
        try:
            self.place.told = told_of(self.state)
            self.place.record.total = self.place.told.now.total
        finally:
            self.state.engine.close()
            self.state.model.close()


class Shelf:
    """
    models   those that are in memory, and who waits for one
    several  whether requests have to say which they mean; otherwise any name is that of the one
    autoload whether a request loads the model that it names
    ready    whether requests are answered
    again    makes the places anew, where they may have changed
    loss     of ranks that compute; None without any that could be lost
    manages  who may change which models there are;  fetches  those that come
    feed     tells who listens
    """

    def __init__(
        self,
        places: Sequence[Place],
        *,
        several: bool = False,
        budget: int | None = None,
        most: int = 0,
        autoload: bool = True,
        idle: float = -1.0,
        again: Callable[[], Sequence[Place]] | None = None,
        loss: Loss | None = None,
        manages: Manages | None = None,
    ) -> None:
        self.places = {place.name: place for place in places}
        self.several, self.autoload, self.idle, self.again = several, autoload, idle, again
        self.models: Models[Loaded] = Models(
            {place.name: place.source() for place in places}, budget, most
        )
        self.loss = loss
        self.manages, self.feed = manages or Manages(), Feed(self.statuses)
        self.fetches = Fetches(self.feed, self.reload)
        self.ready = several

    @property
    def only(self) -> Place:
        return next(iter(self.places.values()))

    def check_ready(self) -> None:
        if self.loss is not None:
            self.loss.check()
        if not self.ready:
            raise HTTPError("unavailable_error", "Loading model")

    def info(self, place: Place) -> ModelInfo:
        return next(one for one in self.models.info() if one.name == place.name)

    def statuses(self) -> dict[str, str]:
        """Of all models by name."""
        return {info.name: status_of(info) for info in self.models.info()}

    @property
    def only_loads(self) -> bool:
        """Whether models are being loaded, and none is in memory."""
        states = {info.state for info in self.models.info()}
        return "loading" in states and states <= {"loading", "unloaded"}

    def named(self, name: str) -> Place:
        """HTTPError for a name that is none."""
        if not name:
            raise invalid("model name is missing from the request")
        found = self.places.get(name)
        for place in () if found else self.places.values():
            if name in place.others:
                found = place
        if found is None:
            raise invalid(f"model '{name}' not found")
        return found

    def told(self, place: Place) -> Told | None:
        """What is to be told of a model that is in memory, or sleeps."""
        lease = self.models.peek(place.name)
        if lease is None:
            return place.told if self.info(place).asleep or not self.several else None
        try:
            return told_of(lease.served.state)
        finally:
            lease.end()

    async def arrived(self, place: Place, future: Future[Lease[Loaded]]) -> Lease[Loaded]:
        """Return a model that was asked for, once it is in memory."""
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self.models.forget(future)
            raise
        except (AllocError, MemoryError) as e:
            message = f"there is not enough memory for model '{place.name}': {e}"
            raise HTTPError("unavailable_error", message) from e
        except Exception as e:
            message = f"model '{place.name}' could not be loaded: {e}"
            raise HTTPError("server_error", message) from e

    def is_there(self, place: Place) -> bool:
        info = self.info(place)
        return info.state != "unloaded" or info.asleep

    def begin(self, place: Place, told: Callable[[Future[Any]], None] = lambda _: None) -> None:
        """Load a model that nobody has asked for yet."""
        future = self.models.ask(place.name)
        future.add_done_callback(told)
        future.add_done_callback(self.models.forget)

    def tick(self) -> None:
        """To be called now and then."""
        self.models.tick(max(self.idle, 1e-9) if self.idle >= 0 else 0.0)

    def reload(self) -> None:
        """See which models there are now; those that have changed leave."""
        if self.again is None:
            return
        now = {place.name: place for place in self.again()}
        for name, place in [*self.places.items()]:
            new = now.get(name)
            if new is None or (new.flags, new.path) != (place.flags, place.path):
                self.models.remove(name)
                del self.places[name]
            else:
                place.hidden, place.others = new.hidden, new.others
        for name, place in now.items():
            if name not in self.places:
                self.places[name] = place
                self.models.add(name, place.source())
        self.feed.send("models_reload", "*")

    def close(self) -> None:
        """End what is being answered, and give all memory back."""
        self.ready = False
        self.fetches.close()
        for place in self.places.values():
            lease = self.models.peek(place.name)
            if lease is not None:
                lease.served.state.engine.close()
                lease.end()
        self.models.close()


def status_of(info: ModelInfo) -> str:
    """In llama-server's words (server-models.h:server_model_status)."""
    if info.state == "unloading":
        return "unloaded"
    return "sleeping" if info.asleep else info.state


def holding(state: State) -> Shelf:
    """Of one model that is in memory already."""
    shelf = Shelf([Place("", lambda _: state)])
    with shelf.models.use(""):
        shelf.ready = True
    return shelf
