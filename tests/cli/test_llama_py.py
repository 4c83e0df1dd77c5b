"""llama-py: one word for all commands, models by short name, and those of a hub."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ggml_py.errors import ModelError
from llama_py_tools import main
from llama_py_tools.models import local_models
from tests.cli.hub_server import TOKEN, hub
from tests.support.commands import DEMO, clean_environment, refused, run

MODELS = {
    "alice/Small-GGUF": {
        "README.md": b"#",
        "Small-Q4_K_M.gguf": DEMO.read_bytes(),
        "Small-F16.gguf": b"GGUF",
    },
    "alice/secret": {"secret-Q8_0.gguf": DEMO.read_bytes()},
}


@pytest.mark.parametrize(
    ("word", "rest", "expected"),
    [
        ("run", ["m", "What", "is it?", "-n", "3"], "-m m -n 3 -st -p|What is it?"),
        ("run", ["user/m:Q8_0"], "-hf user/m:Q8_0"),
        ("run", ["-n", "3"], "-n 3"),
        ("chat", ["./a/m.gguf"], "-cnv -m ./a/m.gguf"),
        ("chat", [], "-cnv"),
        ("bench", ["a/m.gguf", "-p", "1"], "-m a/m.gguf -p 1"),
        ("graph", ["view", "-m", "x"], "view -m x"),
    ],
)
def test_a_model_and_a_prompt_may_stand_first(word: str, rest: list[str], expected: str) -> None:
    head, _, prompt = expected.partition("|")
    assert main.arguments(word, rest) == [*head.split(), *([prompt] if prompt else [])]


def test_help_names_every_command_and_each_has_its_own() -> None:
    shown = run("llama-py", "--help").stdout
    assert all(f"\n  {word} " in shown for word in main.WORDS)
    for word in ("run", "bench", "graph", "pull", "list", "cache"):
        assert run("llama-py", word, "--help").stdout.startswith(f"usage: llama-py {word}")
    assert run("llama-py").stdout == shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["m.gguf"], "-m m.gguf"),
        (["a/b"], "-hf a/b"),
        (["./file", "-n", "3"], "-m ./file -n 3"),
        (["land", "What?"], "-m land -st -p What?"),
    ],
)
def test_a_model_alone_is_run(
    shelf: Path, words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shelf / "file").touch()
    monkeypatch.chdir(shelf)
    monkeypatch.setattr("llama_py_tools.generate.cli.main", lambda argv: given.extend(argv))
    # The call sets it, so it is restored.
    monkeypatch.setattr("llama_py_tools.command.options.called_as", "")
    given: list[str] = []
    assert main.main(words) == 0
    assert given == expected.split()


def test_an_unknown_command_is_wrong_usage() -> None:
    done = run("llama-py", "benhc")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown command 'benhc'; did you mean bench?" in done.stderr
    done = run("llama-py", "xyzzy")
    assert done.returncode == 2 and "'xyzzy'; --help lists all" in done.stderr


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "Sea-0.6B-Q8_0",
        "Sea-0.6B-Q4_K_M",
        "Sea-0.6B-base-Q8_0",
        "mmproj-Sea",
        "land",
        "sub/big-F16-00001-of-00002",
        "sub/big-F16-00002-of-00002",
    ):
        path = tmp_path / f"{name}.gguf"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    monkeypatch.setenv("LLAMA_PY_MODELS", str(tmp_path))
    monkeypatch.setattr(local_models, "cached_files", list)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("land", "land"),
        ("LAND", "land"),
        ("la", "land"),
        ("sea-0.6b:q8_0", "Sea-0.6B-Q8_0"),
        ("sea-0.6b-base", "Sea-0.6B-base-Q8_0"),
        ("sea:q4_k_m", "Sea-0.6B-Q4_K_M"),
        ("big", "sub/big-F16-00001-of-00002"),
        ("nothing", None),
        ("./land", None),
        ("mmproj-sea", None),
    ],
)
def test_short_names(shelf: Path, name: str, found: str | None) -> None:
    assert local_models.find(name) == (None if found is None else shelf / f"{found}.gguf")


def test_a_name_of_several_is_refused_with_their_names(shelf: Path) -> None:
    with pytest.raises(
        ModelError, match=r"'sea-0\.6b' is ambiguous: Sea-0\.6B-Q4_K_M, Sea-0\.6B-Q8_0"
    ):
        local_models.find("sea-0.6b")


def test_a_model_runs_by_its_short_name(tmp_path: Path) -> None:
    (tmp_path / "Small-Q8_0.gguf").symlink_to(DEMO)
    env = {**clean_environment(), "LLAMA_PY_MODELS": str(tmp_path)}
    done = run("llama-py", "run", "small", "-p", "ROMEO:", "-n", "2", "-no-cnv", env=env)
    assert done.returncode == 0 and done.stdout.startswith("ROMEO:")
    listed = run("llama-py", "list", env=env).stdout
    assert listed.startswith("Small-Q8_0 ") and str(tmp_path) in listed
    done = run("llama-py", "run", "smull", env=env)
    assert "no file or model has this name; llama-py list" in refused(done)
    assert refused(run("llama-py", "run", "Who is there?")).endswith('llama-py run MODEL "PROMPT"')


def of_hub(url: str, home: Path, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
    env: dict[str, str] = {
        **clean_environment(),
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "LLAMA_PY_MODELS": "",
        **more,
    }
    return run("llama-py", *args, env=env)


def test_pull_fetches_once_and_the_model_runs_without_the_hub(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub")
    with hub(MODELS, private="alice/secret") as (url, asked):
        done = of_hub(url, tmp_path, "pull", "alice/Small-GGUF")
        assert done.returncode == 0, done.stderr
        path = Path(done.stdout.strip())
        assert path.name == "Small-Q4_K_M.gguf" and path.read_bytes() == DEMO.read_bytes()
        n = len([one for one in asked if one.startswith("GET") and "resolve" in one])
        assert of_hub(url, tmp_path, "pull", "alice/Small-GGUF:Q4_K_M").stdout == done.stdout
        assert len([one for one in asked if one.startswith("GET") and "resolve" in one]) == n == 1
        error = refused(of_hub(url, tmp_path, "pull", "alice/Small-GGUF:Q6_K"))
        assert "no GGUF file of type Q6_K found; it has Small-F16.gguf" in error
        assert "alice/none" in refused(of_hub(url, tmp_path, "pull", "alice/none"))
        assert "alice/secret" in refused(of_hub(url, tmp_path, "pull", "alice/secret"))
        done = of_hub(url, tmp_path, "pull", "alice/secret", HF_TOKEN=TOKEN)
        assert done.returncode == 0, done.stderr
    run_again = ("run", "-p", "ROMEO:", "-n", "2", "-no-cnv", "--offline")
    for name in (["-hf", "alice/Small-GGUF"], ["-m", "small"]):
        done = of_hub("http://127.0.0.1:9", tmp_path, *run_again, *name)
        assert done.returncode == 0 and done.stdout.startswith("ROMEO:"), done.stderr
    assert os.fspath(path) in of_hub("http://127.0.0.1:9", tmp_path, "list").stdout
