"""llama-py-graph placement and fit: what is told, and that the options which are printed work."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from ggml_cpu.experts import disk
from llama_py.params.texts import byte_count
from llama_py_tools.bench import roofline
from llama_py_tools.generate.cli import main as cli
from llama_py_tools.graph import main
from llama_py_tools.graph.plan import columns, mib, ranges
from tests.support import large_models
from tests.support.commands import DEMO

SMALL = {
    "block_count": 10,
    "embedding_length": 512,
    "attention.head_count": 8,
    "expert_count": 16,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "expert_feed_forward_length": 512,
    "context_length": 8192,
}


@pytest.mark.parametrize("split", [[], ["--memory", "1G", "-ngl", "99"], ["-dev", "cpu,cpu"]])
def test_a_tied_weight_is_listed_where_it_has_memory(
    split: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One memory for table and output on one device, one each on two."""
    found = data(capsys, "placement", "-m", str(DEMO), *split, "-c", "64")
    places = [w["device"] for w in found["weights"] if w["name"] == "token_embd.weight"]
    assert len(places) == len(set(places)) == (2 if split else 1)
    for d in found["devices"]:
        weights = sum(w["bytes"] for w in found["weights"] if w["device"] == d["name"])
        assert weights == d["model"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("placement") / "moe.gguf"
    large_models.write(path, "qwen3moe", "moe", SMALL, n_vocab=1024)
    return str(path)


def data(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main([*args, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_tensor_has_a_place_and_a_reason(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = data(
        capsys,
        "placement",
        "-m",
        model,
        "--memory",
        "1G,1G",
        "-ts",
        "1,1",
        "-ngl",
        "9",
        "-ot",
        "ffn_up_exps=cpu",
        "-ncmoe",
        "5",
        "-c",
        "512",
    )
    assert [d["name"] for d in found["devices"]] == ["opencl0", "opencl1", "cpu"]
    assert found["layers"] == ["cpu"] * 2 + ["opencl0"] * 5 + ["opencl1"] * 4
    why = {w["name"]: (w["device"], w["why"]) for w in found["weights"]}
    assert why["blk.1.attn_q.weight"] == ("cpu", "-ngl leaves layers 0-1 on the host")
    assert why["blk.6.attn_q.weight"] == ("opencl0", "layers 2-6 are on this device (-ngl, -ts)")
    assert why["blk.9.ffn_up_exps.weight"] == ("cpu", "-ot ffn_up_exps")
    assert why["blk.4.ffn_down_exps.weight"] == ("cpu", "-ncmoe")
    assert why["blk.5.ffn_down_exps.weight"][0] == "opencl0"
    assert why["output.weight"] == ("opencl1", "with the output")
    assert why["token_embd.weight"][0] == "cpu" and "few rows" in why["token_embd.weight"][1]
    for d in found["devices"]:
        weights = sum(w["bytes"] for w in found["weights"] if w["device"] == d["name"])
        caches = sum(c["bytes"] for c in found["caches"] if c["device"] == d["name"])
        assert (weights, caches) == (d["model"], d["context"])


def test_nodes_tell_why_they_are_where_they_are(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = data(capsys, "placement", "-m", model, "--memory", "1G", "-nr", "-cmoe", "-c", "512")
    batch, token = found["graphs"]
    assert (batch["n_tokens"], token["n_tokens"]) == (512, 1)
    nodes = [{n["name"]: n for n in g["nodes"]} for g in (batch, token)]
    many, one = (n["ffn_moe_up-3"] for n in nodes)
    assert (many["device"], many["cause"], many["why_not"]) == ("opencl0", "offloaded", {})
    assert many["why"] == "blk.3.ffn_up_exps.weight is copied from cpu for a batch of 512 rows"
    assert (one["device"], one["cause"]) == ("cpu", "weight")
    assert one["why_not"] == {
        "opencl0": "blk.3.ffn_up_exps.weight is on cpu (-cmoe), which is copied for batches of at"
        " least 32 rows, got 1"
    }
    for g in (batch, token):
        assert g["n_splits"] == len(g["splits"])
        assert g["copied_bytes"] == sum(c["bytes"] for s in g["splits"] for c in s["copied"])
        assert sum(s["n_nodes"] for s in g["splits"]) == len(g["nodes"])
        assert all(g["splits"][n["split"]]["device"] == n["device"] for n in g["nodes"])
    assert batch["copied_bytes"] > 90e6 > 1e6 > token["copied_bytes"]  # experts are copied


def test_an_op_that_a_device_cannot_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Weights that the CPU has laid out anew are for it alone, and the rule is told."""
    args = ["--memory", "1G", "-cmoe", "-c", "512", "--node", "ffn_moe_up-1"]
    assert main(["placement", *args]) == 0
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("    ffn_moe_up-1")]
    assert len(lines) == 2 and all("MUL_MAT_ID" in x and "has layout " in x for x in lines)
    assert all("not opencl0: cannot: blk.1.ffn_up_exps.weight" in x for x in lines)


def test_layers_that_are_alike_are_told_once(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["placement", "-m", model, "--memory", "1G", "-ncmoe", "6", "-c", "512"]) == 0
    out = capsys.readouterr().out
    assert out.count("    blk.N.attn_q.weight ") == 1 and "  layers 0-5\n" in out
    assert re.search(r"blk\.N\.ffn_up_exps\.weight +N = 6-9 +q6_K", out)
    assert "opencl0: not on this machine" in out
    assert re.search(r"^  opencl0 +[\d.]+ MiB +[\d.]+ MiB +[\d.]+ MiB +[\d.]+ MiB +1024", out, re.M)
    assert len(out.splitlines()) < 120


def test_one_device_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["placement", "-c", "512"]) == 0
    out = capsys.readouterr().out
    assert "the only device" in out and "1 split, 0.00 MiB copied" in out


def fitted(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert main(["fit", *args, "--args"]) == 0
    return shlex.split(capsys.readouterr().out)


@pytest.mark.parametrize(
    "memory", [("--memory", "90M"), ("--memory", "80M,60M"), ("--memory", "30M", "-ctk", "q8_0")]
)
def test_the_options_give_what_was_told(
    model: str, memory: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["-m", model, *memory, "--host-memory", "1G", "-fitt", "8", "-ub", "64"]
    told = data(capsys, "fit", *asked, "-c", "1024")
    words = fitted(capsys, *asked, "-c", "1024")
    assert told["fits"] and told["args"] == words
    found = data(capsys, "placement", "-m", model, *words)
    uses = "model", "context", "compute"
    assert [[d[u] for u in uses] for d in found["devices"]] == [
        [d[u] for u in uses] for d in told["devices"]
    ]
    for d in told["devices"]:
        assert d["left"] == d["free"] - sum(d[u] for u in uses) >= 8 << 20


def test_gpus_without_layers_are_not_named(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["-m", model, "--host-memory", "1G", "-fitt", "8", "-ub", "64", "-c", "1024"]
    for memory, device in (("1G,1G", "opencl0,cpu"), ("1G,2G,1G", "opencl1,cpu")):
        words = fitted(capsys, *asked, "--memory", memory)
        assert words == ["-dev", device, "-ngl", "11", "-c", "1024", *words[6:]]
        assert "-ts" not in words
    assert main(["fit", *asked, "--memory", "1G,1G"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  opencl1 +- +- +0\.00 MiB +0\.00 MiB +0\.00 MiB ", out, re.M)
    assert "device=('opencl0', 'cpu'), n_gpu_layers=11)" in out
    words = fitted(capsys, *asked, "--memory", "90M,20M,90M")
    assert words[:4] == ["-dev", "opencl0,opencl2,cpu", "-ngl", "11"] and "-ts" in words


def test_the_options_run(capsys: pytest.CaptureFixture[str]) -> None:
    """As they are printed, on a device that has its memory for itself."""
    pytest.importorskip("pyopencl")
    words = fitted(
        capsys, "-dev", "opencl0,cpu", "--memory", "5M", "-fitt", "512K", "-c", "512", "-ub", "32"
    )
    assert "-ncmoe" in words or "-ot" in words
    assert cli(["-m", str(DEMO), *words, "-p", "ROMEO:", "-n", "3", "-no-cnv"]) == 0
    assert capsys.readouterr().out.startswith("ROMEO:")


def test_the_text(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--memory", "90M", "--host-memory", "1G", "-fitt", "8")
    assert main(["fit", "-m", model, *size, "-c", "1024"]) == 0
    out = capsys.readouterr().out
    (command,) = (x for x in out.splitlines() if x.startswith("llama-py-cli "))
    assert f"-m {model} -dev opencl0,cpu -ngl 11 -ncmoe " in command and "-c 1024" in command
    assert "n_gpu_layers=11" in out.splitlines()[-1] and "n_cpu_moe=" in out.splitlines()[-1]
    assert re.search(r"^  opencl0 +0-9, output +\d-9 ", out, re.M)
    assert main(["fit", "-m", model, *size, "-np", "2"]) == 0
    out = capsys.readouterr().out
    assert "llama-py-cli" not in out and "n_seq_max=2" in out and "2 sequences of" in out


def test_speed(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of a token are those of its experts, and of what every token needs."""
    monkeypatch.setattr(roofline, "limits", lambda *_: roofline.Roofline(1e10, 1e9))
    monkeypatch.setattr(disk, "MEASURE_SECONDS", 0.01)
    size = ("-m", model, "-dev", "cpu", "-c", "512", "--speed")
    whole = data(capsys, "placement", *size)["speed"]
    assert whole["disk"] == 0 and whole["tokens_per_second"] == 1e10 / whole["memory"]
    part = data(capsys, "fit", *size, "--host-memory", "50M", "-fitt", "8", "-ub", "64")["speed"]
    experts = sum(
        w["bytes"] for w in data(capsys, "placement", *size)["weights"] if "exps" in w["name"]
    )
    assert 0.1 < part["cached"] < 0.9 and part["disk_rate"] > 0
    assert part["disk"] == pytest.approx((1 - part["cached"]) * experts / 16 * 3, rel=0.01)
    seconds = part["memory"] / 1e10 + part["disk"] / part["disk_rate"]
    assert part["tokens_per_second"] == pytest.approx(1 / seconds)
    assert main(["placement", *size]) == 0
    assert re.search(
        r"^speed: a token reads [\d.]+ MiB of memory \(10.0 GB/s\): [\d.]+ tokens/s$",
        capsys.readouterr().out,
        re.M,
    )
    assert main(["placement", *size, "--memory", "1G", "-dev", "opencl0,cpu"]) == 1
    assert "--speed plans for the CPU alone" in capsys.readouterr().err


def test_nothing_fits(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--memory", "20M", "--host-memory", "40M", "-ub", "64"]
    assert main(["fit", "-m", model, *size, "-fitt", "8"]) == 1
    out, err = capsys.readouterr()
    assert re.search(
        r"^error: no setting fits; the nearest is -ngl \d+ -cmoe -c 4096: [\d.]+ MiB on cpu are "
        "missing",
        err,
        re.M,
    )
    assert re.search(r"^  cpu .* -[\d.]+ MiB$", out, re.M)
    assert main(["fit", "-m", model, *size, "--args"]) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (
            ["--memory", "1G,1G", "-dev", "opencl0,cpu"],
            "--memory must have one size per device (opencl0), got 2",
        ),
        (["--memory", "1G", "-dev", "cpu"], "(no device except the host), got 1"),
        (["-dev", "vulkan0,cpu"], "unknown backend 'vulkan'"),
    ],
)
def test_devices_that_make_no_sense(
    args: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", *args]) == 1
    assert says in capsys.readouterr().err


def test_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert [*map(byte_count, ("24G", "1.5G", "512", "512M", "8gib", "3k"))] == [
        24 << 30,
        3 << 29,
        512 << 20,
        512 << 20,
        8 << 30,
        3 << 10,
    ]
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--memory", "24X"])
    assert "expected a size such as 24G or 512M, got '24X'" in capsys.readouterr().err
    assert [mib(n) for n in (0, 8, 2000, 5 << 20, 24 << 30)] == [
        "0.00 MiB",
        "8 B",
        "1.95 KiB",
        "5.00 MiB",
        "24.00 GiB",
    ]
    assert ranges([5, 1, 2, 3, 9]) == "1-3,5,9" and ranges([]) == ""
    assert columns([["a", "b"], ["ccc", "10"]]) == ["a     b", "ccc  10"]
