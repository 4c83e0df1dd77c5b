"""Architectures against themselves, and with weights in other forms."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from ggml_py.errors import ContextError, HParamsError, WeightsError
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.hparams.cparams import CParams
from llama_py.memory.specs import KVCacheSpec
from llama_py.model import Model
from llama_py.params import ContextParams
from tests.support.graph_models import CONTINUING, declared
from tests.support.live_models import (
    EXACT,
    N_VOCAB,
    PROMPT,
    Arrays,
    changed,
    live,
    logits,
    model_of,
    nmse,
    random,
    take,
    tokens,
    unsplit,
)

OLD = ("llama-dense", "llama-moe", "qwen3-dense", "qwen35moe-moe")
NEW = [n for n in CONTINUING if n not in OLD]


@cache
def at_once(name: str, seed: int = 0) -> np.ndarray:
    """The logits of a text of 13 tokens in one ubatch, alone: PROMPT's, or another's."""
    return Context(live(name), **EXACT).decode(tokens(len(PROMPT), seed), logits="all")


@pytest.mark.parametrize("name", NEW)
def test_sequences_in_shared_cells(name: str) -> None:
    """Two prompts in one ubatch, then a token of each. test_parallel.py uses separate cells."""
    ctx = Context(live(name), **EXACT, n_seq_max=3, kv_unified=True)
    n, other, pair = len(PROMPT), tokens(len(PROMPT), seed=5), (0, 2)
    seqs = [(s,) for s in pair for _ in range(n - 1)]
    ctx.decode(Batch(PROMPT[:-1] + other[:-1], seq_ids=seqs), logits="none")
    both = [PROMPT[-1], other[-1]]
    found = ctx.decode(Batch(both, seq_ids=[(s,) for s in pair]), logits="all")
    for alone, row in zip((at_once(name), at_once(name, seed=5)), found, strict=True):
        assert nmse(alone[-1], row) < 1e-9
    assert nmse(found[0], found[1]) > 1e-3


def compressed_queries(metadata: dict[str, Any], arrays: Arrays) -> None:
    """attn_q of layer 1 made of two matrices with a norm between."""
    arch = metadata["general.architecture"]
    metadata[f"{arch}.attention.q_lora_rank"] = 32
    n_q, n_embd = take(arrays, "blk.1.attn_q").shape[-2:]
    arrays["blk.1.attn_q_a.weight"] = random(32, n_embd)
    arrays["blk.1.attn_q_a_norm.weight"] = np.ones(32, np.float32)
    arrays["blk.1.attn_q_b.weight"] = 3 * random(n_q, 32)


class TestLatentAttention:
    @pytest.mark.parametrize("flash_attn", ["on", "off"])
    @pytest.mark.parametrize("name", ["deepseek2-moe", "kimi-linear-moe", "kimi-k3-moe"])
    def test_unpacked_keys_give_the_same_as_latent_ones(self, name: str, flash_attn: str) -> None:
        latent = logits(live(name), flash_attn=flash_attn)
        model = model_of(*changed(name, unsplit))
        (kept,) = model.architecture.memory_spec(1)
        assert isinstance(kept, KVCacheSpec)
        assert (kept.n_head_kv, kept.n_embd_head_k, kept.n_embd_head_v) == (2, 40, 24)
        # flash attention sees F16 keys, which are other numbers here
        close = 1e-9 if flash_attn == "off" else 1e-4
        assert nmse(latent, logits(model, flash_attn=flash_attn)) < close

    def test_latent_keys_have_no_values_beside_them(self) -> None:
        ctx = Context(live("deepseek2-moe"), n_ctx=256)
        (kv,) = ctx.memory.caches.values()
        assert kv.tensors.k[0].ne[0] == 32 + 16
        assert not kv.tensors.v
        with pytest.raises(
            ContextError, match=r"type_k and type_v must be the same, .* got q8_0 and f16"
        ):
            Context(live("deepseek2-moe"), n_ctx=256, type_k="q8_0")

    def test_kimi_with_compressed_queries(self) -> None:
        latent = logits(model_of(*changed("kimi-linear-moe", compressed_queries)))
        unpacked = model_of(*changed("kimi-linear-moe", compressed_queries, unsplit))
        assert nmse(latent, logits(unpacked)) < 1e-9
        assert nmse(latent, logits(live("kimi-linear-moe"))) > 1e-3

    def test_queries_grow_with_the_position(self) -> None:
        """attention.temperature_scale of the larger Mistrals."""
        metadata, arrays = changed("deepseek2-moe")
        metadata["deepseek2.attention.temperature_scale"] = 0.5
        metadata["deepseek2.attention.temperature_length"] = 8
        plain, found = logits(live("deepseek2-moe")), logits(model_of(metadata, arrays))
        assert nmse(plain[:8], found[:8]) < 1e-12
        assert nmse(plain[8:], found[8:]) > 1e-6

    @pytest.mark.parametrize(("log_mul", "factor"), [(0.1, 1.0), (0.0707, 1.0), (0.0, 1.3689)])
    def test_yarn_factor(self, log_mul: float, factor: float) -> None:
        """With factor 40 ggml multiplies by 1 + 0.1 ln 40 = 1.3689, which only models without a
        multiplier want."""
        metadata, _ = declared("deepseek2-moe")
        metadata |= {
            "deepseek2.rope.scaling.type": "yarn",
            "deepseek2.rope.scaling.factor": 40.0,
            "deepseek2.rope.scaling.yarn_log_multiplier": log_mul,
        }
        hparams = type(live("deepseek2-moe").hparams)(metadata, "deepseek2")
        found = CParams.resolve(hparams, ContextParams(n_ctx=256)).yarn_attn_factor
        assert found * (1 + 0.1 * np.log(40)) == pytest.approx(factor, rel=1e-4)


class TestKimi:
    def test_merged_projections(self) -> None:
        metadata, arrays = changed("kimi-linear-moe")
        for p in ("blk.0", "blk.2"):
            parts = [take(arrays, f"{p}.attn_{part}") for part in "qkv"]
            arrays[f"{p}.attn_qkv.weight"] = np.concatenate(parts, axis=-2)
        assert nmse(logits(live("kimi-linear-moe")), logits(model_of(metadata, arrays))) < 1e-12

    def test_without_shared_experts(self) -> None:
        metadata, arrays = changed("kimi-linear-moe")
        for name in [name for name in arrays if "_shexp." in name]:
            del arrays[name]
        found = logits(model_of(metadata, arrays))
        assert np.isfinite(found).all()
        assert nmse(logits(live("kimi-linear-moe")), found) > 1e-4

    def test_one_shared_matrix_alone_is_missing_others(self) -> None:
        metadata, arrays = changed("kimi-linear-moe")
        del arrays["blk.1.ffn_down_shexp.weight"]
        with pytest.raises(WeightsError, match=r"1 missing: blk\.1\.ffn_down_shexp"):
            model_of(metadata, arrays)

    @pytest.mark.parametrize("name", ["kimi-linear-moe", "kimi-k3-moe"])
    def test_biases_of_queries_keys_and_values(self, name: str) -> None:
        """llama.cpp leaves them out by default, so tiny models have none."""
        found = []
        for merged, factor in ((False, 0), (False, 1), (True, 1)):
            metadata, arrays = changed(name)
            for p in ("blk.0", "blk.2"):
                n_out = arrays[f"{p}.attn_q.weight"].shape[-2]
                biases = [factor * i * random(n_out) for i in (1, 2, 3)]
                if merged:
                    parts = [take(arrays, f"{p}.attn_{part}") for part in "qkv"]
                    arrays[f"{p}.attn_qkv.weight"] = np.concatenate(parts, axis=-2)
                    arrays[f"{p}.attn_qkv.bias"] = np.concatenate(biases)
                else:
                    for part, bias in zip("qkv", biases, strict=True):
                        arrays[f"{p}.attn_{part}.bias"] = bias
            found.append(logits(model_of(metadata, arrays, like="transformers")))
            assert nmse(logits(live(name)), logits(model_of(metadata, arrays))) < 1e-12
        plain = logits(model_of(*changed(name), like="transformers"))
        assert nmse(plain, found[0]) == 0
        assert nmse(found[0], found[1]) > 1e-5
        assert nmse(found[1], found[2]) < 1e-12

    def test_k3_goes_back_a_few_tokens(self) -> None:
        ctx = Context(live("kimi-k3-moe"), **EXACT, n_rs_seq=3)
        expected = ctx.decode(PROMPT, logits="all")
        assert ctx.memory.seq_rm(0, len(PROMPT) - 2)
        found = ctx.decode(PROMPT[-2:], logits="all")
        assert nmse(expected[-2:], found) < 1e-9
        with pytest.raises(ContextError, match="needs delta_net fused"):
            Context(live("kimi-k3-moe"), **EXACT, n_rs_seq=3, forms={"delta_net": "chunked"})

    def test_k3_mixes_what_every_layer_banked(self) -> None:
        metadata, arrays = changed("kimi-k3-moe")
        metadata["kimi-k3.attn_res.block_size"] = 1
        model = model_of(metadata, arrays)
        assert nmse(logits(live("kimi-k3-moe")), logits(model)) > 1e-4
        assert nmse(logits(model), logits(model, n_ubatch=4)) < 1e-9


class TestWindows:
    """Gemma 3 with a window of 4 in each of its three layers: a token sees 10 tokens in all."""

    @staticmethod
    def model(pattern: list[int]) -> Model:
        metadata, arrays = changed("gemma3-dense")
        metadata["gemma3.attention.sliding_window"] = 4
        metadata["gemma3.attention.sliding_window_pattern"] = pattern
        return model_of(metadata, arrays)

    def test_a_token_sees_its_window_only(self) -> None:
        model = self.model([1, 1, 1])
        expected = logits(model)[-1]
        for i, seen in ((len(PROMPT) - 11, False), (len(PROMPT) - 10, True)):
            ids = list(PROMPT)
            ids[i] = (ids[i] + 1) % N_VOCAB
            found = Context(model, **EXACT).decode(ids)[0]
            assert (nmse(expected, found) > 1e-12) == seen

    def test_cells_out_of_sight_are_used_again(self) -> None:
        model, ids = self.model([1, 0, 1]), tokens(300)
        options = {**EXACT, "n_ctx": 512}
        ctx = Context(model, **options)
        base, swa = ctx.memory.caches.values()
        assert (base.kv_size, swa.kv_size) == (512, 256)
        found = ctx.decode(ids)
        assert swa.seq_pos_min(0) > 0
        assert nmse(Context(model, **{**options, "n_ubatch": 512}).decode(ids), found) < 1e-9

    def test_going_back_needs_the_window(self) -> None:
        ctx = Context(self.model([1, 0, 1]), **{**EXACT, "n_ctx": 512})
        ctx.decode(tokens(300))
        assert not ctx.memory.seq_rm(0, 20)
        assert ctx.memory.seq_pos_max(0) == 299
        assert ctx.memory.seq_rm(0, 298)
        assert ctx.memory.seq_rm(0)

    def test_no_layer_with_a_window_needs_one_cache(self) -> None:
        ctx = Context(self.model([0, 0, 0]), **EXACT)
        assert len(ctx.memory.caches) == 1
        ctx.decode(PROMPT)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("kimi-linear-moe", {"expert_gating_func": 0}, "expert_gating_func must be from 1.*got 0"),
    ("kimi-linear-moe", {"expert_gating_func": 5}, "expert_gating_func must be from 0.*got 5"),
    ("kimi-linear-moe", {"kda.head_dim": 0}, "kda.head_dim must be at least 1.*got 0"),
    ("kimi-k3-moe", {"activation.situ_beta": 0.0}, "situ_beta must be positive.*got 0.0"),
    ("deepseek2-moe", {"attention.kv_lora_rank": 0}, "kv_lora_rank must be at least 1.*got 0"),
    ("deepseek2-moe", {"rope.dimension_count": 192}, "dimension_count must be from 2.*got 192"),
    ("deepseek2-moe", {"expert_count": 0, "expert_used_count": 0}, "expert_count must be.*got 0"),
    (
        "deepseek2-moe",
        {"attention.temperature_scale": 0.1},
        "temperature_length must .*but is missing",
    ),
    ("gemma3-dense", {"attention.key_length_swa": 64}, "must be key_length_swa = 64"),
    ("gemma3-dense", {"rope.dimension_count_swa": 64}, "dimension_count_swa must be.*got 64"),
    ("gpt-oss-moe", {"attention.sliding_window": 0}, "sliding_window must be at least 1.*got 0"),
    ("gpt-oss-moe", {"rope.dimension_count": 16}, "dimension_count must be the head.*got 16"),
    ("mamba-dense", {"ssm.inner_size": 64}, "inner_size must be twice 64.*got 64"),
    ("mamba2-dense", {"ssm.group_count": 3}, "group_count must divide.*got 3"),
    ("mamba2-dense", {"ssm.state_size": 0}, "state_size must be at least 1.*got 0"),
]


@pytest.mark.parametrize(("name", "keys", "message"), BAD)
def test_values_without_sense_are_refused(name: str, keys: dict[str, Any], message: str) -> None:
    metadata, arrays = changed(name)
    arch = metadata["general.architecture"]
    metadata |= {f"{arch}.{key}": value for key, value in keys.items()}
    with pytest.raises(HParamsError, match=message):
        model_of(metadata, arrays)
