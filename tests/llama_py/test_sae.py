"""Sparse autoencoders: files, features by the formulas of their papers, what pushing them does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ModelError
from llama_py.steering.sae import SAE, SAEConfig
from llama_py.steering.sae.activations import ARCHITECTURES

safetensors = pytest.importorskip("safetensors.numpy", reason="needs '.[research]'")

D, N = 6, 20
RNG = np.random.default_rng(5)
X = RNG.standard_normal((7, D)).astype(np.float32) * 3 + 1
WEIGHTS: dict[str, Any] = {
    "W_enc": RNG.standard_normal((D, N)), "W_dec": RNG.standard_normal((N, D)),
    "b_dec": RNG.standard_normal(D), "b_enc": RNG.standard_normal(N) / 4,
    "threshold": np.abs(RNG.standard_normal(N)), "b_gate": RNG.standard_normal(N) / 4,
    "r_mag": RNG.standard_normal(N) / 4, "b_mag": RNG.standard_normal(N) / 4,
}  # fmt: skip
WEIGHTS = {k: v.astype(np.float32) for k, v in WEIGHTS.items()}


def sae(architecture: str = "standard", **more: Any) -> SAE:
    k = 5 if architecture == "topk" else 0
    cfg = SAEConfig(d_in=D, d_sae=N, architecture=architecture, k=k, hook_name="l_out-1", **more)
    return SAE(cfg, WEIGHTS)


def expected(architecture: str, x: Any) -> Any:
    """Row by row, feature by feature."""
    w, found = {k: v.astype(float) for k, v in WEIGHTS.items()}, np.zeros((len(x), N))
    for row, out in zip(x.astype(float) - w["b_dec"], found, strict=True):
        before = np.array([row @ w["W_enc"][:, i] + w["b_enc"][i] for i in range(N)])
        for i in range(N):
            gate = row @ w["W_enc"][:, i]
            size = gate * np.exp(w["r_mag"][i]) + w["b_mag"][i]
            out[i] = {
                "standard": max(before[i], 0),
                "topk": max(before[i], 0) if (before > before[i]).sum() < 5 else 0,
                "jumprelu": before[i] if before[i] > w["threshold"][i] else 0,
                "gated": max(size, 0) if gate + w["b_gate"][i] > 0 else 0,
            }[architecture]
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_features(architecture: str) -> None:
    one, want = sae(architecture), expected(architecture, X)
    np.testing.assert_allclose(one.encode(X), want, atol=1e-4, rtol=1e-4)
    assert 0 < (want > 0).mean() < 1
    rows = want @ WEIGHTS["W_dec"] + WEIGHTS["b_dec"]
    np.testing.assert_allclose(one(X), rows, atol=1e-3, rtol=1e-4)
    np.testing.assert_array_equal(one.encode(X.reshape(7, 2, 3)), one.encode(X))
    best = one.top(one.encode(X), 3)
    assert best[0][1] == pytest.approx(want.max(), rel=1e-4)
    assert want[best[0][2], best[0][0]] == want.max()


@pytest.mark.parametrize("how", ["layer_norm", "constant_norm_rescale"])
def test_rows_that_are_normalized(how: str) -> None:
    """Scaled rows have the same features, and what comes back, and what is pushed, is scaled."""
    one = sae(normalize_activations=how)
    np.testing.assert_allclose(one.encode(10 * X), one.encode(X), atol=1e-3)
    np.testing.assert_allclose(one(10 * X), 10 * one(X), rtol=1e-3, atol=1e-3)
    step = one.steer({3: 2.0})(X, None) - X
    np.testing.assert_allclose(one.steer({3: 2.0})(10 * X, None) - 10 * X, 10 * step, rtol=1e-2)
    with pytest.raises(ModelError, match="like=rows"):
        one.decode(one.encode(X))


def test_without_the_bias_and_by_the_norm_of_the_decoder() -> None:
    plain = sae(apply_b_dec_to_input=False)
    np.testing.assert_allclose(plain.encode(X - WEIGHTS["b_dec"]), sae().encode(X), atol=1e-4)
    scaled = sae("topk", rescale_acts_by_decoder_norm=True)
    norm = np.linalg.norm(WEIGHTS["W_dec"], axis=1)
    before = (X - WEIGHTS["b_dec"]) @ WEIGHTS["W_enc"] + WEIGHTS["b_enc"]
    kept = np.argsort(-before * norm)[:, :5]
    found = scaled.encode(X)
    for row, want, b in zip(found, kept, before, strict=True):
        positive = [i for i in want if b[i] > 0]
        assert set(np.flatnonzero(row)) == set(positive)
        np.testing.assert_allclose(row[positive], (b * norm)[positive], rtol=1e-4)
    rows = found / norm @ WEIGHTS["W_dec"] + WEIGHTS["b_dec"]
    np.testing.assert_allclose(scaled.decode(found), rows, rtol=1e-3, atol=1e-3)


def test_changes() -> None:
    one = sae("jumprelu")
    f, direction = one.encode(X), WEIGHTS["W_dec"]
    np.testing.assert_allclose(one.steer({2: 3})(X, None), X + 3 * direction[2], rtol=1e-5)
    without = X - f[:, [4]] * direction[4] - f[:, [7]] * direction[7]
    np.testing.assert_allclose(one.ablate(4, 7)(X, None), without, atol=1e-4)
    held = X + (9 - f[:, [2]]) * direction[2]
    np.testing.assert_allclose(one.clamp({2: 9})(X, None), held, atol=1e-4)
    np.testing.assert_array_equal(one.splice()(X, None), one(X))
    heads = X.reshape(7, 3, 2)
    assert one.ablate(4)(heads, None).shape == heads.shape
    with pytest.raises(ModelError, match="feature must be from 0 to 19, got 20"):
        one.steer({20: 1})


def test_in_a_model() -> None:
    """A feature held, in the middle of a model: what comes after has it."""
    ctx = llama_py.load().context(n_ctx=64)
    ids = ctx.model.tokenize("ROMEO:\nBut soft")
    rng = np.random.default_rng(2)
    dec = rng.standard_normal((32, 256)).astype(np.float32)
    dec /= np.linalg.norm(dec, axis=1, keepdims=True)
    one = SAE(
        SAEConfig(d_in=256, d_sae=32, hook_name="blocks.1.hook_resid_post"),
        {"W_enc": dec.T, "W_dec": dec, "b_enc": np.zeros(32), "b_dec": np.zeros(256)},
    )
    plain = ctx.decode(ids)
    ctx.clear()
    with ctx.patch(one.hook_name, one.steer({5: 20.0})), ctx.capture(one.hook_name) as values:
        steered = ctx.decode(ids)
    assert (one.encode(values[one.hook_name]).argmax(-1) == 5).all()
    assert np.abs(steered - plain).max() > 0.1


def stored(folder: Path, cfg: Any, file: str = "sae_weights.safetensors", **arrays: Any) -> Path:
    folder.mkdir(exist_ok=True)
    if cfg is not None:
        (folder / "cfg.json").write_text(json.dumps(cfg))
    safetensors.save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, folder / file)
    return folder


def picked(*names: str) -> dict[str, Any]:
    return {name: WEIGHTS[name] for name in ("W_enc", "W_dec", "b_dec", *names)}


def test_files_of_saelens(tmp_path: Path) -> None:
    """Of versions before 6, where topk is an activation function, and since."""
    old = {
        "d_in": D,
        "d_sae": N,
        "hook_point": "blocks.1.hook_resid_pre",
        "dtype": "torch.float32",
        "activation_fn_str": "topk",
        "activation_fn_kwargs": {"k": 5},
    }
    found = SAE.load(stored(tmp_path / "old", old, **picked("b_enc")))
    assert found.hook_name == "blocks.1.hook_resid_pre"
    np.testing.assert_array_equal(found.encode(X), sae("topk").encode(X))
    new = {
        "architecture": "jumprelu",
        "normalize_activations": "none",
        "metadata": {"hook_name": "blocks.2.hook_mlp_out", "hook_head_index": None},
    }
    found = SAE.load(stored(tmp_path / "new", new, **picked("b_enc", "threshold")))
    assert found.hook_name == "blocks.2.hook_mlp_out"
    np.testing.assert_array_equal(found.encode(X), sae("jumprelu").encode(X))
    scaled = {**picked("b_enc"), "scaling_factor": np.full(N, 2, np.float32)}
    found = SAE.load(stored(tmp_path / "scaled", {}, **scaled))
    np.testing.assert_allclose(found.W_dec, 2 * WEIGHTS["W_dec"])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_what_is_saved_is_loaded(architecture: str, tmp_path: Path) -> None:
    one = sae(architecture)
    one.save(tmp_path / "here")
    found = SAE.load(tmp_path / "here")
    assert (found.cfg, repr(found)) == (one.cfg, repr(one))
    np.testing.assert_array_equal(found(X), one(X))


def test_files_of_gemma_scope(tmp_path: Path) -> None:
    folder = tmp_path / "gemma-scope-2b-pt-res" / "layer_20" / "width_16k" / "average_l0_71"
    folder.mkdir(parents=True)
    names = ("W_enc", "W_dec", "b_dec", "b_enc", "threshold")
    np.savez(folder / "params.npz", **{k.replace("W_", "w_"): WEIGHTS[k] for k in names})  # type: ignore[arg-type]
    for path in (folder, folder / "params.npz"):
        found = SAE.load(path)
        assert found.hook_name == "blocks.20.hook_resid_post"
        want = sae("jumprelu", apply_b_dec_to_input=False)
        np.testing.assert_array_equal(found.encode(X), want.encode(X))


def test_files_of_sparsify(tmp_path: Path) -> None:
    cfg = {"num_latents": N, "k": 5, "d_in": D}
    arrays = {
        "encoder.weight": WEIGHTS["W_enc"].T,
        "encoder.bias": WEIGHTS["b_enc"],
        "W_dec": WEIGHTS["W_dec"],
        "b_dec": WEIGHTS["b_dec"],
    }
    found = SAE.load(stored(tmp_path / "layers.5", cfg, "sae.safetensors", **arrays))
    assert found.hook_name == "blocks.5.hook_resid_post"
    np.testing.assert_array_equal(found.encode(X), sae("topk").encode(X))


def test_weights_in_16_bits(tmp_path: Path) -> None:
    half = {k: v.astype(np.float16) for k, v in picked("b_enc").items()}
    found = SAE.load(stored(tmp_path / "f16", {}, **half))
    np.testing.assert_array_equal(found.W_enc, half["W_enc"].astype(np.float32))
    head, data = {}, b""
    for name, v in picked("b_enc").items():
        raw = (v.view(np.uint32) >> 16).astype("<u2").tobytes()
        place = [len(data), len(data) + len(raw)]
        head[name] = {"dtype": "BF16", "shape": v.shape, "data_offsets": place}
        data += raw
    text = json.dumps(head).encode()
    (tmp_path / "bf16").mkdir()
    (tmp_path / "bf16" / "sae_weights.safetensors").write_bytes(
        len(text).to_bytes(8, "little") + text + data
    )
    found = SAE.load(tmp_path / "bf16")
    np.testing.assert_allclose(found.W_enc, WEIGHTS["W_enc"], rtol=1e-2)


REFUSED: list[tuple[Any, tuple[str, ...], str]] = [
    ({"architecture": "transcoder"}, ("b_enc",), "known: standard, topk, jumprelu, gated"),
    ({"architecture": "jumprelu"}, ("b_enc",), "threshold of a jumprelu SAE must .*got missing"),
    ({"activation_fn": "tanh-relu"}, ("b_enc",), "must be relu or topk"),
    ({"normalize_activations": "batch"}, ("b_enc",), "normalize_activations must be .*got 'batch'"),
    ({"architecture": "topk"}, ("b_enc",), "k of a topk SAE must be .*got 0"),
    ({"hook_head_index": 3}, ("b_enc",), "hook_head_index 3"),
]


@pytest.mark.parametrize(("cfg", "names", "message"), REFUSED)
def test_what_is_refused(cfg: Any, names: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        SAE.load(stored(tmp_path / "x", cfg, **picked(*names)))


def test_what_is_no_sae(tmp_path: Path) -> None:
    (tmp_path / "sae_weights.safetensors").write_bytes(b"no such file")
    without = stored(tmp_path / "y", {}, b_dec=WEIGHTS["b_dec"])
    cases = [
        (tmp_path / "none", "no SAE found"),
        (tmp_path, "not a safetensors file"),
        (without, "W_enc and W_dec are missing"),
    ]
    for path, message in cases:
        with pytest.raises(ModelError, match=message):
            SAE.load(path)
    nameless = SAE.load(stored(tmp_path / "z", {}, **picked("b_enc")))
    with pytest.raises(ModelError, match="pass hook_name"):
        print(nameless.hook_name)
    with pytest.raises(ModelError, match="rows must have 6 elements like the SAE, got 5"):
        nameless.encode(np.zeros((2, 5)))
