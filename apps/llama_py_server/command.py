"""llama-py-server: HTTP server with the APIs of OpenAI, Anthropic, Ollama and llama-server.

The default model is the bundled demo model. docs/server.md lists all paths.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import math
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_mpi.keeper import n_started
from ggml_py.errors import ModelError
from llama_py.params import GenerateParams, ModelParams, SamplingParams
from llama_py.params.speculative import SpeculativeParams
from llama_py_server.params import (
    TYPED,
    ListenParams,
    ModelsParams,
    ServedParams,
    ServerParams,
    TalkParams,
)
from llama_py_server.wire.addresses import list_addresses
from llama_py_server.wire.exposure import exposure, is_public
from llama_py_tools.command import logs
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import (
    CommonParams,
    DraftFileParams,
    FileParams,
    FormParams,
    SteeringParams,
)
from llama_py_tools.command.ranks import HostsParams
from llama_py_tools.command.supervisor import AGAIN
from llama_py_tools.generate import vision
from llama_py_tools.generate.vision import VisionParams
from llama_py_tools.mcp.params import McpParams
from llama_py_tools.models import session
from llama_py_tools.models.local_models import PULL

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from llama_py.decoding.prefix_cache.budget import CommonLimit
    from llama_py.model import Model
    from llama_py.serving import Engine, Lease
    from llama_py_server.models.loss import Loss
    from llama_py_server.models.model_pool import ModelEntry, ModelPool, ServedModel
    from llama_py_server.models.state import ModelRecord, ModelState

log = logging.getLogger("llama_py")

TICK = 0.25  # seconds between searches for idle models and streams
LEAVING = 0.4  # seconds until the process exits, after --timeout-stop
CLOSING = 10.0  # seconds at the end for steps of abandoned answers
CONTROL = ("control_vector", "control_vector_scaled", "control_vector_layer_range")


COMMON = (
    "-m -hf --models-dir --models-max -a --host --port --api-key -np -c -n -rea -mm",
    "--embeddings --rerank --metrics --temp --top-k --top-p --min-p",
    "-t -fa -ctk -ctv -dev -ngl -ncmoe --lora -md --spec-type --log-file -v",
)
EPILOG = """examples:
  %(prog)s -m model.gguf -c 16384                # web page and API on port 8080
  %(prog)s -hf user/model-GGUF:Q4_K_M -np 4      # Hub model, 4 parallel requests
  %(prog)s --models-dir DIR --host 0.0.0.0 --api-key KEY   # several models, in a network
"""


def parser() -> OptionParser:
    p = OptionParser(
        "llama-py-server",
        COMMON,
        usage="%(prog)s [-m FILE] [options]",
        description=__doc__,
        epilog=EPILOG,
    )
    p.add(CommonParams, ModelsParams)
    p.add(FileParams, without=("model",))
    p.add(ListenParams, ServerParams)
    p.add(TalkParams, without=TYPED)
    p.add(VisionParams, without=("image",))
    p.add(ServedParams, without=("check",))
    p.add(GenerateParams, SamplingParams, DraftFileParams)
    p.add(McpParams, without=("mcp_allow",))
    p.add(CpuParams, FormParams, ModelParams)
    p.add(SteeringParams, without=CONTROL)
    p.add(HostsParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    p = parser()
    args = p.parse_args(argv)
    args.given = sys.argv[1:] if argv is None else list(argv)
    o = read(args, ServerParams)
    if o.embedding and o.reranking:
        p.error("set either --embedding or --reranking")
    listen = read(args, ListenParams)
    args.models_cached = args.models_cached or listen.ollama
    try:
        hosts = dict.fromkeys(host for host, _ in list_addresses(listen))
    except ModelError as e:
        p.error(str(e))
    if bool(listen.ssl_key_file) != bool(listen.ssl_cert_file):
        p.error("TLS needs both --ssl-key-file and --ssl-cert-file")
    if listen.check:
        tools = bool(read(args, McpParams).mcp)
        print(*exposure(listen, o, read(args, ModelsParams), tools), sep="\n")
        return 0
    if is_public(listen) and not listen.keys() and not listen.insecure:
        p.error(
            f"--host {','.join(hosts)} accepts connections from other machines; set --api-key, or "
            "--insecure"
        )
    if o.slot_save_path and not Path(o.slot_save_path).is_dir():
        p.error(f"--slot-save-path {o.slot_save_path}: not a folder; use an existing one")
    if o.media_path and not Path(o.media_path).is_dir():
        p.error(f"--media-path {o.media_path}: not a folder; use an existing one")
    if args.mmproj and read(args, ModelsParams).is_several:
        p.error(
            "--mmproj belongs to one model; for several models set it per model in --models-preset"
        )
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> int:
    with explain_missing("the server"):
        from llama_py_server.app import app
        from llama_py_server.routes import vertex
        from llama_py_server.routes.tools import open_toolbox
        from llama_py_server.stream.replies import cut_all
        from llama_py_server.wire import work
        from llama_py_server.wire.listen import serve
    pool, loader = open_pool(args)
    listen = read(args, ListenParams)
    with contextlib.closing(open_toolbox(read(args, McpParams))) as toolbox:
        made = app(pool, listen, loader.lifespan, toolbox)
        listen = replace(listen, port=vertex.port(listen.port))
        stopped = serve(made, listen, loader.failed, loader.hurry, loader.begin_end, cut_all)
    if loader.error is not None:
        raise loader.error
    if loader.is_busy or work.is_busy():
        session.exit_now(stopped)
    return stopped


@contextlib.contextmanager
def explain_missing(what: str) -> Iterator[None]:
    """Raise ModelError with the extra to install for a missing package. what: name of the
    program"""
    try:
        yield
    except ModuleNotFoundError as e:
        if e.name not in ("starlette", "uvicorn"):
            raise
        from ggml_py.machine.extras import install_hint

        raise ModelError(f"{what} needs {e.name}: {install_hint('server')}") from None


def open_pool(args: argparse.Namespace) -> tuple[ModelPool, Loader]:
    """Prepare this process for a server; return the pool of its models, and their loader."""
    from llama_py_server.wire.memory import return_freed_memory

    return_freed_memory()
    logs.outlive_errors()
    _fetch_preset(args)
    pool = build_model_pool(args, _loss() if n_started() > 1 else None)
    return pool, Loader(pool, read(args, ListenParams).timeout_stop)


def _fetch_preset(args: argparse.Namespace) -> None:
    """Replace a repository of presets named by -hf with --models-preset; with --ollama, download
    the named model."""
    found = read(args, FileParams)
    if read(args, ListenParams).ollama and (found.hf_repo or found.model_url):
        session.model_path(found)  # the list of cached models has it then
        return
    if not found.hf_repo or read(args, ModelsParams).is_several:
        return
    from llama_py_tools.models.hub import download_preset

    preset = download_preset(found)
    if preset:
        args.models_preset, args.hf_repo = preset, ""


def _loss() -> Loss:
    """Return the handler of a lost rank."""
    from ggml_mpi.world import world
    from llama_py_server.models.loss import Loss

    loss, watch = Loss(), world().watch
    watch.lost = lambda rank, what: loss.end(f"rank {rank} on {watch.hosts[rank]} {what}")
    return loss


def build_model_pool(args: argparse.Namespace, loss: Loss | None = None) -> ModelPool:
    """Return the pool of models that options name, without loading one. loss: see `ModelPool`"""
    from ggml_py.machine.host import memory
    from llama_py.decoding.prefix_cache.budget import CommonLimit
    from llama_py_server.models.catalog import entries, single
    from llama_py_server.models.model_pool import Manages, ModelPool

    o = read(args, ModelsParams)

    def opened_here(own: argparse.Namespace, record: ModelRecord) -> ModelState:
        return open_state(own, record, loss, cache_limit)

    cache_ram = read(args, ServedParams).cache_ram
    cache_limit = CommonLimit(cache_ram) if o.is_several else None
    if not o.is_several:
        return ModelPool([single(args, opened_here)], idle=o.sleep_idle_seconds, loss=loss)

    def list_entries() -> list[ModelEntry]:
        return entries(args, getattr(args, "given", ()), parser(), opened_here)

    budget = o.models_memory << 20 or memory()[0]
    why = "downloading and removing models is disabled (--models-manage)"
    manages = Manages(o.models_manage, why, read(args, FileParams).hf_token)
    return ModelPool(
        list_entries(),
        several=True,
        budget=budget,
        most=o.models_max,
        autoload=o.models_autoload,
        idle=o.sleep_idle_seconds,
        again=list_entries,
        loss=loss,
        manages=manages if o.models_cached else None,
    )


class Loader:
    """Loads the model while the server already listens, like llama-server; a failure to load ends
    the server. With several models, requests load them."""

    def __init__(self, pool: ModelPool, timeout_stop: float = CLOSING) -> None:
        self.pool, self.timeout_stop = pool, timeout_stop
        self._until = math.inf  # the end of the process
        self.error: BaseException | None = None
        self.failed, self.hurry = threading.Event(), threading.Event()
        self._closing = threading.Thread(target=pool.close, name="llama-close", daemon=True)

    @property
    def is_busy(self) -> bool:
        """True if a model is still being loaded or used at the end; only the end of the process
        stops that."""
        return self._closing.is_alive()

    def begin_end(self) -> None:
        """Note that the server is stopping, and end endless streams."""
        self._until = time.monotonic() + self.timeout_stop + LEAVING
        self.pool.feed.close()

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        first = [p for p in self.pool.entries.values() if p.at_start]
        for entry in first if self.pool.several else (self.pool.single_entry,):
            self.pool.begin(entry, self._finish_load)
        if self.pool.several:
            gc.enable()  # models are loaded and unloaded
            session.tell(_count_models(len(self.pool.entries)))
        from llama_py_server.wire.memory import GarbageCollector

        collector = GarbageCollector()
        ticking = asyncio.ensure_future(self._tick(app, collector.tick))
        try:
            yield
        finally:
            ticking.cancel()
            collector.close()
            await self._close()

    async def _close(self) -> None:
        """Release memory if that is quick, unless a second Ctrl-C requests a fast exit."""
        self._closing.start()
        until = min(time.monotonic() + CLOSING, self._until)
        while self._closing.is_alive() and time.monotonic() < until:
            if self.pool.only_loads or self.hurry.is_set():
                return
            await asyncio.sleep(0.02)

    async def _tick(self, app: Starlette, collect: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(TICK)
            collect()
            self.pool.tick()
            app.state.streams.sweep()

    def _finish_load(self, future: Future[Lease[ServedModel]]) -> None:
        error = None if future.cancelled() else future.exception()
        if self.pool.several:
            return
        if error is not None:
            if not self.pool.ready and self._closing.ident is None:
                self.error = error
                self.failed.set()
            return
        gc.freeze()  # the present objects are permanent
        gc.enable()
        self.pool.ready = True
        state = future.result().served.state
        session.tell(f"ready: {state.name}")
        session.tell(f"prefix cache: {_size(state.engine.n_kept)} (--cache-ram)")
        threading.Thread(target=_prepare_grammars, args=(state.model,), daemon=True).start()


def _prepare_grammars(model: Model) -> None:
    """Create the vocabulary of grammars. The first request with a grammar would delay the responses
    of other clients by up to 0.3 s."""
    from llama_py.grammar.vocabulary import vocabulary

    with contextlib.suppress(ImportError):  # llguidance is optional
        vocabulary(model.tokenizer)


def _count_models(n: int) -> str:
    if not n:
        return f"ready, but without models; download one, then start the server again: {PULL}"
    return f"ready: {n} model{'s' * (n > 1)}"


def _size(n: int | None) -> str:
    return "no limit in host memory" if n is None else f"{n >> 20} MiB of host memory"


def open_state(
    args: argparse.Namespace,
    record: ModelRecord,
    loss: Loss | None = None,
    cache_limit: CommonLimit | None = None,
) -> ModelState:
    """Load the model and engine that options name; of several -m, one. record, loss: see
    ModelState; cache_limit: see Engine"""
    from llama_py.weights.placement import devices_in_use
    from llama_py_server.models.fitting import check_fits
    from llama_py_server.models.state import ModelOptions, ModelState

    o, file = read(args, ServerParams), read(args, FileParams)
    session.fetch_draft(args)
    speculative = read(args, SpeculativeParams)
    needs_nextn = _needs_nextn(speculative)
    if int(os.environ.get(AGAIN, "0")):
        check_fits(session.model_path(file), devices_in_use(read(args, ModelParams).device))
    with contextlib.ExitStack() as undo:  # a failure must release its memory
        model = session.open_model(args, **({"load_mtp": True} if needs_nextn else {}))
        undo.callback(model.close)
        model.tokenizer.tokenize("a text")  # load its library while file descriptors are available
        vision.load(args, model)
        if model.vision is not None and o.warmup:
            model.vision.prepare()
        engine = _engine(args, model, speculative, cache_limit, undo)
        undo.pop_all()
    return ModelState(
        model=model,
        engine=engine,
        options=ModelOptions(
            server=o,
            talk=read(args, TalkParams),
            listen=read(args, ListenParams),
            generate=read(args, GenerateParams),
            sampling=read(args, SamplingParams),
            drafters=speculative.drafters,
            attention=read(args, ServedParams).attention,
            verbose=read(args, CommonParams).verbose,
        ),
        path=str(model.file.path),
        names=o.alias or (_name(file, str(model.file.path)),),
        loss=loss,
        record=record,
    )


def _engine(
    args: argparse.Namespace,
    model: Model,
    speculative: SpeculativeParams,
    cache_limit: CommonLimit | None,
    undo: contextlib.ExitStack,
) -> Engine:
    """Create the engine with its template and adapters. undo: cleanup in case of failure"""
    from llama_py.serving import Engine

    o, talk = read(args, ServerParams), read(args, TalkParams)
    template = talk.template()
    if template is not None:
        model.set_chat_template(template)
    params = read(args, ServedParams).with_slots(args.kv_unified)
    forms = {**params.forms, **read(args, FormParams).forms}
    params = replace(params, forms=forms)
    how = {
        **vars(params),
        "speculative": speculative,
        "max_queue": o.max_queue,
        "client_slots": read(args, ListenParams).client_parallel,
        "warmup": o.warmup,
        "cache_limit": cache_limit,
    }
    engine = Engine(model, **how)
    undo.callback(engine.close)
    session.tell_memory(engine.memory)
    steering = read(args, SteeringParams)
    loras = [(model.load_adapter(f), scale) for f, scale in session.adapter_files(steering)]
    if not steering.lora_init_without_apply:
        engine.set_loras(dict(loras))
    return engine


def _needs_nextn(speculative: SpeculativeParams) -> bool:
    from llama_py.decoding.drafting.needs import needs_nextn

    return needs_nextn(speculative)


def _name(file: FileParams, path: str) -> str:
    return file.hf_repo or Path(path).stem
