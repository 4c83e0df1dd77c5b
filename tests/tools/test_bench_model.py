"""make_bench_model.py: files of random weights that are valid, sane and the same every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

import llama_py
from dev.compare import make_bench_model
from dev.compare.bench_model import (
    blocks,
    declared,
    gemma3,
    kimi_linear,
    mix,
    nextn,
    qwen3,
    qwen35moe,
    vocabulary,
)
from llama_py.decoding.sequences import Sequences
from llama_py.gguf.file import GGUFFile

Type = gguf.GGMLQuantizationType
SMALL = [
    replace(qwen3.SIZES["0.6b"], n_layer=2, n_embd=256, n_ff=512, n_head=2, n_head_kv=1),
    replace(qwen35moe.SIZES["1b"], n_layer=4, n_embd=256, n_head=2, k_heads=1, v_heads=2),
    replace(kimi_linear.SIZES["0.8b"], n_layer=4, n_embd=256, n_head=2, n_ff=512),
    replace(gemma3.SIZES["1b"], n_layer=8, n_embd=384, n_head=4, n_ff=512, head_dim=64),
]


@pytest.mark.parametrize("kind", mix.BASE)
@pytest.mark.parametrize("arch", SMALL, ids=lambda arch: arch.name)
def test_file_is_read_back(tmp_path: Path, arch, kind: str) -> None:
    path = tmp_path / "model.gguf"
    make_bench_model.write(path, arch, kind, vocabulary.synthetic(1024), seed=1)
    with GGUFFile.open(path) as file:
        assert file.architecture == arch.name
        assert file.metadata[f"{arch.name}.block_count"] == arch.n_layer
        assert len(file.metadata[vocabulary.TOKENS]) == 1024
        tensors = list(arch.tensors(1024))
        assert list(file.tensors) == [t.name for t in tensors]
        types = mix.Mix(kind, tensors, arch.n_layer, arch.n_gqa)
        for t in tensors:
            stored = file.tensors[t.name]
            assert stored.ne == t.ne + (1,) * (4 - len(t.ne))
            weights = gguf.quants.dequantize(stored.data, types.type_of(t))
            assert stored.type.id == types.type_of(t)
            assert np.isfinite(weights).all()


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    data = []
    for i, seed in enumerate((1, 1, 2)):
        path = tmp_path / f"{i}.gguf"
        make_bench_model.write(path, SMALL[0], "Q4_K_M", vocabulary.synthetic(1024), seed)
        data.append(path.read_bytes())
    assert data[0] == data[1] != data[2]


def test_a_hole_in_place_of_weights(tmp_path: Path) -> None:
    """The same head and the same size, on hardly any room."""
    arch, vocab = replace(qwen35moe.SIZES["80b"], n_layer=2), vocabulary.synthetic(1024)
    make_bench_model.write(tmp_path / "large", arch, "Q4_K_M", vocab, seed=1, hole=True)
    found = (tmp_path / "large").stat()
    assert found.st_size > 1e9 and found.st_blocks * 512 < 1e7
    with GGUFFile.open(tmp_path / "large") as file:
        last = list(file.tensors.values())[-1]
        assert last.name.startswith("blk.1.") and not last.data.any()
    for hole in (False, True):
        path = tmp_path / str(hole)
        make_bench_model.write(path, SMALL[1], "Q4_K_M", vocab, seed=1, hole=hole)
    whole, left = ((tmp_path / str(hole)).read_bytes() for hole in (False, True))
    assert len(whole) == len(left) and whole[:10000] == left[:10000] and not any(left[-1000:])


@pytest.mark.parametrize("dtype", [*blocks.SCALES, Type.F16], ids=lambda t: t.name)
def test_weights_have_the_wanted_spread(dtype) -> None:
    n, std = 2**20, 1 / 32
    source = blocks.RandomMatrix(dtype, n, std, np.random.default_rng(3))
    raw = np.concatenate([p.reshape(-1).view(np.uint8) for p in source.pieces()])
    assert raw.nbytes == source.nbytes
    weights = gguf.quants.dequantize(raw, dtype)
    assert weights.size == n
    assert weights.std() == pytest.approx(std, rel=0.06)  # the scales vary: sqrt(1 + 1 / 48)
    assert abs(weights.mean()) < 0.15 * std  # Q4_0 has one value more below zero than above


NEWEST = [
    arch
    for arch, sizes in make_bench_model.SIZES.items()
    if isinstance(next(iter(sizes.values())), declared.Newest)
]


def test_medium_mix_is_that_of_llama_cpp() -> None:
    """qwen3 0.6B, Q4_K_M: as llama-quantize reports them."""
    arch = qwen3.SIZES["0.6b"]
    tensors = list(arch.tensors(1024))
    types = mix.Mix("Q4_K_M", tensors, arch.n_layer)
    large = {t.name for t in tensors if types.type_of(t) is Type.Q6_K}
    layers = [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    sensitive = {f"blk.{i}.{part}.weight" for i in layers for part in ("attn_v", "ffn_down")}
    assert large == sensitive | {"token_embd.weight"}


def test_small_mix_is_that_of_llama_cpp() -> None:
    """IQ4_XS (llama-quant.cpp): values of few heads and the first down projections have 5 bits."""
    arch = gemma3.SIZES["1b"]
    tensors = list(arch.tensors(1024))
    types = mix.Mix("IQ4_XS", tensors, arch.n_layer, arch.n_gqa)
    found = {t.name: types.type_of(t) for t in tensors}
    values = {f"blk.{i}.attn_v.weight" for i in range(26)}
    down = {f"blk.{i}.ffn_down.weight" for i in range(3)}
    assert {name for name, t in found.items() if t is Type.Q5_1} == values  # rows of 1152
    assert {name for name, t in found.items() if t is Type.Q5_K} == down
    assert found["token_embd.weight"] is Type.Q8_0
    assert found["blk.0.attn_q.weight"] is Type.IQ4_NL
    assert found["blk.3.ffn_down.weight"] is Type.IQ4_XS
    first = {arch: next(iter(sizes.values())) for arch, sizes in make_bench_model.SIZES.items()}
    expected = {"gemma3": 4, "kimi-linear": 0, "qwen3": 2, "qwen35moe": 8}
    assert {arch: first[arch].n_gqa for arch in expected} == expected
    assert all(first[arch].n_gqa == 2 for arch in NEWEST)


@pytest.mark.parametrize("name", NEWEST)
def test_newest_architectures_have_all_their_tensors(name: str) -> None:
    """Matrices are quantized, except those that llama.cpp needs in F32."""
    arch = make_bench_model.SIZES[name]["1b"]
    tensors = {t.name: t for t in arch.tensors(1024)}
    assert tensors["token_embd.weight"].ne == (1024, 1024)
    assert {t.name for t in tensors.values() if t.values is None} >= {
        f"blk.{arch.n_layer - 1}.attn_output.weight",
        "token_embd.weight",
    }
    rng = np.random.default_rng(0)
    exact = [t for t in tensors.values() if t.values is not None]
    made = [(t, t.values(rng, t.n_elements)) for t in exact if t.values is not None]
    assert all(values.size == t.n_elements for t, values in made)


def test_rows_that_do_not_fit_a_block() -> None:
    assert mix.fitting(Type.Q4_K, 512) is Type.Q4_K
    assert mix.fitting(Type.Q4_K, 128) is Type.Q5_0
    assert mix.fitting(Type.Q6_K, 384) is Type.Q8_0
    assert mix.fitting(Type.IQ4_XS, 384) is Type.IQ4_NL
    assert mix.fitting(Type.Q4_0, 40) is Type.F16


def test_vocabulary_is_copied_and_filled_up(tmp_path: Path) -> None:
    path, keys = tmp_path / "model.gguf", vocabulary.synthetic(1000)
    make_bench_model.write(path, SMALL[0], "Q8_0", keys, seed=1)
    copy = vocabulary.copied(path, 1200)
    assert copy.tokens[:1000] == keys.tokens
    assert len(set(copy.tokens)) == len(copy.types) == 1200
    assert copy.other == keys.other
    with pytest.raises(ValueError, match="has 1000 tokens"):
        vocabulary.copied(path, 999)


def test_vocabulary_that_is_too_small() -> None:
    with pytest.raises(ValueError, match="too few"):
        vocabulary.synthetic(100)


def drafting(path: Path, kind: str, rate: float, vocab: vocabulary.Vocabulary) -> nextn.Cycle:
    arch = SMALL[1].with_nextn()
    cycle = nextn.Cycle(vocab, arch.n_embd, rate, seed=1)
    make_bench_model.write(path, arch, kind, vocab, 1, cycle)
    return cycle


@pytest.mark.parametrize(
    ("kind", "rate"),
    [("F16", 0.8), ("Q4_0", 0.8), ("Q5_K_M", 0.8), *(("Q4_K_M", r) for r in (0.0, 0.6, 0.8, 1.0))],
)
def test_layer_agrees_at_the_rate(tmp_path: Path, kind: str, rate: float) -> None:
    """Greedy text is the cycle, and a draft is accepted where the cycle says so."""
    path, vocab = tmp_path / "model.gguf", vocabulary.synthetic(1200)
    cycle = drafting(path, kind, rate, vocab)
    how = {"spec_type": "draft-mtp", "spec_draft_n_max": 1, "spec_draft_adaptive": False}
    with llama_py.load(path, load_mtp=True) as model, model.context(512, n_rs_seq=1) as ctx:
        ids = [p.token for p in llama_py.stream(ctx, "e", max_tokens=200, **how)]
        found = next(iter(Sequences.for_context(ctx).statistics.values()))
    at = {int(token): k for k, token in enumerate(cycle.tokens)}
    n, places = len(at), [at[id] for id in ids]
    assert places == [(places[0] + i) % n for i in range(200)]
    assert (found.n_drafts, found.n_accepted) == checks(cycle.agrees[places])


def checks(agrees: np.ndarray) -> tuple[int, int]:
    """How many drafts of one token such a text takes, and how many of them are accepted."""
    at, accepted, n = 0, 0, 0
    while at < len(agrees) - 2:
        n, accepted, at = n + 1, accepted + agrees[at], at + 1 + agrees[at]
    return n, accepted


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.8, 1.0])
def test_text_of_the_cycle_has_the_rate(rate: float) -> None:
    agrees = nextn.Cycle(vocabulary.synthetic(1200), 256, rate, seed=1).agrees
    assert abs(agrees.mean() - rate) < 1 / len(agrees)
    for start in range(0, 900, nextn.GROUP):
        assert abs(agrees[start : start + nextn.GROUP].mean() - rate) <= 1 / nextn.GROUP
    n, accepted = checks(np.tile(agrees, 4))
    assert abs(accepted / n - rate) < 0.03


def test_drafting_file_is_fixed_by_its_arguments(tmp_path: Path) -> None:
    data = []
    for i, rate in enumerate((0.8, 0.8, 0.7)):
        drafting(tmp_path / f"{i}.gguf", "Q4_K_M", rate, vocabulary.synthetic(1024))
        data.append((tmp_path / f"{i}.gguf").read_bytes())
    assert data[0] == data[1] != data[2]


def test_rates_and_architectures_that_do_not_draft() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        nextn.Cycle(vocabulary.synthetic(1024), 256, 1.2, seed=1)
    with pytest.raises(ValueError, match="no NextN layer"):
        SMALL[0].with_nextn()
    with pytest.raises(ValueError, match="a cycle needs 2"):
        nextn.Cycle(vocabulary.Vocabulary(["a"], [1], {}), 256, 0.5, seed=1)
