"""llama-py-perplexity --kl-divergence: llama-perplexity's file and its statistics."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from llama_py_tools.measure import kl_divergence as kl
from llama_py_tools.measure.perplexity import main

N_CTX = 32
TEXT = "".join(f"Citizen {i}:\nSpeak, speak the {i}th time.\n\n" for i in range(24))
RNG = np.random.default_rng(5)
LOGITS = (4 * RNG.standard_normal((6, 37))).astype(np.float32)
OTHER = (LOGITS + 0.3 * RNG.standard_normal(LOGITS.shape)).astype(np.float32)
TARGETS = [3, 36, 0, 7, 7, 20]


def written(path: Path, logits: np.ndarray) -> str:
    windows = np.arange(2 * 8, dtype=np.int32).reshape(2, 8)  # 3 tokens of each are scored
    with path.open("wb") as file:
        writer = kl.BaseWriter(file, windows, logits.shape[1])
        for part in np.split(logits, 2):
            writer.add(part)
    return str(path)


def test_the_files_bytes(tmp_path: Path) -> None:
    """Word for word what perplexity.cpp writes."""
    data = Path(written(tmp_path / "base", LOGITS)).read_bytes()
    assert data[:8] == b"_logits_"
    assert struct.unpack_from("<3i16i", data, 8) == (8, 37, 2, *range(16))
    rows = np.frombuffer(data[8 + 4 * 19 :], "<u2").reshape(6, 42)  # 2 * (38 // 2) + 4
    for row, logits in zip(rows, LOGITS.astype(np.float64), strict=True):
        scale, low = row[:4].view("<f4").astype(np.float64)
        least = max(logits.min(), logits.max() - 16)
        expected = logits - math.log(np.exp(logits).sum())
        assert scale == pytest.approx((logits.max() - least) / 65535, rel=1e-6)
        assert low == pytest.approx(expected.max() - (logits.max() - least), rel=1e-6)
        assert row[4 + logits.argmax()] == 65535
        assert row[41] == 0
        found = scale * row[4:41] + low
        assert np.abs(found - np.maximum(expected, low)).max() <= scale


def test_what_lies_deep_is_one_value() -> None:
    logits = np.array([[0, -3, -16.5, -40], [2, 2, 2, 2]], np.float32)
    found = kl.unpack(kl.pack(logits), 4)
    assert found[0, 2] == found[0, 3] == pytest.approx(found[0, 0] - 16, abs=1e-3)
    assert found[1].tolist() == pytest.approx([math.log(0.25)] * 4)


def test_divergence_of_tokens() -> None:
    p, q = (np.exp(x.astype(np.float64)) for x in (LOGITS, OTHER))
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    found = kl.compare_logits(OTHER, LOGITS, TARGETS)
    assert found.kld == pytest.approx((p * np.log(p / q)).sum(1), abs=1e-5)
    rows = np.arange(6)
    assert found.nll == pytest.approx(-np.log(q[rows, TARGETS]), rel=1e-5)
    assert found.nll_base == pytest.approx(-np.log(p[rows, TARGETS]), rel=1e-5)
    assert found.p_diff == pytest.approx((q - p)[rows, TARGETS], abs=1e-6)
    assert found.same_top.tolist() == (p.argmax(1) == q.argmax(1)).tolist()


def test_statistics() -> None:
    """Of 200 tokens whose values are known."""
    n = np.arange(200)
    nll, base = 2 + n / 200, 2 + n / 200 + np.where(n % 2, 0.1, -0.1)
    every = kl.Divergences()
    every.add(kl.Divergence(nll, base, n / 100, n % 4 != 0))
    lines = list(every.lines())
    values = {line.partition(":")[0].rstrip(): line.partition(":")[2].split() for line in lines}
    ppl, error = math.exp(nll.mean()), math.exp(nll.mean()) * nll.std() / math.sqrt(199)
    assert values["Mean PPL(Q)"] == [f"{ppl:.6f}", "±", f"{error:.6f}"]
    ratio = (nll - base).std() / math.sqrt(199)
    assert values["Mean ln(PPL(Q)/PPL(base))"] == ["0.000000", "±", f"{ratio:.6f}"]
    cor = np.corrcoef(nll, base)[0, 1]
    assert values["Cor(ln(PPL(Q)), ln(PPL(base)))"] == [f"{100 * cor:.2f}%"]
    assert values["Mean    KLD"][0] == "0.995000"
    assert values["Maximum KLD"] == ["1.990000"]
    assert values["Median  KLD"] == ["0.995000"]
    assert values["90.0%   KLD"] == [f"{np.percentile(n / 100, 90):.6f}"]
    assert values["Same top p"] == ["75.000", "±", f"{100 * math.sqrt(0.1875 / 199):.3f}", "%"]
    rms = 100 * np.sqrt(np.square(np.exp(-nll) - np.exp(-base)).mean())
    assert values["RMS Δp"][0] == f"{rms:.3f}"
    few = kl.Divergences()
    few.add(kl.compare_logits(OTHER, LOGITS, TARGETS))
    assert list(few.lines()) == []


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A text, and what the demo model predicts of it."""
    folder = tmp_path_factory.mktemp("kl")
    text = folder / "text.txt"
    text.write_text(TEXT)
    args = ["-f", str(text), "-c", str(N_CTX), "--chunks", "8", "-b", "128"]
    assert main([*args, "--kl-divergence-base", str(folder / "base")]) == 0
    return str(text), str(folder / "base")


def test_a_model_beside_itself(base: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kl-divergence", "--kl-divergence-base", base[1], "-b", "256"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == kl.TITLE
    assert [int(line[:4]) for line in out.splitlines()[1:9]] == list(range(1, 9))
    assert abs(float(re.findall(r"Mean    KLD: +(\S+)", out)[0])) < 1e-5
    assert re.findall(r"Same top p: (\S+)", out) == ["100.000"]


def test_another_model(base: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Its layers attend to keys in fewer bits."""
    coarse = ["-ctk", "q4_0", "-ctv", "q4_0", "-fa", "on", "--chunks", "4"]
    assert main(["--kl-divergence", "--kl-divergence-base", base[1], *coarse]) == 0
    out = capsys.readouterr().out
    line = out.splitlines()[4]
    assert line[:4].strip() == "4"
    assert 1e-5 < float(line.split()[7]) < 0.1
    assert "statistics" not in out  # of 60 tokens


def test_what_cannot_be_compared(
    base: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compare = ["--kl-divergence", "--kl-divergence-base"]
    whole = Path(base[1]).read_bytes()
    contents = {"cut": whole[:-2], "empty": b"", "other": b"GGUF" + whole, "head": whole[:15]}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert main([*compare, str(tmp_path / name)]) == 1
        says = "8 windows of 32 tokens and" if name == "cut" else "not a file of log probabilities"
        assert says in capsys.readouterr().err, name
    few = written(tmp_path / "few", LOGITS)
    assert main([*compare, few]) == 1
    assert "vocabulary of 37 tokens, but the model has 2048" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["--kl-divergence"])
    assert caught.value.code == 2
    assert "needs --kl-divergence-base" in capsys.readouterr().err


def test_lines_of_windows(base: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    args = ["-f", base[0], "-c", str(N_CTX), "--chunks", "3"]
    assert main([*args, "--ppl-output-type", "1"]) == 0
    *lines, _, final = capsys.readouterr().out.splitlines()
    assert [int(line.split()[0]) for line in lines] == [0, 32, 64]
    last = lines[-1].split()
    assert final == f"Final estimate: PPL = {last[1]} +/- {final.split()[-1]}"
    assert math.log(float(last[1])) == pytest.approx(float(last[2]), abs=1e-4)
