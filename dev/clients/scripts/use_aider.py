"""aider-chat: the command, with one message. It has chat only, as a stream or not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from feature import ASK, KEY, OPENAI, SECONDS, check_text, run

FLAGS = (
    "--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings", "--no-pretty",
    "--analytics-disable", "--no-auto-lint", "--map-tokens", "0", "--edit-format", "ask",
)  # fmt: skip


def ask(*more: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder, "history")
        options = {
            "--model": "openai/demo", "--openai-api-base": OPENAI, "--openai-api-key": KEY,
            "--llm-history-file": str(history), "--message": ASK,
        }  # fmt: skip
        command = [sys.executable, "-m", "aider", *FLAGS, *more]
        command += [part for option in options.items() for part in option]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert history.exists(), f"{done.stdout[-200:]} {done.stderr[-200:]}"
        *_, said = history.read_text(encoding="utf-8").partition("LLM RESPONSE")
        return check_text(said.partition("\n")[2])


def chat() -> str:
    return ask("--no-stream")


def stream() -> str:
    return ask("--stream")


run("aider-chat", chat=chat, stream=stream)
