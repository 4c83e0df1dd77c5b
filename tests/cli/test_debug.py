"""llama-py-debug: node values in llama-eval-callback's format, and logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import llama_py
from ggml_py import ops
from ggml_py.backend.registry import device
from ggml_py.errors import AllocError
from ggml_py.graph import Graph
from ggml_py.plan.sched import Scheduler
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F32
from llama_py.params import ModelParams
from llama_py.weights import placement
from llama_py_tools.command.params import FileParams
from llama_py_tools.measure import debug
from llama_py_tools.measure.node_text import heading, read_values, value_lines
from llama_py_tools.models import session
from tests.support.adapters import matrices, pairs, write_adapter
from tests.support.commands import run, tiny_model
from tests.support.devices import TestDevice
from tests.support.gguf_writer import Tensor as GGUFTensor
from tests.support.gguf_writer import gguf, kv
from tests.support.live_models import made

TOKENS = "5,9,2"
N_NODES, N_VOCAB, N_EMBD = 68, 64, 64  # of the tiny model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model(tmp_path_factory.mktemp("debug")))


def expected_logits(model: str, n_decode: int) -> np.ndarray:
    """All rows of the prompt, then of the greedy tokens."""
    ctx = llama_py.load(model, "ref").context(256)
    rows = list(ctx.decode([5, 9, 2], logits="all"))
    for _ in range(n_decode):
        rows.append(ctx.decode([int(np.argmax(rows[-1]))])[0])
    return np.array(rows)


def test_headings() -> None:
    a, b = Tensor(F32, (4, 2), name="a"), Tensor(F32, (4,), name="b")
    product = ops.mul(a, b).set_name("attn_norm-0")
    assert heading(product) == (
        "common_debug_cb_eval:              attn_norm-0 = (f32)        MUL"
        "(a{4, 2, 1, 1}, b{4, 1, 1, 1}}) = {4, 2, 1, 1}"
    )
    assert heading(ops.silu(a).set_name("x")) == (
        "common_debug_cb_eval:                        x = (f32)       SILU"
        "(a{4, 2, 1, 1}, }) = {4, 2, 1, 1}"
    )


def test_values_are_cut_above_six() -> None:
    values = np.arange(7 * 2, dtype=np.float32).reshape(1, 1, 2, 7)
    assert list(value_lines(values)) == [
        "    [",
        "        [",
        "            [      0.0000,       1.0000,       2.0000,    ...,       4.0000,"
        "       5.0000,       6.0000  ],",
        "            [      7.0000,       8.0000,       9.0000,    ...,      11.0000,"
        "      12.0000,      13.0000  ],",
        "        ],",
        "    ]",
        "    sum = 91.000000",
    ]


def test_rows_and_planes_are_cut_too() -> None:
    lines = list(value_lines(np.ones((2, 8, 7, 1), np.float32)))
    assert lines.count("    sum = 112.000000") == 2
    assert lines.count("        ..., ") == 2
    assert lines.count("            ..., ") == 2 * 6
    assert lines.count("            [      1.0000  ],") == 2 * 6 * 6


def test_six_are_shown_whole_and_none_too() -> None:
    six = list(value_lines(np.full((1, 1, 1, 6), -np.inf, np.float32)))
    assert six[2] == "            [" + ", ".join(["        -inf"] * 6) + "  ],"
    nothing = np.zeros((1, 1, 0, 4), np.float32)
    assert list(value_lines(nothing)) == [
        "    [",
        "        [",
        "        ],",
        "    ]",
        "    sum = 0.000000",
    ]


def test_the_sum_is_added_up_in_order() -> None:
    values = np.array([2**24, *[1] * 15], np.float32).reshape(1, 1, 1, 16)
    assert list(value_lines(values))[-1] == "    sum = 16777216.000000"


def test_every_node_is_printed(model: str) -> None:
    done = run("llama-py-debug", "-dev", "ref", "-m", model, "--tokens", TOKENS, "--decode", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [x for x in done.stdout.splitlines() if x.startswith("common_debug_cb_eval:")]
    assert len(lines) == 2 * N_NODES
    assert lines[N_NODES - 1].split()[1] == "result_output"
    assert lines[N_NODES - 1].endswith(f"= {{{N_VOCAB}, 1, 1, 1}}")
    logits = expected_logits(model, 1)
    blocks = done.stdout.split("result_output = ")[1:]
    for block, row in zip(blocks, logits[2:], strict=True):
        first = [float(x) for x in block.splitlines()[3].split("[")[1].split(",")[:3]]
        assert first == pytest.approx(row[:3], abs=1e-4)


def test_logits(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = expected_logits(model, 2)
    common = ["-dev", "ref", "-m", model, "--tokens", TOKENS, "--decode", "2", "--save-logits"]
    assert debug.main([*common, str(tmp_path / "all.npy"), "--all-logits"]) == 0
    assert debug.main([*common, str(tmp_path / "last")]) == 0
    assert capsys.readouterr().out == ""
    found = np.load(tmp_path / "all.npy")
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)
    assert np.allclose(np.load(tmp_path / "last"), expected[2:], rtol=1e-5, atol=1e-6)


def test_a_filter_prints_beside_saved_logits(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [
        "-dev",
        "ref",
        "-m",
        model,
        "--tokens",
        TOKENS,
        "--save-logits",
        str(tmp_path / "l.npy"),
    ]
    assert debug.main([*args, "--tensor-filter", "attn_norm-1", "--tensor-filter", "result_"]) == 0
    lines = [x for x in capsys.readouterr().out.splitlines() if "common_debug_cb_eval" in x]
    assert [x.split()[1] for x in lines] == ["attn_norm-1", "result_norm", "result_output"]
    assert (tmp_path / "l.npy").exists()


def test_saved_tensors(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["-dev", "ref", "-m", model, "--tokens", TOKENS, "--save-tensors", str(tmp_path / "t")]
    assert debug.main([*args, "--decode", "1", "--tensor-filter", "result_output"]) == 0
    assert "common_debug_cb_eval" in capsys.readouterr().out
    prompt, token = sorted((tmp_path / "t").glob("*.npy"))
    assert prompt.name == f"0-{N_NODES - 1:05}-result_output.npy"
    assert token.name == f"1-{N_NODES - 1:05}-result_output.npy"
    assert np.load(token).shape == (1, 1, 1, N_VOCAB)
    assert np.allclose(np.load(prompt)[0, 0], expected_logits(model, 0)[2:], atol=1e-5)


def test_views_are_read_with_their_strides() -> None:
    seen: dict[str, np.ndarray] = {}
    a = Tensor(F32, (3, 2), name="a")
    flipped = ops.transpose(ops.scale(a, 2.0)).set_name("flipped")
    graph = Graph()
    graph.build_forward_expand(ops.cont(flipped).set_name("dense"))

    def watch(t: Tensor) -> None:
        values = read_values(t)
        assert values is not None
        seen[t.name] = values

    plan = Scheduler([device("ref")], watch=watch).plan(graph)
    assert a.buffer is not None
    a.buffer.write(a.offset, np.arange(6, dtype=np.float32).view(np.uint8))
    plan.run()
    assert np.array_equal(seen["flipped"], 2 * np.arange(6.0).reshape(1, 1, 2, 3).swapaxes(2, 3))
    assert np.array_equal(seen["flipped"], seen["dense"])


def test_quantized_nodes_have_no_values() -> None:
    assert read_values(Tensor(BY_NAME["q8_0"], (32,))) is None


def test_tokens_need_no_tokenizer(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, other = (kv("tokenizer.ggml.model", "str", name) for name in ("test", "wxyz"))
    path, args = tmp_path / "other.gguf", ["--save-logits", str(tmp_path / "l.npy"), "-dev", "ref"]
    path.write_bytes(Path(model).read_bytes().replace(known, other))
    assert debug.main(["-m", str(path), "--tokens", TOKENS, *args]) == 0
    assert np.array_equal(np.load(tmp_path / "l.npy"), expected_logits(model, 0)[-1:])
    assert debug.main(["-m", str(path), "-p", "text", *args]) == 1
    assert "unknown tokenizer.ggml.model 'wxyz'" in capsys.readouterr().err


def test_control_vectors(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "v.gguf", str(tmp_path / "l.npy")
    direction = np.linspace(-1, 1, N_EMBD, dtype=np.float32)
    path.write_bytes(gguf([], [GGUFTensor("direction.1", [N_EMBD], 0, direction.tobytes())]))
    common, found = ["-m", model, "--tokens", TOKENS, "--save-logits", out, "-dev", "ref"], {}
    for given in ("", f"--control-vector={path}", f"--control-vector-scaled={path}:0.5,{path}:.5"):
        assert debug.main([*common, *filter(None, [given])]) == 0
        found[given] = np.load(out)
    none, whole, halves = found.values()
    assert np.abs(whole - none).max() > 1e-3
    assert np.array_equal(whole, halves)
    some = ["--control-vector", str(path), "--control-vector-layer-range"]
    for layers, expected in ((["1", "1"], whole), (["2", "3"], none)):
        assert debug.main([*common, *some, *layers]) == 0
        assert np.array_equal(np.load(out), expected)
    assert debug.main([*common, "--control-vector", model]) == 1
    assert "a control vector has only tensors direction.1" in capsys.readouterr().err


def test_adapters(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata, arrays = made("llama-dense")
    file, out = tmp_path / "lora.gguf", str(tmp_path / "l.npy")
    write_adapter(file, metadata["general.architecture"], pairs(arrays, matrices(arrays)))
    common, found = ["-m", model, "--tokens", TOKENS, "--save-logits", out, "-dev", "ref"], []
    for given in (
        [],
        ["--lora", f"{file}"],
        ["--lora-scaled", f"{file}:0.5,{file}:.5"],
        ["--lora-scaled", f"{file}:0"],
        ["--lora", f"{file}", "--lora-init-without-apply"],
    ):
        assert debug.main([*common, *given]) == 0
        found.append(np.load(out))
    none, whole, halves, zero, unapplied = found
    assert np.abs(whole - none).max() > 1e-3
    np.testing.assert_allclose(halves, whole, atol=1e-4)
    assert np.array_equal(zero, none) and np.array_equal(unapplied, none)
    assert debug.main([*common, "--lora", model]) == 1
    assert "not a LoRA adapter: general.type must be" in capsys.readouterr().err


def test_there_must_be_something_to_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert debug.main(["-dev", "ref", "-m", model]) == 1
    assert "use -p TEXT or --tokens" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        debug.main(["--tensor-filter", "("])
    assert "not a regular expression" in capsys.readouterr().err


def test_several_devices_and_the_check(model: str, tmp_path: Path) -> None:
    file = tmp_path / "logits.npy"
    done = run(
        "llama-py-debug",
        "-v",
        "-m",
        model,
        "--tokens",
        TOKENS,
        "--save-logits",
        str(file),
        "-dev",
        "ref,cpu",
        "-ngl",
        "2",
        "-ot",
        "ffn_down=cpu",
        "-nkvo",
        "--check",
        "ref",
    )
    assert done.returncode == 0, done.stderr
    assert "load_tensors: offloaded 2/3 layers to GPU" in done.stderr
    assert "cpu compute buffer size" in done.stderr
    np.testing.assert_allclose(np.load(file), expected_logits(model, 0)[-1:], atol=2e-3)


def test_a_device_that_is_not_in_use_is_told(model: str) -> None:
    done = run("llama-py-debug", "-m", model, "--tokens", "1", "-ot", "exps=vulkan0")
    assert "exps=vulkan0: expected REGEX=DEVICE with a device in use: cpu" in done.stderr


def test_with_auto_a_gpu_that_fails_leaves_it_to_the_cpu(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(TestDevice):
        def wrap(self, data: object) -> None:
            raise AllocError("gpu: out of memory while uploading")

    gpu = Full("gpu")
    gpu.kind = "gpu"
    monkeypatch.setattr(placement, "_gpus", lambda: [gpu])
    loaded = session.load(FileParams(model=model), ModelParams(device="auto"), 1)
    assert loaded.device_names == "cpu"
    told = capsys.readouterr().err
    assert "warning: gpu: out of memory while uploading; running on the CPU instead" in told
