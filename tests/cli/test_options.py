"""Options: one declaration gives the flag, the variable, the default and the help."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import pytest

from llama_py.sampler import SamplingParams
from llama_py_tools.bench import flash_attns, int_ranges, pair
from llama_py_tools.options import (
    ContextOptions,
    DeviceOptions,
    add,
    collect,
    on_off_auto,
    option,
    token_list,
)


@dataclass(frozen=True)
class Options:
    n: int = option(3, "-n --number", "a number")
    texts: tuple[str, ...] = option((), "-x --text", "texts", parse=str, repeat=True)
    ids: tuple[int, ...] = option((1,), "--ids", "ids", parse=token_list, extend=True)
    on: bool = option(True, "--on", "a switch", off="-no --off")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUMBER", "TEXT", "IDS", "ON", "CTX_SIZE", "BATCH", "TOP_K"):
        monkeypatch.delenv(f"LLAMA_ARG_{name}", raising=False)


def parse(kind: Any, *argv: str) -> Any:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add(parser, kind, "options")
    return collect(kind, parser.parse_args(argv))


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


def test_the_environment_gives_way_to_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NUMBER", "7"), ("TEXT", "env"), ("IDS", "8,9"), ("ON", "off")):
        monkeypatch.setenv(f"LLAMA_ARG_{name}", value)
    assert parse(Options) == Options(7, ("env",), (8, 9), False)
    flags = ("-n", "1", "-x", "flag", "--ids", "2", "--on")
    assert parse(Options, *flags) == Options(1, ("flag",), (2,), True)


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
    found = parse(ContextOptions, "-ub", "10", "-fa", "1")
    assert found == ContextOptions(n_ctx=100, n_batch=20, n_ubatch=10, flash_attn="on")
    assert parse(SamplingParams).top_k == 5
    assert not parse(DeviceOptions, "-nr").repack


def test_logit_biases_are_a_mapping() -> None:
    found = parse(SamplingParams, "-l", "5+1.5", "-l", "6-inf")
    assert found.logit_bias == {5: 1.5, 6: float("-inf")}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--top-p", "3"], "must be in [0, 1], got 3"),
        (["--temp", "warm"], "expected a number, got 'warm'"),
        (["-s", "1.5"], "expected an integer, got '1.5'"),
        (["-l", "5"], "logit bias must look like"),
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
    assert flash_attns("on,0,auto") == ("on", "off", "auto")


@pytest.mark.parametrize(
    ("parse", "text"),
    [(int_ranges, "1-9*1"), (int_ranges, "0-4*2"), (int_ranges, "1-4+0"), (int_ranges, "x"),
     (int_ranges, ""), (pair, "5"), (on_off_auto, "maybe"), (token_list, "1,,2")],
)  # fmt: skip
def test_wrong_texts(parse: Any, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_device_options() -> None:
    assert parse(DeviceOptions) == DeviceOptions()
    found = parse(
        DeviceOptions, "-dev", "ref,cpu", "-ngl", "all", "-ot", "exps=cpu,attn_q=ref", "-ot",
        "a=b=cpu", "-ncmoe", "3", "-ts", "3,1",
    )  # fmt: skip
    assert found.n_gpu_layers == -1
    assert found.override_tensor == (("exps", "cpu"), ("attn_q", "ref"), ("a=b", "cpu"))
    assert (found.n_cpu_moe, found.tensor_split) == (3, (3.0, 1.0))
    assert not parse(ContextOptions, "--no-kv-offload").kv_offload


@pytest.mark.parametrize(
    ("flags", "says"),
    [(["-ot", "exps"], "expected REGEX=DEVICE"), (["-ts", "1,x"], "expected shares like 3,1"),
     (["-ngl", "many"], "'many'")],
)  # fmt: skip
def test_wrong_device_options(
    flags: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in usage_error(capsys, DeviceOptions, *flags)
