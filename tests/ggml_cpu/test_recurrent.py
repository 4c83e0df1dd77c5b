"""GATED_DELTA_NET, SSM_SCAN and SSM_CONV on the CPU: token by token, in chunks, in parts."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ggml_cpu.kernels.delta_net.gated_delta_net import CHUNK, MAX_SIZE
from ggml_py import ops
from ggml_py.tensor import Tensor
from tests.support.limits import SECONDS
from tests.support.one_node import Floats, leaf, meaning, nmse, run, view_of

EXACT = 1e-11  # f32 arithmetic on both sides
f32 = np.float32
RNG = np.random.default_rng(7)


def normal(*shape: int) -> Floats:
    return RNG.standard_normal(shape).astype(f32)


# ---- GATED_DELTA_NET


class Delta:
    """q, k [B, T, Hk, S], v [B, T, H, S], g, beta [B, T, H, 1 or S], state [B, H, S, S]."""

    def __init__(
        self,
        size: int,
        n_tokens: int,
        n_head: int = 2,
        n_head_k: int = 0,
        n_seqs: int = 1,
        *,
        channels: bool = False,
        gate: float = 0.3,
    ) -> None:
        keys = (n_seqs, n_tokens, n_head_k or n_head, size)
        self.q, self.k = (
            x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (normal(*keys), normal(*keys))
        )
        self.v = normal(n_seqs, n_tokens, n_head, size)
        self.g = -gate * RNG.random((n_seqs, n_tokens, n_head, size if channels else 1), f32)
        self.beta = RNG.random((n_seqs, n_tokens, n_head, 1), f32)
        self.state = normal(n_seqs, n_head, size, size)

    def node(self, start: int = 0, stop: int | None = None, n_snapshots: int = 1) -> Tensor:
        cut = (x[:, start:stop] for x in (self.q, self.k, self.v, self.g, self.beta))
        return ops.gated_delta_net(*map(leaf, cut), leaf(self.state), n_snapshots)

    def split(self, flat: Floats, n_tokens: int) -> tuple[Floats, Floats]:
        """Outputs [B, T, H, S] and states [slots, B, H, S, S] of a result."""
        n_seqs, _, n_head, size = self.v.shape
        n = n_seqs * n_tokens * n_head * size
        outputs = flat.reshape(-1)[:n].reshape(n_seqs, n_tokens, n_head, size)
        return outputs, flat.reshape(-1)[n:].reshape(-1, *self.state.shape)


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("size", [8, 17, 64, 128])
@pytest.mark.parametrize("n_tokens", [1, 5, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, 70])
def test_delta_net(size, n_tokens, channels):
    node = Delta(size, n_tokens, channels=channels).node()
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("size, n_threads", [(17, 1), (64, 1), (64, 5)])
@pytest.mark.parametrize("n_snapshots", [1, 3])
def test_without_tokens_the_state_stays(size, n_threads, n_snapshots):
    d = Delta(size, 0, n_seqs=2)
    outputs, states = d.split(run(d.node(n_snapshots=n_snapshots), n_threads), 0)
    assert outputs.size == 0
    np.testing.assert_array_equal(states[0], d.state)
    assert np.isnan(states[1:]).all()


@pytest.mark.parametrize("n_tokens", [1, 40])
def test_delta_net_of_wide_heads(n_tokens):
    node = Delta(MAX_SIZE + 24, n_tokens, n_head=1).node()
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [3, 30])
@pytest.mark.parametrize("n_head, n_threads", [(1, 3), (3, 2), (2, 7)])
def test_threads_share_the_rows_of_a_head(n_head, n_threads, n_tokens):
    node = Delta(64, n_tokens, n_head).node()
    one = run(node)
    np.testing.assert_array_equal(run(node, n_threads), one)
    assert nmse(one, meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [2, 30])
def test_key_heads_and_sequences_repeat(n_tokens):
    d = Delta(32, n_tokens, n_head=6, n_head_k=2, n_seqs=2)
    node = d.node()
    assert nmse(run(node), meaning(node)) < EXACT
    d.q, d.k = d.q[:1], d.k[:1]
    node = d.node()
    assert nmse(run(node), meaning(node)) < EXACT


@pytest.mark.parametrize("n_snapshots", [2, 4])
@pytest.mark.parametrize("n_tokens", [1, 3, *range(2 * CHUNK, 3 * CHUNK + 5)])
def test_snapshots(n_tokens, n_snapshots):
    """Slot s is the state s tokens before the last; a slot without a state is left alone."""
    d = Delta(32, n_tokens, n_seqs=2)
    node = d.node(n_snapshots=n_snapshots)
    _, got = d.split(run(node), n_tokens)
    assert np.isnan(got[n_tokens:]).all()
    for slot in range(min(n_tokens, n_snapshots)):
        done = n_tokens - slot
        _, wanted = d.split(meaning(d.node(0, done)), done)
        assert nmse(got[slot], wanted[0]) < EXACT, slot


def test_a_prompt_may_be_cut_anywhere():
    d = Delta(64, 40)
    outputs, state = d.split(run(d.node()), 40)
    for cut in (1, 13, 27, 39):
        d.state, start = d.state, d.state.copy()
        first, d.state = (x for x in d.split(run(d.node(0, cut)), cut))
        d.state = d.state[0].copy()
        second, end = d.split(run(d.node(cut)), 40 - cut)
        d.state = start
        assert nmse(np.concatenate((first, second), 1), outputs) < EXACT
        assert nmse(end, state) < EXACT


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("gate", [0.0, 60.0, 300.0])
def test_no_and_total_decay(gate, channels):
    """exp(-300) is 0 in f32; nothing is divided by it."""
    node = Delta(32, 50, channels=channels, gate=gate).node()
    got = run(node)
    assert np.isfinite(got).all()
    assert nmse(got, meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 20])
@pytest.mark.parametrize("in_place", [False, True])
def test_the_new_state_may_go_elsewhere(n_tokens, in_place):
    """A fused step gives the place as one more operand, perhaps that of the old state."""
    d = Delta(32, n_tokens, n_seqs=2)
    node = d.node()
    outputs, state = d.split(meaning(node), n_tokens)
    old = node.src[5]
    assert old is not None
    there = leaf(np.zeros((2, 2 * 32 * 32), f32))
    if in_place:
        there = ops.view_2d(old, 2 * 32 * 32, 2, old.nb[3], 0)
    got, untouched = d.split(run(node, 3, [there]), n_tokens)
    root = there.view_src or there
    moved = root.buffer.data.view(f32).reshape(state[0].shape)
    assert nmse(got, outputs) < EXACT
    assert nmse(moved, state[0]) < EXACT
    assert np.isnan(untouched).all()
    assert view_of(there).address == root.buffer.base


# ---- SSM_SCAN


def scan(
    n: int, dim: int, n_head: int, n_group: int, n_tokens: int, n_seqs: int, slots: int = 1
) -> Tensor:
    cells = n_seqs + 2
    x, dt = normal(n_seqs, n_tokens, n_head, dim), 4 * normal(n_seqs, n_tokens, n_head)
    dt.reshape(-1)[::7] = 25  # softplus is the identity above 20
    b, c = normal(n_seqs, n_tokens, n_group, n), normal(n_seqs, n_tokens, n_group, n)
    a = -RNG.random((n_head, n if dim == 1 else 1), f32)
    ids = RNG.permutation(cells)[:n_seqs].astype(np.int32)
    state = normal(cells, n_head, dim, n)
    return ops.ssm_scan(*map(leaf, (state, x, dt, a, b, c, ids)), slots)


@pytest.mark.parametrize(
    "n, dim, n_head, n_group",
    [(16, 1, 37, 1), (5, 1, 8, 1), (128, 64, 4, 2), (128, 20, 6, 3), (33, 7, 2, 1)],
)
@pytest.mark.parametrize("n_tokens", [1, 9])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_scan(n, dim, n_head, n_group, n_tokens, n_threads):
    node = scan(n, dim, n_head, n_group, n_tokens, 2)
    assert nmse(run(node, n_threads), meaning(node)) < EXACT


@pytest.mark.parametrize("n_tokens", [1, 3, 8])
def test_scan_snapshots(n_tokens):
    node = scan(32, 8, 4, 2, n_tokens, 2, slots=4)
    assert nmse(run(node), meaning(node)) < EXACT


# ---- SSM_CONV


@pytest.mark.parametrize("d_conv", [1, 3, 4, 9])
@pytest.mark.parametrize("n_channels", [1, 15, 16, 100, 1100])
@pytest.mark.parametrize("n_tokens", [1, 2, 16, 37])
def test_conv(d_conv, n_channels, n_tokens):
    x, w = normal(2, n_channels, d_conv - 1 + n_tokens), normal(n_channels, d_conv)
    node = ops.ssm_conv(leaf(x), leaf(w))
    for n_threads in (1, 3):
        assert nmse(run(node, n_threads), meaning(node)) < EXACT


def test_conv_of_a_part_of_longer_rows():
    longer = leaf(normal(2, 40, 10))
    for n_tokens in (1, 5):
        part = ops.view_3d(longer, 3 + n_tokens, 40, 2, longer.nb[1], longer.nb[2], 8)
        node = ops.ssm_conv(part, leaf(normal(40, 4)))
        assert nmse(run(node), meaning(node)) < EXACT


# ---- the same tests, and those of attention, for a lesser CPU


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="x86 only")
@pytest.mark.skipif("LLAMA_PY_CPU" in os.environ, reason="already a chosen CPU")
def test_other_cpu():
    here = Path(__file__)
    environment = {**os.environ, "LLAMA_PY_CPU": "avx2"}
    files = [here, here.with_name("test_attention.py")]
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-k",
            "not types",
            *files,
        ],
        env=environment,
        cwd=here.parents[2],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert run.returncode == 0, run.stdout + run.stderr
