"""Options: one declaration gives the flag, the variable, the default and the help."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

import llama_py
from llama_py.params import ContextParams, ModelParams, SamplingParams
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py.params.texts import on_off_auto, text_tuple
from llama_py_tools.bench.params import BenchParams, int_ranges, pair
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import token_list


class Options(Params):
    where: str = option("here", "where", "a place", nargs="?", choices=("here", "there"))
    n: int = option(3, "-n --number", "a number, 100%")
    texts: tuple[str, ...] = option((), "-x --text", "texts", parse=text_tuple, many=True)
    ids: tuple[int, ...] = option((1,), "--ids", "ids", parse=token_list, many=True)
    on: bool = option(True, "--on", "a switch", off="-no --off")
    some: int | None = option(None, "--some", "without a variable", check=integers(2), env="")
    python: int = option(0, "", "without a flag")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBER", "TEXT", "IDS", "ON", "CTX_SIZE", "BATCH", "TOP_K"):
        monkeypatch.delenv(f"LLAMA_ARG_{name}", raising=False)


def parse(kind: Any, *argv: str) -> Any:
    parser = OptionParser("test")
    parser.add(kind)
    return read(parser.parse_args(argv), kind)


def usage_error(capsys: pytest.CaptureFixture[str], kind: Any, *argv: str) -> str:
    with pytest.raises(SystemExit) as caught:
        parse(kind, *argv)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_defaults() -> None:
    assert parse(Options) == Options()
    assert parse(SamplingParams) == SamplingParams()


def test_flags() -> None:
    found = parse(Options, "-n", "-5", "-x", "a", "--text", "b", "--ids", "4,5", "--ids", "6")
    assert found == Options(n=-5, texts=("a", "b"), ids=(4, 5, 6))
    assert not parse(Options, "-no").on
    assert parse(Options, "--off", "--on").on
    assert parse(Options, "there", "--some", "2") == Options(where="there", some=2)


def test_the_environment_gives_way_to_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NUMBER", "7"), ("TEXT", "env"), ("IDS", "8,9"), ("ON", "off")):
        monkeypatch.setenv(f"LLAMA_ARG_{name}", value)
    assert parse(Options) == Options(n=7, texts=("env",), ids=(8, 9), on=False)
    flags = ("-n", "1", "-x", "flag", "--ids", "2", "--on")
    assert parse(Options, *flags) == Options(n=1, texts=("flag",), ids=(2,))


@pytest.mark.parametrize(("name", "value"), [("NUMBER", "x"), ("IDS", "1,x"), ("ON", "maybe")])
def test_a_wrong_variable_is_a_usage_error(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"LLAMA_ARG_{name}", value)
    assert value in usage_error(capsys, Options)


def test_names_are_llama_cpps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "100")
    monkeypatch.setenv("LLAMA_ARG_BATCH", "20")
    monkeypatch.setenv("LLAMA_ARG_TOP_K", "5")
    found = parse(ContextParams, "-ub", "10", "-fa", "1")
    assert found == ContextParams(n_ctx=100, n_batch=20, n_ubatch=10, flash_attn="on")
    assert parse(ContextParams, "-c", "0", "-t", "0") == ContextParams(n_batch=20)
    assert parse(SamplingParams).top_k == 5
    assert not parse(ContextParams, "-nkvo").offload_kqv


def test_logit_biases_are_a_mapping() -> None:
    found = parse(SamplingParams, "-l", "5+1.5", "-l", "6-inf")
    assert found.logit_bias == {5: 1.5, 6: float("-inf")}
    texts = (" Hello+1", "C++1", '"42"-2e-3', "a-1-.5", "+-1", '""+1', "7+1e-3")
    found = parse(SamplingParams, *(word for text in texts for word in ("-l", text)))
    assert found.logit_bias == {
        " Hello": 1,
        "C+": 1,
        "42": -2e-3,
        "a-1": -0.5,
        "+": -1,
        '""': 1,
        7: 1e-3,
    }


def test_samplers_and_breakers() -> None:
    assert parse(SamplingParams, "--samplers", "top-k;temp").chain == ("top_k", "temperature")
    assert parse(SamplingParams, "--sampling-seq", "ta").chain == ("temperature", "adaptive_p")
    given = ("--dry-sequence-breaker", "a", "--dry-sequence-breaker", "b")
    assert parse(SamplingParams, *given).dry_sequence_breakers == ("a", "b")
    assert parse(SamplingParams, given[0], "none").dry_sequence_breakers == ()
    assert parse(SamplingParams).dry_sequence_breakers == ("\n", ":", '"', "*")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--top-p", "3"], "--top-p: must be a number in [0, 1], got 3"),
        (["--temp", "warm"], "expected a number, got 'warm'"),
        (["-s", "1.5"], "expected an integer, got '1.5'"),
        (
            ["--samplers", "top_k;tops"],
            "--samplers: must be a list of penalties, dry, top_n_sigma,",
        ),
        (["--sampler-seq", "kz"], "must be a string of the characters edskypmxtia, got kz"),
        (["--mirostat", "3"], "--mirostat: must be an integer in [0, 2], got 3"),
        (["-l", "5"], "expected a logit bias such as 15043+1"),
    ],
)
def test_wrong_values_are_told(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in usage_error(capsys, SamplingParams, *flags)


def test_ranges() -> None:
    assert int_ranges("1,2") == (1, 2)
    assert int_ranges("1-4,9") == (1, 2, 3, 4, 9)
    assert int_ranges("1-9+4") == (1, 5, 9)
    assert int_ranges("64-512*2") == (64, 128, 256, 512)
    assert int_ranges("-1") == (-1,)
    assert pair("512,128") == ((512, 128),)
    assert parse(BenchParams, "-fa", "on,0", "-fa", "auto").flash_attn == ("on", "off", "auto")
    assert parse(BenchParams, "-dev", "ref/cpu,cpu").device == ("ref/cpu", "cpu")


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (int_ranges, "1-9*1"),
        (int_ranges, "0-4*2"),
        (int_ranges, "1-4+0"),
        (int_ranges, "x"),
        (int_ranges, ""),
        (pair, "5"),
        (on_off_auto, "maybe"),
        (token_list, "1,,2"),
    ],
)
def test_wrong_texts(parse: Any, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_device_options() -> None:
    assert parse(ModelParams) == ModelParams()
    found = parse(
        ModelParams,
        "-dev",
        "Ref,cpu",
        "-ngl",
        "all",
        "-ot",
        "exps=cpu,attn_q=ref",
        "-ot",
        "a=b=cpu",
        "-ncmoe",
        "3",
        "-ts",
        "3,1",
    )
    assert (found.device, found.n_gpu_layers) == (("ref", "cpu"), -2)
    assert found.tensor_overrides == {"exps": "cpu", "attn_q": "ref", "a=b": "cpu"}
    assert (found.n_cpu_moe, found.tensor_split) == (3, (3.0, 1.0))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-ot", "exps"], "expected REGEX=DEVICE"),
        (["-ts", "1,x"], "expected shares such as 3,1"),
        (["-ngl", "many"], "'many'"),
    ],
)
def test_wrong_device_options(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in usage_error(capsys, ModelParams, *flags)


def test_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    parser = OptionParser("test")
    parser.add(Options, without=("texts", "ids"))
    shown = " ".join(parser.format_help().split())
    assert "options: here|there a place (default: here)" in shown
    assert "-n, --number N a number, 100% (default: 3) [LLAMA_ARG_NUMBER]" in shown
    assert "--on a switch (default: on) [LLAMA_ARG_ON] -no, --off disable --on" in shown
    assert shown.endswith("--some N without a variable")
    assert [f.name for _, f, _ in parser.added] == ["where", "n", "on", "some"]


def test_a_flag_is_a_whole_word(capsys: pytest.CaptureFixture[str]) -> None:
    """None is read as another with something glued to it, none as the beginning of another."""
    for argv in (
        ["-n5"],
        ["-nx"],
        ["-np", "2"],
        ["-non"],
        ["--num", "2"],
        ["-hf", "x"],
        ["--so=2"],
    ):
        assert f"unknown option {argv[0].partition('=')[0]}; " in usage_error(
            capsys, Options, *argv
        )
    assert "unknown option --nubmer; did you mean --number?" in usage_error(
        capsys, Options, "--nubmer", "2"
    )
    assert "did you mean --number?" in usage_error(capsys, Options, "-number", "2")
    assert "unknown option --zzz; --help all lists the options" in usage_error(
        capsys, Options, "--zzz"
    )


def test_the_word_behind_a_flag_is_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(Options, "-x", "-5 degrees", "--text", "--why", "-x", "-").texts == (
        "-5 degrees",
        "--why",
        "-",
    )
    assert parse(Options, "-x=a=b", "--text=", "--some=4") == Options(texts=("a=b", ""), some=4)
    assert parse(Options, "--", "here") == Options(where="here")
    assert "expected one argument" in usage_error(capsys, Options, "-x", "-n", "2")
    assert "expected one argument" in usage_error(capsys, Options, "-x")
    assert "explicit argument" in usage_error(capsys, Options, "--on=off")


def test_underscores_in_long_flags() -> None:
    assert parse(ContextParams, "--ctx_size", "77", "--ubatch_size=5").n_ctx == 77
    with pytest.raises(SystemExit):
        parse(Options, "__on")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(Options, "--version")
    assert ended.value.code == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"llama-py {llama_py.__version__}"
    assert f"numba {version('numba')}, " in second
