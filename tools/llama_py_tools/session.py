"""What every command shares: opening a model, progress and errors on stderr, exit codes."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llama_py_tools.options import ContextOptions, ModelOptions, collect

if TYPE_CHECKING:
    from llama_py import Context, Model

EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def run(main: Callable[[argparse.Namespace], int | None], args: argparse.Namespace) -> None:
    """Run a command and exit: 0 done, 1 with one line `error: ...`, 130 after Ctrl-C."""
    logging.basicConfig(
        stream=sys.stderr,
        format="%(message)s",
        level=logging.DEBUG if getattr(args, "verbose", False) else logging.WARNING,
    )
    try:
        code = main(args) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        code = EXIT_FAILURE
    except Exception as e:
        code = report(e, args)
    sys.exit(code)


def report(e: Exception, args: argparse.Namespace) -> int:
    """One line for what a user can cause; a traceback only with --verbose or for a defect of ours."""
    from ggml_py.errors import GGMLError

    if getattr(args, "verbose", False) or not isinstance(e, (GGMLError, OSError, ValueError)):
        logging.getLogger("llama_py").error("", exc_info=e)
    print(f"error: {' '.join(str(e).split())}", file=sys.stderr)
    return EXIT_FAILURE


class Progress:
    """A bar on stderr that appears only when the work takes longer than `after` seconds."""

    def __init__(self, title: str, after: float = 0.3) -> None:
        self.title = title
        self.after = after
        self._bar: Any = None

    def __call__(self, done: int, total: int, what: str = "") -> None:
        if self._bar is None:
            from tqdm import tqdm

            form = "{desc}: {percentage:3.0f}% |{bar:24}| {n_fmt}/{total_fmt} {postfix}"
            self._bar = tqdm(
                total=total,
                desc=self.title,
                file=sys.stderr,
                delay=self.after,
                leave=False,
                bar_format=form,
            )
        self._bar.total = total
        self._bar.set_postfix_str(what[-40:], refresh=False)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def model_path(options: ModelOptions) -> str:
    """The file asked for, or the bundled demo model."""
    if options.model:
        return options.model
    from importlib.resources import files

    return str(files("llama_py.data") / "demo.gguf")


def open_model(args: argparse.Namespace) -> Model:
    """Load the model the options name, with a progress bar."""
    import llama_py

    options = collect(ModelOptions, args)
    warn_about_devices(options)
    return llama_py.load(
        model_path(options),
        device=options.device,
        n_threads=options.threads or None,
        repack=not options.no_repack,
        progress=Progress("loading"),
    )


def warn_about_devices(options: ModelOptions) -> None:
    if options.n_gpu_layers > 0 and options.device in ("cpu", "ref"):
        print(f"warning: -ngl has no effect on device {options.device}", file=sys.stderr)
    for rule in filter(None, options.override_tensor.split(",")):
        _, sep, device = rule.rpartition("=")
        if not sep or device.lower() != options.device:
            from ggml_py.errors import BackendError

            raise BackendError(
                f"-ot {rule}: expected REGEX=DEVICE with a device in use: {options.device}"
            )


def open_context(args: argparse.Namespace, model: Model, **more: Any) -> Context:
    """A context as the options ask for."""
    o = collect(ContextOptions, args)
    values: dict[str, Any] = {
        "n_ctx": o.n_ctx, "n_batch": o.n_batch, "n_ubatch": o.n_ubatch, "flash_attn": o.flash_attn,
        "type_k": o.type_k, "type_v": o.type_v, "progress": Progress("compiling kernels"),
    }  # fmt: skip
    return model.context(**{**values, **more})


def list_devices() -> None:
    """Every device of every installed backend, one a line."""
    from ggml_py import registry
    from ggml_py.errors import BackendError

    for backend in registry.backend_names():
        try:
            for d in registry.devices(backend):
                free, total = d.memory()
                size = f" ({total >> 20} MiB, {free >> 20} MiB free)" if total else ""
                print(f"{d.name}: {d.description}{size}")
        except BackendError as e:
            print(f"{backend}: {e}", file=sys.stderr)


def list_archs() -> None:
    """Every architecture this version can run, one a line."""
    from llama_py.models import known_architectures

    for name in known_architectures():
        print(name)


def token_list(text: str) -> list[int]:
    """`1,2,3` as numbers."""
    try:
        return [int(t) for t in text.replace(" ", "").split(",") if t]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected token ids like 1,2,3; got {text!r}") from None
