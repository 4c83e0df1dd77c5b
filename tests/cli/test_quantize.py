"""llama-py-gguf quantize: whole files, refusals, and runs that are stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dev import tiny_models as tiny
from dev.record.golden.quantize import Case, write_head
from ggml_cpu.quantize.run import quantizer
from ggml_py.types import BY_NAME
from ggml_ref.quants import dequantizer
from llama_py.gguf.file import GGUFFile
from llama_py.loading.model import DEMO
from llama_py.quantize import errors
from llama_py.quantize.imatrix.file import Imatrix, ImatrixEntry, write_imatrix
from llama_py_tools.gguf import main, sensitivity
from llama_py_tools.gguf import quantize as quantize_module
from tests.support.gguf_writer import Tensor, gguf, kv, write

N = 256
RNG = np.random.default_rng(3)
Q = "blk.0.attn_qkv.weight"
WEIGHTS = ("blk.0.ffn_gate_exps.weight", "blk.0.attn_q.weight", "token_embd.weight")
KEYS = [
    kv("general.architecture", "str", "none"),
    kv("none.block_count", "u32", 1),
    kv("general.name", "str", "small"),
]


def tensors(kind: int = 1) -> list[Tensor]:
    dtype = {0: np.float32, 1: np.float16}[kind]
    made = []
    for name, ne in zip(WEIGHTS, ((N, 6, 3), (N, 70), (N, 5)), strict=True):
        made.append(Tensor(name, ne, kind, RNG.standard_normal(ne[::-1]).astype(dtype).tobytes()))
    return [*made, Tensor("output_norm.weight", (N,), 0, np.ones(N, np.float32).tobytes())]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path, gguf(KEYS, tensors()), "m.gguf")


def run(*args: object) -> int:
    return main(["quantize", *map(str, args)])


def refused(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    capsys.readouterr()
    assert run(*args) == 1
    lines = [x for x in capsys.readouterr().err.splitlines() if x.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()}


def test_types_of_ik_llama_cpp(model: Path, tmp_path: Path) -> None:
    """Rows that begin with their scale; copies keep them."""
    out, copy = tmp_path / "o.gguf", tmp_path / "c.gguf"
    types = ("--tensor-type", "attn_q=iq4_ks", "--tensor-type", "gate_exps=iq5_k")
    assert run(*types, model, out, "Q8_0") == 0
    assert run(out, copy, "COPY") == 0
    with GGUFFile.open(model) as source, GGUFFile.open(out) as file, GGUFFile.open(copy) as again:
        for name, kind, id in zip(WEIGHTS, ("iq5_k", "iq4_ks"), (140, 144), strict=False):
            found = file.tensors[name].as_stored()
            x = source.tensors[name].data.view(np.float16).astype(np.float32).reshape(-1, N)
            assert found.type.id == id
            expected = quantizer(BY_NAME[kind], False)(x, None)
            np.testing.assert_array_equal(found.data, expected.reshape(-1))
            np.testing.assert_array_equal(again.tensors[name].as_stored().data, found.data)
            decode = dequantizer(file.tensors[name].type)
            assert decode is not None
            y = decode(file.tensors[name].data.reshape(-1, BY_NAME[kind].type_size))
            assert np.abs(y.reshape(x.shape) - x).max() < 0.6


def test_a_file(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "q.gguf"
    assert run(model, out, "q4_k_m", 2) == 0
    assert "quant size = " in capsys.readouterr().err
    with GGUFFile.open(model) as old, GGUFFile.open(out) as new:
        assert new.metadata["general.file_type"] == 15
        assert new.metadata["general.quantization_version"] == 2
        assert new.tensors["token_embd.weight"].type.name == "q6_K"
        norm = "output_norm.weight"
        assert (new.tensors[norm].data == old.tensors[norm].data).all()
        for name in WEIGHTS:
            x = old.tensors[name].data.view(np.float16).astype(np.float32)
            t = new.tensors[name]
            decode = dequantizer(t.type)
            assert decode is not None
            back = decode(t.data.reshape(-1, t.type.type_size)).ravel()
            assert np.sqrt(np.mean((back - x) ** 2)) < 0.1 * x.std()


def test_order_is_that_of_llama_cpp(model: Path, tmp_path: Path) -> None:
    assert run(model, tmp_path / "q.gguf", "Q8_0") == 0
    with GGUFFile.open(tmp_path / "q.gguf") as new:
        assert list(new.tensors) == [
            "output_norm.weight",
            "token_embd.weight",
            "blk.0.attn_q.weight",
            "blk.0.ffn_gate_exps.weight",
        ]


def test_name_and_type_only(model: Path, tmp_path: Path) -> None:
    assert run(model, "f16") == 0
    made = tmp_path / "ggml-model-F16.gguf"
    assert made.stat().st_size > model.stat().st_size  # two more keys
    with GGUFFile.open(model) as old, GGUFFile.open(made) as new:
        assert all((old.tensors[n].data == new.tensors[n].data).all() for n in WEIGHTS)


@pytest.mark.parametrize("type", ["F32", "BF16"])
def test_floats(type: str, model: Path, tmp_path: Path) -> None:
    assert run(model, tmp_path / "q.gguf", type) == 0
    with GGUFFile.open(model) as old, GGUFFile.open(tmp_path / "q.gguf") as new:
        x = old.tensors[WEIGHTS[0]].data.view(np.float16).astype(np.float32)
        raw = new.tensors[WEIGHTS[0]].data
    if type == "F32":
        assert (raw.view(np.float32) == x).all()
    else:
        back = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        assert (abs(back - x) <= abs(x) * 2.0**-8).all()


def test_each_expert_has_its_importance(model: Path, tmp_path: Path) -> None:
    """Of other matrices it is another one; experts without tokens count all values alike."""
    sums = RNG.random((3, N)).astype(np.float32)
    entry = ImatrixEntry(sums.ravel(), np.array([5, 0, 5]))
    write_imatrix(tmp_path / "i.gguf", Imatrix("", {WEIGHTS[0]: entry}, ["t"], 1, 5))
    named = ("--tensor-type", "exps=q2_K")
    outs = [tmp_path / name for name in ("without.gguf", "with.gguf")]
    assert run(*named, model, outs[0], "Q4_0") == 0
    assert run(*named, "--imatrix", tmp_path / "i.gguf", model, outs[1], "Q4_0") == 0
    with GGUFFile.open(outs[0]) as a, GGUFFile.open(outs[1]) as b, GGUFFile.open(model) as old:
        x = old.tensors[WEIGHTS[0]].data.view(np.float16).astype(np.float32).reshape(3, 6, N)
        plain, weighted = (quantizer(BY_NAME["q2_K"], way) for way in (False, True))
        means = sums[0] / np.float32(5), np.ones(N, np.float32), sums[2] / np.float32(5)
        expected = np.concatenate([weighted(x[e], means[e]) for e in range(3)]).ravel()
        assert (b.tensors[WEIGHTS[0]].data == expected).all()
        assert (a.tensors[WEIGHTS[0]].data == plain(x.reshape(-1, N), None).ravel()).all()
        assert (a.tensors[WEIGHTS[0]].data != expected).any()
        assert b.metadata["quantize.imatrix.entries_count"] == 1
        assert b.metadata["quantize.imatrix.file"] == str(tmp_path / "i.gguf")[:127]
    options = ("--exclude-weights", "exps", "--imatrix", tmp_path / "i.gguf", "--force", *named)
    assert run(*options, model, outs[1], "Q4_0") == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_parts_are_kept(model: Path, tmp_path: Path) -> None:
    assert main(["split", "--split-max-tensors", "2", str(model), str(tmp_path / "s")]) == 0
    part = tmp_path / "s-00001-of-00002.gguf"
    assert run("--keep-split", part, tmp_path / "q.gguf", "Q8_0") == 0
    assert run(model, tmp_path / "whole.gguf", "Q8_0") == 0
    with (
        GGUFFile.open(tmp_path / "q-00002-of-00002.gguf") as new,
        GGUFFile.open(tmp_path / "whole.gguf") as whole,
    ):
        assert len(new.paths) == 2
        assert all((t.data == new.tensors[n].data).all() for n, t in whole.tensors.items())


def test_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a head alone, which says how large 13 GB would become."""
    sizes = {"token_embd.weight": (4096, 32000), "blk.0.ffn_up.weight": (4096, 800_000)}
    metadata = {"general.architecture": "llama", "llama.block_count": 1}
    write_head(tmp_path / "m.gguf", Case(metadata, sizes, ()))
    assert run("--dry-run", tmp_path / "m.gguf", "IQ2_XS") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].endswith("type = f16, size = 6250.000 MiB -> 903.320 MiB (iq2_xs)")
    assert out[-1].startswith("1 tensors need an importance matrix; the first is blk.0.ffn_up")
    assert names(tmp_path) == {"m.gguf"}


def test_refusals(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "q.gguf"
    assert "pass --imatrix FILE" in refused(capsys, model, out, "IQ1_S")
    assert "output must not be the input file" in refused(capsys, model, model, "Q8_0")
    assert "output must not be the input file" in refused(capsys, "--force", model, model, "Q8_0")
    assert run(model, out, "Q8_0") == 0
    before = out.read_bytes()
    assert "file already exists" in refused(capsys, model, out, "Q4_0")
    assert "--allow-requantize" in refused(capsys, out, tmp_path / "r.gguf", "Q4_0")
    assert run("--allow-requantize", out, tmp_path / "r.gguf", "Q4_0") == 0
    assert "unknown layer 3" in refused(
        capsys, "--prune-layers", 3, model, tmp_path / "p.gguf", "Q8_0"
    )
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("Q9",), "unknown file type 'Q9'"),
        (("out.gguf", "Q4_0", "two"), "a number of threads after the type, got 'two'"),
        (("--tensor-type", "attn_v", "Q4_0"), "expected PATTERN=TYPE, such as attn_v=q8_0"),
        (("--tensor-type", "attn_v=q9", "Q4_0"), "unknown tensor type 'q9'"),
        (("--tensor-type", "(=q8_0", "Q4_0"), "is not a regular expression"),
        (("--prune-layers", "1,a", "Q4_0"), "expected layer numbers such as 4,5,6"),
        (("--include-weights", "a", "--exclude-weights", "b", "Q4_0"), "set either"),
        (("--include-weights", "a", "Q4_0"), "need --imatrix FILE"),
    ],
)
def test_wrong_usage(args: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [a for a in args if a.startswith("--")]
    first = args[: 2 * len(options)]
    with pytest.raises(SystemExit) as ended:
        run(*first, "m.gguf", *args[2 * len(options) :])
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_values_that_are_not_finite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tensors()
    bad = np.full((70, N), np.nan, np.float16).tobytes()
    made[1] = Tensor(WEIGHTS[1], (N, 70), 1, bad)
    model = write(tmp_path, gguf(KEYS, made), "m.gguf")
    message = refused(capsys, model, tmp_path / "q.gguf", "Q4_0")
    assert "blk.0.attn_q.weight has values that are not finite" in message
    assert names(tmp_path) == {"m.gguf"}


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError])
def test_a_run_that_is_stopped_leaves_no_file(
    stop: type[BaseException], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the file that was there before stays as it was."""
    out = tmp_path / "q.gguf"
    out.write_bytes(b"before")

    def closed(self: object, done: int, total: int, what: str) -> None:
        if "ffn_gate_exps" in what:
            raise stop

    monkeypatch.setattr(quantize_module.Progress, "__call__", closed)
    assert run("--force", model, out, "Q4_0") == (130 if stop is KeyboardInterrupt else 1)
    assert out.read_bytes() == b"before"
    assert names(tmp_path) == {"m.gguf", "q.gguf"}


def test_a_model_runs_as_it_did(tmp_path: Path) -> None:
    """Of a tiny one, whose rows fall back to other types."""
    import llama_py

    path = tiny.write("llama", "dense", tmp_path)
    assert run(path, tmp_path / "q.gguf", "Q8_0") == 0
    logits = [
        llama_py.load(p, "cpu").context(n_ctx=64).decode([1, 2, 3])
        for p in (path, tmp_path / "q.gguf")
    ]
    assert np.corrcoef(*(x.ravel() for x in logits))[0, 1] > 0.99


class FakePredictor:
    """Divergences without a tokenizer: the first tensor counts most."""

    made = 0

    def __init__(self, file: GGUFFile, text: str) -> None:
        FakePredictor.made += 1

    def divergence(self, changes: dict[str, object]) -> float:
        (name,) = changes
        return 1.0 if name == WEIGHTS[0] else 1e-6

    def close(self) -> None:
        pass


def test_types_by_measured_loss(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensor that counts gets the larger type; losses are measured once."""
    monkeypatch.setattr(sensitivity, "Predictor", FakePredictor)
    monkeypatch.setattr(errors, "PORTABLE", "q4_0 q8_0")
    text = tmp_path / "text.txt"
    text.write_text("To be, or not to be")
    losses, out = tmp_path / "losses.json", tmp_path / "out.gguf"
    given = ("--portable", "--text", text, "--sensitivity", losses, "--force")
    assert run(*given, "--bpw", 4.9, model, out) == 0
    with GGUFFile.open(out) as file:
        types = {name: t.type.name for name, t in file.tensors.items()}
        size = sum(t.nbytes for t in file.tensors.values())
        assert size * 8 <= 4.9 * sum(np.prod(t.ne) for t in file.tensors.values())
    assert types[WEIGHTS[0]] == "q4_0"  # its 18 rows as q8_0 do not fit
    assert run(*given, "--bpw", 6.5, model, out) == 0
    with GGUFFile.open(out) as file:
        assert file.tensors[WEIGHTS[0]].type.name == "q8_0"
        assert file.tensors[WEIGHTS[1]].type.name == "q4_0"
        assert file.metadata["general.file_type"] == 7
    assert FakePredictor.made == 1
    assert run(*given, "--kld", 10, model, out) == 0
    with GGUFFile.open(out) as file:
        assert {t.type.name for t in file.tensors.values()} == {"q4_0", "f32"}


def test_an_existing_file_is_refused_before_measuring(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.gguf"
    out.write_bytes(b"kept")
    assert run("--bpw", 4.9, "--text", tmp_path / "no text", model, out) == 1
    assert "file already exists" in capsys.readouterr().err
    assert out.read_bytes() == b"kept"


def test_a_budget_needs_a_text(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--bpw", 4, model)
    assert "need --text FILE" in capsys.readouterr().err


def test_divergence_of_a_changed_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensitivity, "N_CTX", 16)
    with GGUFFile.open(DEMO) as file:
        predictor = sensitivity.Predictor(file, "To be, or not to be: that is the question. " * 4)
        assert predictor.divergence({}) == 0
        changed = sensitivity.quantize_values(file.tensors[Q], BY_NAME["q4_0"], None)
        assert 1e-6 < predictor.divergence({Q: changed}) < 1
        assert predictor.divergence({}) == 0  # the weight is itself again
        predictor.close()


def test_neighboring_layers_are_measured_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors that predictions do not need are as sensitive as those of other layers."""
    monkeypatch.setattr(sensitivity, "PROBES", 8)
    with GGUFFile.open(DEMO) as file:
        tensors = [
            t
            for t in file.tensors.values()
            if t.name.endswith(("down_shexp.weight", "gate_shexp.weight", "up_shexp.weight"))
        ]
    groups = [[t.name for t in group] for group in sensitivity.group_layers(tensors)]
    assert [f"blk.{i}.ffn_up_shexp.weight" for i in (0, 1)] in groups
    assert sorted(name for group in groups for name in group) == sorted(t.name for t in tensors)
    by_layer = {"blk.0.": 1, "blk.1.": 2, "blk.2.": 4, "blk.3.": 9, "blk.4.": 0}
    known = {
        t.name: sensitivity.Losses(errors={}, sensitivity=by_layer[t.name[:6]]) for t in tensors
    }
    found = [
        sensitivity.find_sensitivity(t, tensors, known) for t in tensors if "up_shexp" in t.name
    ]
    assert sorted(found) == [1, 2, 3, 4, 9]
