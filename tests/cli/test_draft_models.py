"""Files of models that can only draft: `-md` says enough, and wrong ones are refused in a line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dev import tiny_models as tiny
from dev.tiny_models._file import gguf
from dev.tiny_models._invent import tensors
from llama_py.gguf.file import GGUFFile
from llama_py.loading.model import DEMO
from llama_py_tools.generate import cli

PROMPT = ["-p", "ROMEO:", "-n", "12", "--temp", "0", "-no-cnv", "-st"]


def demo_sizes() -> dict[str, Any]:
    """Of the demo model: its vocabulary, and how wide it is."""
    with GGUFFile.open(DEMO) as file:
        return {k: v.tolist() if hasattr(v, "tolist") else v for k, v in file.metadata.items()}


def write_draft(path: Path, name: str, **keys: Any) -> Path:
    """A random draft for the demo model, as a tiny model is."""
    arch, _, variant = name.rpartition("-")
    demo = demo_sizes()
    vocabulary = {k: v for k, v in demo.items() if k.startswith("tokenizer.")}
    found = tiny.find(arch, variant)
    vocabulary["tokenizer.ggml.mask_token_id"] = 7
    n_vocab = len(vocabulary["tokenizer.ggml.tokens"])
    unread = {k: (*ne[:-1], n_vocab) if len(ne) == 2 else ne for k, ne in found.unread.items()}
    found = replace(found, keys={**found.keys, "vocab_size": n_vocab, **keys}, unread=unread)
    path.write_bytes(gguf({**tiny.metadata(arch, found), **vocabulary}, tensors(arch, found)))
    return path


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[str, str]:
    assert cli.main(["-dev", "ref", *PROMPT, *argv]) == 0
    found = capsys.readouterr()
    return found.out, found.err


@pytest.mark.parametrize("name", ["eagle3-shared", "dflash-pairs", "dspark-markov"])
def test_the_file_says_how(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    demo = demo_sizes()
    n_embd = demo[f"{demo['general.architecture']}.embedding_length"]
    sizes = {"embedding_length": n_embd, "target_hidden_size": n_embd, "target_layers": [0, 1, 0]}
    path = write_draft(tmp_path / "draft.gguf", name.replace("dspark", "dflash"), **sizes)
    plain = said(capsys)[0]
    text, told = said(capsys, "-md", str(path))
    assert text == plain
    assert re.search(rf"draft-{name.split('-')[0]}: .*drafted", told), told


def test_wrong_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    narrow = write_draft(tmp_path / "draft.gguf", "eagle3-shared", target_hidden_size=32)
    for argv, says in (
        (["-md", str(narrow)], "is a draft model for embedding length 32, but"),
        (["-m", str(narrow)], "are draft models; pass this one as -md"),
        (["-md", str(narrow), "--spec-type", "draft-mtp"], r"\(eagle3\): the model has none"),
        (["--spec-type", "draft-eagle3"], r"pass it as -md, got none"),
        (["-md", str(DEMO), "--spec-type", "draft-eagle3"], r"of its type; pass it as -md, got"),
    ):
        assert cli.main(["-dev", "ref", *PROMPT, *argv]) == 1
        errors = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error")]
        assert len(errors) == 1 and re.search(says, errors[0]), errors
