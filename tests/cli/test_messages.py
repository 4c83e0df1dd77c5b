"""What a user is told of options that make no sense: a warning, or one line with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import llama_py
from llama_py_tools.command.logs import in_flags
from llama_py_tools.generate import cli
from llama_py_tools.measure import debug
from tests.support.commands import tiny_model

QUICK = ["-dev", "ref", "-p", "A", "-n", "1"]


def told(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert cli.main([*QUICK, *argv]) == code
    return capsys.readouterr().err


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main([*QUICK, *argv])
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_numbers_without_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert "-t/--threads: must be an integer in [1, 512], got 1000" in refused(capsys, "-t", "1000")
    assert "must be an integer of at least -2, got -7" in refused(capsys, "-n", "-7")


def test_words_that_there_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Of many those that are meant, and where the others are."""
    says = refused(capsys, "-ctk", "i8").splitlines()[-1]
    assert says.endswith("and 30 others, got i8; did you mean q8_0? --help all lists them")
    assert len(says) < 150
    assert "got zzz; --help all lists them" in refused(capsys, "-ctv", "zzz")
    assert "did you mean draft-mtp or" in refused(capsys, "--spec-type", "draft_mtp")
    assert "did you mean top_k or" in refused(capsys, "--samplers", "top_kk;dry")
    assert "got dist; did you mean distribute?" in refused(capsys, "--numa", "dist")
    with pytest.raises(SystemExit):
        cli.main(["--help", "all"])
    assert "iq4_nl" in capsys.readouterr().out


def test_caches_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    how = ["-dev", "cpu", "-p", "A", "-n", "1"]
    assert cli.main([*how, "-ctk", "q4_K"]) == 1
    says = capsys.readouterr().err
    assert (
        "error: -ctk q4_K: head size 64 is not a multiple of the block size 256; use f32, f16, "
        in says
    )
    assert cli.main([*how, "-ctv", "q8_1"]) == 1
    says = capsys.readouterr().err
    assert "error: -ctv q8_1: cpu cannot write this type; use f32, f16, q4_0 and 10 others" in says
    assert "q8_1" not in says.partition("; use ")[2]


def test_more_threads_than_cpus(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggml_py.machine.host.logical_cpus", lambda: [0, 1, 2])
    assert "warning: -t 4 on 3 CPUs: threads will wait for each other" in told(capsys, "-t", "4")
    assert "warning" not in told(capsys, "-t", "3")


def test_a_context_beyond_what_was_trained(capsys: pytest.CaptureFixture[str]) -> None:
    says = told(capsys, "-c", "1025")
    assert (
        "warning: -c 1025 per sequence exceeds the model's training context of 1024 tokens" in says
    )
    assert "warning" not in told(capsys, "-c", "1024")


@pytest.mark.parametrize("unified, warns", [(False, False), (True, True)])
def test_sequences_that_share_cells_may_each_have_all(
    caplog: pytest.LogCaptureFixture, unified: bool, warns: bool
) -> None:
    with llama_py.load() as model, model.context(n_ctx=2048, n_seq_max=2, kv_unified=unified):
        pass
    assert ("training context of 1024 tokens" in caplog.text) == warns


def test_rules_that_match_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    says = told(capsys, "-ot", "attn_zzz=ref", "-ot", "ffn=ref")
    assert (
        "warning: -ot attn_zzz=ref has no effect: no weight name matches" in says
        and "ffn=ref has" not in says
    )
    assert debug.main(["-dev", "ref", "-p", "A", "--tensor-filter", "zzz"]) == 0
    assert "warning: --tensor-filter: no node matches" in capsys.readouterr().err


def test_a_filter_is_anchored_as_the_references_is(capsys: pytest.CaptureFixture[str]) -> None:
    """`^` stands before the text: of two ways, only the first is at the start."""
    assert debug.main(["-dev", "ref", "-p", "A", "--tensor-filter", "ttn_norm-0"]) == 0
    assert capsys.readouterr().out == ""
    assert debug.main(["-dev", "ref", "-p", "A", "--tensor-filter", "zzz|ttn_norm-0"]) == 0
    assert "attn_norm-0" in capsys.readouterr().out


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ["-dev", "ref", "-f", str(tmp_path / "no.txt")]
    assert cli.main(args) == 1
    says = f"{tmp_path / 'no.txt'}: No such file or directory; check the path\n"
    assert capsys.readouterr().err == f"error: -f {says}"
    assert cli.main(["-dev", "ref", "-sysf", str(tmp_path / "no.txt")]) == 1
    assert capsys.readouterr().err == f"error: -sysf {says}"
    assert cli.main(["-dev", "ref", "-f", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith(": Is a directory; use the path of a file\n")


@pytest.mark.parametrize(
    ("word", "meant"), [("-n1", "-n 1"), ("-c128", "-c 128"), ("-ngl99", "-ngl 99")]
)
def test_glued_values(capsys: pytest.CaptureFixture[str], word: str, meant: str) -> None:
    assert f"unknown option {word}; did you mean {meant}?" in refused(capsys, word)


def test_a_cache_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Told before anything is computed or shown."""
    path = tmp_path / "no" / "cache.bin"
    assert cli.main([*QUICK, "--prompt-cache", str(path)]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and f"error: --prompt-cache {path}: folder is missing" in shown.err
    assert cli.main([*QUICK, "--prompt-cache", str(path), "--prompt-cache-ro"]) == 0


def test_one_token_has_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert "generated 1 tokens | stop" in told(capsys)


def test_a_full_context_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["-dev", "cpu", "-p", "A " * 120, "--ignore-eos", "-c", "256"]
    assert cli.main([*args, "-n", "-1"]) == 0
    says = "stop: the context of 256 tokens is full (use a larger -c N)"
    assert says in capsys.readouterr().err
    assert cli.main([*args, "-n", "1"]) == 0
    assert "stop: length" in capsys.readouterr().err


def test_a_file_without_vocabulary(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    none = ["--override-kv", "tokenizer.ggml.model=str:none"]
    assert cli.main(["-dev", "ref", "-m", str(tiny_model(tmp_path)), *none, "-p", "A"]) == 1
    assert (
        "no vocabulary, so it cannot tokenize text; use a file that has one"
        in capsys.readouterr().err
    )


def test_flags_instead_of_names(capsys: pytest.CaptureFixture[str]) -> None:
    """What the library calls by its name in Python, a command calls by the flag."""
    for argv, says in (
        (
            ["-ctv", "q4_0", "-fa", "off"],
            "error: -ctv q4_0 needs flash attention; use -ctv f16, or -fa",
        ),
        (["--rope-scale", "2", "--rope-freq-scale", "2"], "--rope-scale and --rope-freq-scale are"),
        (["--spec-type", "draft-simple"], "needs a smaller model; pass it as -md\n"),
        (["-c", "9" * 12], "free; use a smaller -c, n_seq_max"),
        (["-mg", "3"], "error: -mg must be from 0 to 0, one of: ref; got 3"),
    ):
        assert cli.main([*QUICK, *argv]) == 1
        assert says in capsys.readouterr().err
    says = told(capsys, "-c", "1025")
    assert (
        "warning: -c 1025 per sequence exceeds the model's training context of 1024 tokens" in says
    )


def test_names_that_are_no_options() -> None:
    flags = {"n_ctx": "-c", "type_k": "-ctk"}
    for text in ("a/n_ctx.gguf", "qwen.n_ctx", "'n_ctx'", "n_ctxs", "my_n_ctx", "n_ctx_train"):
        assert in_flags(text, flags) == text
    assert in_flags("n_ctx=3, type_k = f16; n_ctx (-c), n_ctx.", flags) == (
        "-c 3, -ctk f16; -c, -c."
    )


def test_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    says = told(capsys, "--check", "ref")
    found = re.search(r"^check: (\d+) nodes match ref$", says, re.MULTILINE)
    assert found and int(found[1]) > 100
    assert "check" not in told(capsys)
    assert debug.main(["-dev", "ref", "-p", "A", "--check", "ref", "--tensor-filter", "z"]) == 0
    assert "check: " in capsys.readouterr().err
