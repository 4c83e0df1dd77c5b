"""llama-py-graph diff: values of two runs, and the node that made the difference."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ggml_py.inspection.judge import NONE
from ggml_py.patterns.norm import RMS_NORM_MUL
from ggml_py.types import BY_NAME, GGMLType
from ggml_ref.quants import dequantizer, quantizer
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.write import content
from llama_py_tools.graph import main
from llama_py_tools.graph.diff.found import compare_runs
from llama_py_tools.graph.diff.numbers import Stats, rounding
from llama_py_tools.graph.diff.report import lines
from llama_py_tools.graph.diff.run import RecordedRun
from llama_py_tools.graph.dumps import read_records
from llama_py_tools.measure import debug
from tests.support.commands import DEMO, tiny_model
from tests.support.devices import WrongDevice
from tests.support.faults import install, plant, plant_in_step

PROMPT = ("-p", "ROMEO:\nBut soft, what light")
Out = pytest.CaptureFixture[str]


def diff(out: Out, *args: str) -> tuple[int, str]:
    """Exit code and report."""
    code = main(["diff", *args])
    shown = out.readouterr()
    assert "error" not in shown.err, shown.err
    return code, shown.out


def first(report: str) -> str:
    (name,) = re.findall(r"^first wrong node: (.*?)  \(", report, re.M)
    return str(name)


@pytest.mark.parametrize("against", ["cpu", "plain"])
def test_two_equal_runs(against: str, capsys: Out) -> None:
    code, report = diff(capsys, *PROMPT, "--decode", "1", "--against", against)
    assert code == 0
    assert report.startswith("equal: 674 nodes\n")
    assert "no larger differences than rounding explains" in report
    assert "same most likely token 100.0%" in report


def test_one_run_beside_itself_is_equal_bit_for_bit(capsys: Out) -> None:
    code, report = diff(capsys, *PROMPT, "--no-fuse", "--against", "cpu")
    assert code == 0
    assert report.endswith(" nodes of cpu and cpu again compared: equal bit for bit\n")


def test_a_wrong_kernel_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    """GELU instead of SiLU in one layer: all that comes after is off, one node is wrong."""
    plant(monkeypatch, "SWIGLU", "geglu_f32", "ffn_swiglu-1")
    code, report = diff(capsys, *PROMPT, "--no-fuse", "--against", "ref")
    assert code == 1
    assert "1 node is wrong, given the same inputs; " in report
    assert first(report) == "ffn_swiglu-1"
    assert re.search(r"^  SWIGLU f32 \[\d+, 8\]$", report, re.M)
    said = r"ref computes ffn_swiglu-1 from the same inputs: cpu differs by (\S+) from it, ref by "
    errors = re.findall(rf"{said}(\S+): cpu", report)[0]
    assert float(errors[0]) > 1e-3 > 1e-6 > float(errors[1])
    assert re.search(r"^    ffn_gate-1 +f32 \[\d+, 8\] +NMSE \d", report, re.M)
    after = re.findall(r"^layer 2 +\d+ +(\S+) ", report, re.M)[0]
    assert float(after) > 1e-4


def test_a_wrong_step_is_told_from_a_wrong_node(
    monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    """Only what computes several nodes at once is wrong; alone they are right."""
    plant_in_step(monkeypatch, RMS_NORM_MUL, "attn_norm-2")
    code, report = diff(capsys, *PROMPT, "--against", "ref")
    assert (code, first(report)) == (1, "attn_norm-2")
    assert "  one step computes norm-2, attn_norm-2\n" in report
    assert "computed alone, cpu matches ref: the fused step is wrong" in report
    assert diff(capsys, *PROMPT, "--against", "ref", "--no-fuse")[0] == 0


def test_the_device_that_is_compared_with_may_be_the_wrong_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Out
) -> None:
    install(monkeypatch, "wrong", WrongDevice("wrong", "ROPE"))
    model = ("-m", str(tiny_model(tmp_path)), "--tokens", "1,2,3")
    code, report = diff(capsys, *model, "--against", "wrong")
    assert (code, first(report)) == (1, "Qcur-0")
    said = "ref computes Qcur-0 from the same inputs: cpu differs by"
    assert re.search(rf"{said} \S+ from it, wrong by \S+: wrong wrong", report)
    assert re.search(r"largest error 1 at \[\d+, \d+, 2\]: ", report)
    assert re.search(r"^    inp_pos +i32 \[3\] +equal$", report, re.M)


@pytest.mark.parametrize("against", ["-ub 3", "-fa off", "--form delta_net=chunked"])
def test_forms_agree(against: str, capsys: Out) -> None:
    """Other graphs: nodes of the same name are compared, what came in parts is put together. Gates
    that are part of a step have no values."""
    code, report = diff(capsys, *PROMPT, "--against", against)
    assert code == 0
    assert report.startswith("node ")
    assert int(re.findall(r"^values: (\d+) nodes", report, re.M)[0]) > 112
    assert float(re.findall(r"^after layers +\d+ +(\S+)", report, re.M)[0]) < 1e-4


def test_a_form_that_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Out) -> None:
    install(monkeypatch, "wrong", WrongDevice("wrong", "SOLVE_TRI"))
    model = ("-m", str(tiny_model(tmp_path, "qwen35moe-moe")), "--tokens", "1,2,3,4,5")
    run = (*model, "-dev", "wrong", "--form", "delta_net=chunked")
    code, report = diff(capsys, *run, "--against", "--form delta_net=fused")
    assert code == 1
    assert "differ too much" in report
    assert re.search(r"^wrong: \S+: SOLVE_TRI\(.* differs from ref", report, re.M)
    assert "--form delta_net=fused: every node of the prompt matches ref" in report


def test_nodes_of_a_file_move_no_cursor(capsys: Out, tmp_path: Path) -> None:
    """Names in a file are whatever its writer liked."""
    node = {"dec": 0, "name": "norm-0", "op": "RMS_NORM", "type": "f32", "ne": [4], "src": []}
    paths = [tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"]
    for path, name in zip(paths, ("norm-0", "\x1b[2Jnorm-0"), strict=True):
        path.write_text(json.dumps(node | {"name": name}) + "\n")
    code, report = diff(capsys, *map(str, paths))
    assert code == 1 and "\x1b" not in report and r"\x1b[2Jnorm-0 = RMS_NORM" in report


def test_another_graph_ends_it(capsys: Out, tmp_path: Path) -> None:
    """Graphs of devices and files are to be the same: the first difference is told."""
    other = tiny_model(tmp_path, "qwen3-dense")
    model = ("-m", str(tiny_model(tmp_path)), "--tokens", "1,2,3")
    code, report = diff(capsys, *model, "--against", str(other))
    assert code == 1
    assert re.match(r"node \d+ '.*': \w+: .* != .* \(graph 0\)\n  first   ", report)
    assert "values: " not in report
    code, report = diff(capsys, *model, "--against", str(other), "--names")
    assert code == 1
    assert "differ too much" in report
    code, report = diff(capsys, *model, "--against", "-fa off", "--graphs-only")
    assert code == 1
    told, *nodes = report.splitlines()
    assert re.fullmatch(r"node \d+ 'Vcur-0 \(view\)': name: .* \(graph 0\)", told)
    assert [line.split(" = ")[0] for line in nodes] == [
        "  first   Vcur-0 (view)",
        "  second  Vcur-0 (reshaped)",
    ]


def requantized(info: TensorInfo, type: GGMLType) -> TensorInfo:
    read, write = dequantizer(info.type), quantizer(type)
    assert read is not None and write is not None
    values = read(info.data.reshape(-1, info.type.type_size))
    data = np.frombuffer(write(values.reshape(-1)), np.uint8)
    return replace(info, type=type, nbytes=data.size, data=data)


@pytest.fixture(scope="module")
def coarse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo model with the down projections of its shared experts in 4 bits."""
    file, type = GGUFFile.open(DEMO), BY_NAME["q4_0"]
    tensors = []
    for info in file.tensors.values():
        if "ffn_down_shexp" in info.name:
            info = requantized(info, type)
        tensors.append(info)
    path = tmp_path_factory.mktemp("coarse") / "coarse.gguf"
    path.write_bytes(b"".join(map(bytes, content(file.metadata.stored_values, tensors))))
    return str(path)


def test_an_outlier_is_not_wrong(tmp_path: Path, capsys: Out) -> None:
    """One channel is 200 times another, so that activations are rounded coarsely."""
    file, tensors = GGUFFile.open(DEMO), []
    for info in file.tensors.values():
        if info.name == "blk.0.attn_norm.weight":
            values = info.data.view(np.float32).copy()
            values[7] *= 100
            info = replace(info, data=values.view(np.uint8))
        if info.name == "blk.0.attn_qkv.weight":
            info = requantized(info, BY_NAME["q4_K"])
        tensors.append(info)
    path = tmp_path / "outlier.gguf"
    path.write_bytes(b"".join(map(bytes, content(file.metadata.stored_values, tensors))))
    code, report = diff(capsys, "-m", str(path), *PROMPT, "--against", "ref")
    assert "no larger differences than rounding explains" in report
    assert code == 0


def test_where_a_quantization_hurts(coarse: str, capsys: Out) -> None:
    code, report = diff(capsys, *PROMPT, "-m", coarse, "--against", str(DEMO))
    assert code == 1
    assert "coarse.gguf and demo.gguf compared: 4 differ, given the same inputs\n" in report
    assert "first wrong node" not in report
    kinds = re.findall(r"^  (\S+) +q8_0 -> q4_0 +(\d+)  mean (\S+)", report, re.M)
    assert [(kind, n) for kind, n, _ in kinds] == [("ffn_down_shexp.weight", "4")]
    assert 1e-3 < float(kinds[0][2]) < 2e-2
    hurt = re.findall(r"^  blk\.(\d)\.ffn_down_shexp\.weight  +q8_0 -> q4_0 +(\S+)", report, re.M)
    assert sorted(i for i, _ in hurt) == ["0", "1", "2", "3"]
    errors = [float(error) for _, error in hurt]
    assert errors == sorted(errors, reverse=True)
    kld = float(re.findall(r"KL divergence mean (\S+),", report)[0])
    assert 1e-6 < kld < 0.1
    loose = diff(capsys, *PROMPT, "-m", coarse, "--against", str(DEMO), "--threshold", "0.05")
    assert loose[0] == 0


def saved(folder: Path) -> str:
    assert debug.main([*PROMPT, "--save-tensors", str(folder)]) == 0
    return str(folder)


def test_folders_of_values(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Out) -> None:
    a, b = saved(tmp_path / "a"), saved(tmp_path / "b")
    code, report = diff(capsys, a, b)
    assert code == 0
    assert report.endswith("compared: equal bit for bit\n")
    plant(monkeypatch, "SWIGLU", "geglu_f32", "ffn_swiglu-1")
    code, report = diff(capsys, saved(tmp_path / "c"), a)
    assert (code, first(report)) == (1, "ffn_swiglu-1")
    assert re.search(r"^other nodes that differ too much\n  ffn_shexp-1 ", report, re.M)
    (tmp_path / "b" / "nodes.jsonl").unlink()
    assert main(["diff", a, b]) == 1
    assert "create it with llama-py-debug --save-tensors" in capsys.readouterr().err


def test_overlay_and_plot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Out) -> None:
    plant(monkeypatch, "SWIGLU", "geglu_f32", "ffn_swiglu-1")
    overlay, picture = tmp_path / "errors.jsonl", tmp_path / "errors.svg"
    args = ["--against", "plain", "--overlay", str(overlay), "--no-fuse"]
    # the other run has the fault, too: it is the same kernel
    assert diff(capsys, *PROMPT, *args)[0] == 0
    args[1] = "ref"
    assert diff(capsys, *PROMPT, *args)[0] == 1
    records = read_records(str(overlay))
    errors = {r["name"]: r["overlay"] for r in records}
    assert errors["ffn_swiglu-1"]["own error"] > 1e-3
    assert errors["ffn_shexp-1"]["own error"] < 1e-3 < errors["ffn_shexp-1"]["error"]
    assert {"dec", "i", "op", "ne"} <= records[0].keys()
    json.dumps(records, allow_nan=False)
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install '.[plot]'")
    diff(capsys, *PROMPT, *args, "--plot", str(picture))
    assert "ffn_swiglu-1" in picture.read_text()
    assert main(["diff", *PROMPT, *args, "--plot", "x.what"]) == 1
    assert "--plot x.what: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["a"], "takes two files"),
        (["a", "b", "--against", "llama.cpp"], "takes two files"),
        (["a", "--against", "ref"], "a dump can be compared only with another dump"),
        (["--against", "nothing"], "--against must be a file, a device (cpu, "),
        (["--against", "-x"], "unknown option -x"),
        (["--against", "ref", "--threshold", "x"], "argument --threshold: expected a number"),
    ],
)
def test_usage(args: list[str], says: str, capsys: Out) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["diff", *args])
    assert caught.value.code == 2
    assert says in capsys.readouterr().err


def test_statistics_of_values() -> None:
    stats = Stats.from_values(np.array([1, 3, np.nan, -np.inf, np.inf], np.float32))
    assert (stats.low, stats.high, stats.mean, stats.n_nan, stats.n_inf) == (1, 3, 2, 1, 2)


def run_of(what: str, **values: float) -> RecordedRun:
    """Nodes of one number each."""
    run = RecordedRun(what, calls=[0])
    for i, (name, value) in enumerate(values.items()):
        source = [{"k": 0, "name": f"w{i}", "type": "q8_0", "ne": [32, 1, 1, 1]}]
        run.records.append(
            {
                "dec": 0,
                "i": i,
                "name": name,
                "op": "MUL_MAT",
                "type": "f32",
                "ne": [1, 1, 1, 1],
                "view_src": "",
                "src": source,
            }
        )
        run.values[0, i] = lambda x=value: np.full((1, 1, 1, 1), x, np.float32)  # type: ignore[misc]
    return run


def test_errors_that_grow_are_told_but_no_fault() -> None:
    """Each node is right for its inputs; the runs end far apart all the same."""
    found = compare_runs(
        run_of("ours", a=1.0005, b=1.002, c=1.3), run_of("theirs", a=1, b=1, c=1), None
    )
    assert [n.name for n in found.far_nodes] == ["c"], "as long as it is not known what nodes make"
    for node in found.nodes:
        node.made = NONE
    found.known = True
    report = list(lines(found, {}, 5))
    assert not found.far_nodes
    assert report[0].endswith("no larger differences than rounding explains")
    assert report[1].endswith("first exceed 1e-03 in c (before layers)")


def test_what_rounding_explains() -> None:
    def node(type: str, *sources: str) -> dict[str, object]:
        op = "MUL_MAT" if len(sources) > 1 else "CPY"
        return {"op": op, "type": type, "src": [{"type": s} for s in sources]}

    exact, coarse = rounding(node("f32", "f32")), rounding(node("f32", "q8_0", "f32"))
    assert exact < coarse == rounding(node("f32", "bf16", "f32"))
    assert rounding(node("f32", "f32"), [node("f32", "q4_K", "f32")]) == coarse
    assert rounding(node("f16", "f32")) == rounding(node("f32", "f32")), "copies are not rounded"
    assert rounding(node("i32", "f32")) == 0
