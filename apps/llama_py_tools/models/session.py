"""Common parts of commands: opening a model, exit codes, errors on stderr."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ggml_py.machine import building
from ggml_py.machine.frames import with_large_chunk
from llama_py.params import ContextParams, ModelParams
from llama_py.support.progress import LINE, Kernels, on_terminal
from llama_py_tools.command import cpus, logs
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.logs import tell as tell
from llama_py_tools.command.options import read
from llama_py_tools.command.params import (
    LOAD_MODES,
    CommonParams,
    DraftFileParams,
    FileParams,
    FormParams,
    InputParams,
    SteeringParams,
)
from llama_py_tools.command.progress import Progress
from llama_py_tools.command.streams import drop_stdout, open_streams, reader_left

if TYPE_CHECKING:
    from ggml_py.backend import Device
    from llama_py import Context, Model
    from llama_py.batch import F32

EXIT_OK, EXIT_FAILURE, EXIT_CTRL_C = 0, 1, 130

log = logging.getLogger("llama_py")


@with_large_chunk
def run(command: Callable[[argparse.Namespace], int | None], args: argparse.Namespace) -> int:
    """Run a command: 0 done, 1 with one line `error: ...`, 130 after Ctrl-C."""
    open_streams()
    gc.unfreeze()  # objects of the previous run
    gc.disable()  # startup makes little garbage; collecting it takes a tenth of the time
    display = Kernels(elsewhere=tell)
    how, flags = read(args, CommonParams), getattr(args, "flag_of", {})
    logs.set_up(replace(how, log_file=""), flags)
    try:
        logs.set_up(how, flags)
        with building.send_progress(display):
            code = command(args) or EXIT_OK
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_CTRL_C
    except Exception as e:
        if reader_left(e):  # stdout has no reader
            drop_stdout()
            return EXIT_FAILURE
        _report(e, how.verbose)
        return EXIT_FAILURE
    finally:
        gc.enable()
        display.close()
        LINE.wipe()


def exit_now(code: int) -> NoReturn:
    """End this process at once, regardless of its threads."""
    LINE.wipe()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    os._exit(code)


def _report(e: Exception, verbose: bool) -> None:
    """Print an error as one line; with --verbose after its traceback."""
    if verbose:
        log.error("", exc_info=e)
    print_error(e)
    if isinstance(e, OSError):  # stdout itself may have failed, for example on a full disk
        drop_stdout()


def print_error(e: Exception, in_flags: bool = True) -> None:
    """Print an error as one line on stderr. in_flags: with flags in place of Python's names."""
    from ggml_py.errors import GGMLError

    text = " ".join((_of_system(e) if isinstance(e, OSError) else str(e)).split())
    if isinstance(e, MemoryError) and not text:
        text = "out of memory"
    if not isinstance(e, (GGMLError, OSError, MemoryError)):
        text = f"{type(e).__name__}: {text} (internal error; --verbose shows the traceback)"
    log.error("%s", _harmless(text), extra={"in_flags": in_flags})


def _of_system(e: OSError) -> str:
    """Return `FILE: No such file or directory; check the path`."""
    if not (e.filename and e.strerror):
        return str(e)
    kinds = (hint for kind, hint in _TO_DO.items() if isinstance(e, kind))
    return f"{e.filename}: {e.strerror}{next(kinds, '')}"


_TO_DO = {
    FileNotFoundError: "; check the path",
    PermissionError: "; check its permissions",
    IsADirectoryError: "; use the path of a file",
}


def _harmless(text: str) -> str:
    """Escape characters that a terminal would interpret: file names may have any."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def write(text: str) -> None:
    """Write text to stdout at once."""
    LINE.wipe()
    print(text, end="", flush=True)


def demo_model() -> str:
    """Return the path of the bundled demo model."""
    import llama_py

    return str(Path(llama_py.__file__).parent / "data" / "demo.gguf")


def loading() -> None:
    """Draw `loading ...` on a terminal before modules are imported, as this takes a second."""
    if on_terminal():
        LINE.draw("loading ...")


def model_path(file: FileParams) -> str:
    """Return the file that the options name, downloaded if needed."""
    from ggml_py.errors import ModelError

    if file.hf_repo and (file.model or file.model_url):
        raise ModelError("set only one of -hf, -m and -mu")
    if file.hf_file and not file.hf_repo:
        raise ModelError("-hff needs -hf USER/MODEL")
    if file.hf_repo:
        from llama_py_tools.models.hub import download_model

        return download_model(file)
    if file.model_url:
        from llama_py_tools.models.url import download

        return download(file.model_url, file.model, file.offline)
    return _named_file(file.model) if file.model else demo_model()


def fetch_draft(args: argparse.Namespace) -> None:
    """Set -md to the model of -hfd, downloaded if needed."""
    repo = read(args, DraftFileParams).hf_repo_draft
    if not repo:
        return
    if args.model_draft:
        from ggml_py.errors import ModelError

        raise ModelError("set either -hfd or -md")
    from llama_py_tools.models.hub import download_model

    args.model_draft = download_model(replace(read(args, FileParams), hf_repo=repo, hf_file=""))


def _named_file(name: str) -> str:
    """Return the path unchanged, or a short name's path if the file does not exist."""
    if Path(name).suffix == ".gguf" or Path(name).exists():
        return name
    from ggml_py.errors import ModelError
    from llama_py_tools.models import local_models

    found = local_models.find(name)
    if found is None and local_models.is_name(name):
        prompt = '; a prompt follows a model: llama-py run MODEL "PROMPT"' if " " in name else ""
        remedy = f"llama-py list shows the models{prompt}"
        raise ModelError(f"{name}: no file or model has this name; {remedy}")
    return str(found or name)


def open_model(args: argparse.Namespace, **more: Any) -> Model:
    """Open the model that the options name; `more` are fields of ModelParams that override them."""
    file, placing, asked = read(args, FileParams), read(args, CpuParams), read(args, ContextParams)
    cpus.enter(placing)
    _warn_of_threads("-tb", asked.n_threads_batch)
    how = {**LOAD_MODES[file.load_mode], **more}
    model = load(file, replace(read(args, ModelParams), **how), asked.n_threads, asked)
    cpus.pin(model.devices, placing)
    return model


def load(
    file: FileParams,
    params: ModelParams,
    n_threads: int | None = None,
    context: ContextParams | None = None,
) -> Model:
    """Load a model, or the demo model, on devices that are set up first. Only a CPU can repack.

    context  of the context that will be created, if known: its memory is not used for weights

    With `auto`, the CPU replaces a GPU that fails.
    """
    loading()
    import llama_py
    from ggml_py.errors import AllocError, BackendError
    from llama_py.weights.placement import devices_in_use

    devices = devices_in_use(params.device)
    for d in devices:
        found: Any = d
        found.repack = file.repack
        if n_threads is not None:
            d.set_threads(n_threads)
    _warn_of_threads("-t", n_threads)
    path = model_path(file)
    how = replace(params, device=devices, progress=Progress("loading"))
    if context is not None and path is not None and params.reserve is None:
        from llama_py.fit.reserve import context_reserve

        how = replace(how, reserve=context_reserve(path, devices, params, context))
    if file.check_tensors:
        _check_tensors(path)
    try:
        model = llama_py.load(path, **vars(how))
        LINE.wipe()
        return model
    except (AllocError, BackendError) as e:
        if not _can_replace_gpus(params, devices):
            raise
        log.warning("%s; running on the CPU instead", e)
        return load(file, _on_cpu(params), n_threads, context)


def _on_cpu(params: ModelParams) -> ModelParams:
    """Return the default options, with weights in the wanted type and memory."""
    names = ("quantize", "keep_quantized", "max_memory", "reserve")
    return ModelParams(**{name: getattr(params, name) for name in names})


def _check_tensors(path: str) -> None:
    from llama_py.loading.open import open_model as open_file
    from llama_py_tools.models.check_tensors import check_tensors

    with open_file(path) as file:
        check_tensors(file, Progress("checking weights"))


def _warn_of_threads(flag: str, n: int | None) -> None:
    from ggml_py.machine.host import logical_cpus

    if n is not None and n > len(logical_cpus()):
        log.warning(
            "%s %d on %d CPUs: threads will wait for each other; use fewer threads",
            flag,
            n,
            len(logical_cpus()),
        )


def _can_replace_gpus(params: ModelParams, devices: Sequence[Device]) -> bool:
    """Return True if the GPUs in use were not requested by name, so that the CPU may replace
    them."""
    return params.device in ("auto", ("auto",)) and len(devices) > 1


def open_context(args: argparse.Namespace, model: Model, **more: Any) -> Context:
    """Create a context by the options; `more` are fields of ContextParams that override them.

    With `auto`, the CPU replaces a GPU that fails.
    """
    from ggml_py.errors import AllocError, BackendError

    params = read(args, ContextParams)
    forms = {**params.forms, **read(args, FormParams).forms}
    how = replace(params, **{"forms": forms, **more})
    try:
        ctx = _apply_steering(model.context(**vars(how)), read(args, SteeringParams))
        gc.freeze()  # the present objects are permanent
        gc.enable()
        tell_memory(ctx.memory_breakdown())
        return ctx
    except (AllocError, BackendError) as e:
        if not _can_replace_gpus(read(args, ModelParams), model.devices):
            raise
        log.warning("%s; running on the CPU instead", e)
        how_on_cpu = _on_cpu(read(args, ModelParams))
        on_cpu = load(read(args, FileParams), how_on_cpu, params.n_threads)
        return open_context(args, on_cpu, **more)


def tell_memory(breakdown: Mapping[str, Mapping[str, int]]) -> None:
    """Print the memory of each rank, if there are several."""
    from llama_py_tools.command.ranks import rank_memory

    for line in rank_memory(breakdown):
        tell(line)


def _apply_steering(ctx: Context, params: SteeringParams) -> Context:
    """Apply the adapters and control vectors that the options name."""
    loras = [(ctx.model.load_adapter(file), scale) for file, scale in adapter_files(params)]
    if not params.lora_init_without_apply:
        ctx.set_adapters(dict(loras))
    if (found := directions(params)) is not None:
        ctx.set_control_vector(found[0], range(found[1], found[2] + 1))
    return ctx


def directions(params: SteeringParams) -> tuple[F32, int, int] | None:
    """Return the directions of control vectors, with the first and the last layer they are for."""
    files = (*params.control_vector, *params.control_vector_scaled)
    if not files:
        return None
    from llama_py.adapters.control_vector import load_directions
    from llama_py.hparams import MAX_LAYERS

    start, end = params.control_vector_layer_range or (1, MAX_LAYERS)
    return load_directions(files), start, end


def adapter_files(params: SteeringParams) -> tuple[tuple[str, float], ...]:
    """Return the files of adapters, each with its scale."""
    return (*params.lora, *params.lora_scaled)


def input_tokens(args: argparse.Namespace, model: Model) -> list[int]:
    """Return the tokens of -p or --tokens; for the demo model by default its own beginning."""
    from ggml_py.errors import ContextError

    o = read(args, InputParams)
    if o.tokens:
        return list(o.tokens)
    if not o.prompt and read(args, FileParams).has_model:
        raise ContextError("the prompt is empty; use -p TEXT or --tokens 1,2,3")
    return model.tokenizer.tokenize(o.prompt or DEMO_PROMPT)


DEMO_PROMPT = "ROMEO:"


def enough_context(args: argparse.Namespace, n_tokens: int) -> int:
    """Return -c, or just enough cells, so that graphs are for the smallest context."""
    return read(args, ContextParams).n_ctx or n_tokens


def check_length(ctx: Context, ids: Sequence[int]) -> None:
    """Raise ContextError, before any output, if the prompt does not fit."""
    from ggml_py.errors import ContextError
    from llama_py.batch.prompts import n_cells

    n_ctx, n = ctx.cparams.n_ctx_seq, n_cells(ids)
    if n > n_ctx:
        raise ContextError(
            f"the prompt has {n} tokens, but the context holds {n_ctx}; use a larger -c (the "
            f"model's training context is {ctx.model.hparams.n_ctx_train}) or a shorter prompt"
        )


def list_devices() -> None:
    """Print this machine, then every device of every installed backend, one per line."""
    from ggml_py.backend import registry
    from ggml_py.errors import BackendError
    from ggml_py.machine import host

    print(f"host: {host.summary()}")
    for backend in registry.backend_names():
        try:
            devices = registry.devices(backend)
        except BackendError as e:
            tell(f"{backend}: {e}")
            continue
        for d in devices:
            free, total = d.memory()
            size = f" ({total >> 20} MiB, {free >> 20} MiB available)" if total else ""
            print(f"{d.name}: {d.description}{size}")


def list_archs() -> None:
    """Print every architecture this version can run, one per line."""
    from llama_py.models import known_architectures

    for name in known_architectures():
        print(name)
