"""The console scripts as users start them, and small model files to start them on."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from dev import tiny_models as tiny
from tests.support.graph_models import split
from tests.support.limits import SECONDS

SCRIPTS = Path(sysconfig.get_path("scripts"))
ROOT = Path(__file__).parents[2]
DEMO = ROOT / "llama_py" / "data" / "demo.gguf"


def clean_environment() -> dict[str, str]:
    """Nothing that changes defaults, and stdout buffered as users have it."""
    ours = ("LLAMA_ARG_", "PYTHONUNBUFFERED")
    return {k: v for k, v in os.environ.items() if not k.startswith(ours)}


def run(name: str, *args: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A console script, run to its end."""
    return subprocess.run(
        [str(SCRIPTS / name), *args],
        text=True,
        timeout=SECONDS,
        **{"capture_output": True, "stdin": subprocess.DEVNULL, "env": clean_environment(), **more},
    )


def start(name: str, *args: str) -> subprocess.Popen[str]:
    """A console script that is still running."""
    return subprocess.Popen(
        [str(SCRIPTS / name), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
        preexec_fn=heed_interrupts,
    )


def heed_interrupts() -> None:
    """In the child: SIGINT ends it, also where the tests run in a background job."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """The error of a command that failed as it should: one line on stderr, nothing on stdout."""
    assert (done.returncode, done.stdout) == (1, ""), done
    line, rest = done.stderr.split("\n", 1)
    assert line.startswith("error: ") and rest == "", done.stderr
    return line.removeprefix("error: ")


def tiny_model(folder: Path, name: str = "llama-dense") -> Path:
    """The file of a tiny model."""
    return tiny.write(*split(name), folder)


def demo_with_template(folder: Path, template: str | None) -> Path:
    """The demo model with another chat template, or with none."""
    path = folder / "chat.gguf"
    path.write_bytes(demo_template().with_template(DEMO, template))
    return path


@cache
def demo_template() -> Any:
    """The module dev/make/demo_model/template.py; its package needs torch."""
    spec = spec_from_file_location("demo_template", ROOT / "dev/make/demo_model/template.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
