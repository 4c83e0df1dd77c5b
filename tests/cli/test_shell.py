"""Shell completion: bash's own is asked, the other scripts are looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llama_py.params import CACHE_TYPES
from llama_py_tools import graph
from llama_py_tools.command.shell import script
from llama_py_tools.generate import cli
from tests.support.limits import SECONDS

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def offered(folder: Path, *words: str, command: str = "llama-py-cli") -> set[str]:
    """What bash offers for the last word."""
    parser = cli.parser() if command == "llama-py-cli" else graph.parser()
    line = " ".join(f"'{word}'" for word in (command, *words))
    name = "_" + command.replace("-", "_")
    show = "printf '%s\\n' \"${COMPREPLY[@]}\""
    ask = f"\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; {name}; {show}"
    done = subprocess.run(
        ["bash", "--norc"],
        input=script(parser, "bash") + ask,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=SECONDS,
    )
    assert done.stderr == ""
    return {*done.stdout.split("\n")} - {""}


def test_flags(tmp_path: Path) -> None:
    assert offered(tmp_path, "--ctx") == {"--ctx-size", "--ctx-checkpoints"}
    assert offered(tmp_path, "-p", "x", "--no-rep") == {"--no-repack"}
    assert {"cache", "warmup"} < offered(tmp_path, "")
    assert "cache" not in offered(tmp_path, "--mmap", "")


def test_values(tmp_path: Path) -> None:
    (tmp_path / "a model.gguf").touch()
    assert offered(tmp_path, "--split-mode", "") == {"layer", "row", "graph", "tensor", "none"}
    assert offered(tmp_path, "-ctk", "") == {*CACHE_TYPES}
    assert offered(tmp_path, "-n", "") == set()
    assert "model.gguf" in " ".join(offered(tmp_path, "-m", "a"))
    assert offered(tmp_path, "-ot", "exps", "--completion", "f") == {"fish"}


def test_commands_have_flags_of_their_own(tmp_path: Path) -> None:
    assert offered(tmp_path, "cache", "--un") == {"--unused"}
    assert offered(tmp_path, "cache", "--ctx") == set()
    assert offered(tmp_path, "dump", "--form", command="llama-py-graph") == {"--format", "--form"}
    assert offered(tmp_path, "diff", "--aga", command="llama-py-graph") == {"--against"}


def test_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--completion-bash"], ["--completion", "bash"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == 0
        assert capsys.readouterr().out == script(cli.parser(), "bash")


def test_zsh() -> None:
    text = script(cli.parser(), "zsh")
    assert text.startswith("#compdef llama-py-cli\n")
    assert "-sm|--split-mode) compadd -- layer row graph tensor none; return ;;" in text
    assert (
        r"'--mmap:map the model file into memory (default\: on)'" in text
        and "_describe -o option flags" in text
    )


def test_fish() -> None:
    lines = script(cli.parser(), "fish").splitlines()
    assert all(line.startswith("complete -c llama-py-cli ") for line in lines)
    where = "-n 'not __fish_seen_subcommand_from cache warmup'"
    values = "-x -a 'layer row graph tensor none' -d "
    assert any(f"{where} -o sm {values}" in line for line in lines)
    assert any("-n '__fish_seen_subcommand_from cache' -l unused -d " in line for line in lines)


@pytest.mark.skipif(sys.platform == "win32", reason="other errors of pipes")
@pytest.mark.parametrize("words", [("--completion", "bash"), ("--help",)])
def test_nobody_reads_it(words: tuple[str, ...]) -> None:
    """As behind `| head -1`: nothing is told."""
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", "from llama_py_tools.start import cli; cli()", *words],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(write)
    assert ended.stderr == ""
