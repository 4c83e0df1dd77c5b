"""Blocks drafted at once: those of the plain loop, and the text is as without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from dev.tiny_models.dflash import LILICORR
from ggml_py.errors import ContextError, HParamsError, ModelError, WeightsError
from llama_py.batch import Batch
from llama_py.context import Context
from llama_py.decoding.drafting.drafter import DraftRequest
from llama_py.decoding.drafting.drafters._blocks import BlockDrafter
from llama_py.decoding.speculator import Speculator
from llama_py.model import Model
from tests.speculative.scripted import greedy, plain, run
from tests.support.live_models import EXACT, live, made, model_of, nmse, random, tokens
from tests.support.split_models import shared

KINDS = {
    "own": "dflash",
    "pairs": "dflash",
    "candidates": "dflash",
    "few": "dflash",
    "markov": "dspark",
    "some": "dspark",
    "streams": "dspark",
}
FIRST = dict.fromkeys(KINDS, 1) | {"markov": 0, "streams": 0}
PAIRS = {"pairs": 4, "candidates": 4, "few": 2}  # candidates of a position


def how(kind: str, **more: Any) -> dict[str, Any]:
    return {"spec_type": f"draft-{KINDS[kind]}", "spec_draft_adaptive": False, **more}


@cache
def draft(kind: str, **keys: Any) -> Model:
    lists = {k: [*v] if isinstance(v, tuple) else v for k, v in keys.items()}
    return model_of(*made(f"dflash-{kind}", **lists), "cpu")


def by_hand(target: Model, kind: str, text: Sequence[int], n: int) -> list[int]:
    """The plain loop: the model reads the text but its last token, the draft what its layers get,
    and then a block."""
    trunk, model, first = Context(target, **EXACT), draft(kind), FIRST[kind]
    layers = model.architecture.draft_rules.target_layers
    trunk.set_embeddings_layer_inp(layers)
    trunk.decode(text[:-1])
    rows = [trunk.layer_inp[il] for il in layers]
    ctx = Context(model, **EXACT, target=trunk)
    ctx.set_embeddings_nextn(True)
    end, features, states = len(text) - 1, np.concatenate(rows, axis=1), None
    ctx.decode(Batch(embd=features, pos=range(end)), "none")
    if kind in ("candidates", "few"):  # whole blocks, with the state before them
        ctx.encode(Batch(embd=features[-1:]))
        n = model.architecture.draft_rules.block.size - 1
        assert ctx.h_nextn is not None
        states = np.repeat(ctx.h_nextn, n + 1, axis=0)
    ids = [text[-1], *[1] * (n + first - 1)]
    batch = Batch(ids, states, pos=range(end, end + len(ids)))
    logits = ctx.decode(batch, "all")[first:]
    if kind not in PAIRS:
        return [greedy(row) for row in logits]
    found, at, k = [], 0, PAIRS[kind]
    assert ctx.h_nextn is not None
    for row in ctx.h_nextn[1:]:
        at = int(row[k : k + k * k].reshape(k, k)[at].argmax())
        found.append(int(row[at]))
    return found


@pytest.mark.parametrize(
    ("target", "kind", "n_seq", "unified"),
    [
        ("qwen3-dense", "own", 1, False),
        ("llama-dense", "markov", 3, False),
        ("gpt-oss-moe", "some", 2, False),
        ("qwen3next-moe", "pairs", 2, False),
        ("qwen3-dense", "pairs", 2, True),
        ("qwen3next-moe", "candidates", 2, False),
        ("qwen3-dense", "candidates", 1, True),
        ("llama-dense", "few", 3, False),
        ("deepseek4-moe", "streams", 2, False),
    ],
)
def test_drafts_are_those_of_the_plain_loop(
    target: str, kind: str, n_seq: int, unified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[list[int], list[int]]] = []
    plainly = BlockDrafter.draft

    def watched(self: Any, requests: Sequence[DraftRequest]) -> Mapping[int, list[int]]:
        found = plainly(self, requests)
        asked.extend((r.ids.tolist(), found[r.seq_id]) for r in requests)
        return found

    monkeypatch.setattr(BlockDrafter, "draft", watched)
    one, sizes = live(target, "cpu"), {**EXACT, "n_ctx": 256 * n_seq}
    ctx = Context(one, **sizes, n_seq_max=n_seq, kv_unified=unified)
    more = how(kind, spec_draft_n_max=5)
    with Speculator(ctx, **more, model_draft=draft(kind)) as speculator:
        run(speculator, {s: tokens(14 + 2 * s, s) for s in range(n_seq)}, 6)
        run(speculator, {0: [3, 1, 4]}, 3)
    assert len(asked) >= 4
    for text, guess in asked:
        assert guess == by_hand(one, kind, text, 5)[: len(guess)]
        assert len(guess) == (3 if kind == "few" else 5)


@pytest.mark.parametrize("n_rs_seq", [0, 3])
@pytest.mark.parametrize("target", ["llama-dense", "qwen3next-moe", "lfm2-dense"])
def test_the_text_is_as_without(target: str, n_rs_seq: int) -> None:
    """Also where states go back to a checkpoint; of one draft tokens are right."""
    prompt, answer = plain(target, 40)
    frequent = max(answer, key=answer.count)
    metadata, arrays = made("dflash-some")
    arrays["d2t"] = np.array([frequent])
    for name in ("output.weight", "markov_w2.weight"):
        arrays[name] = arrays[name][:, :, :1]
    models = (
        ("pairs", draft("pairs")),
        ("candidates", draft("candidates")),
        ("some", model_of(metadata, arrays, "cpu")),
    )
    for kind, one in models:
        ctx = Context(live(target, "cpu"), **EXACT, n_rs_seq=n_rs_seq)
        with Speculator(ctx, **how(kind), model_draft=one) as speculator:
            assert run(speculator, {0: prompt}, 40)[0][:40] == answer
            counts = next(iter(speculator.statistics.values()))
    assert counts.n_accepted > 0
    assert not ctx.cparams.gives_more


def test_lengths_and_certainty() -> None:
    """No longer than a block, and not beyond what it is sure of."""
    counts = {}
    for kind, n_max, p_min in (
        ("own", 20, 0.0),
        ("markov", 20, 0.0),
        ("markov", 4, 0.55),
        ("pairs", 5, 0.9),
        ("candidates", 20, 0.0),
        ("candidates", 5, 0.9),
    ):
        ctx = Context(live("llama-dense", "cpu"), **EXACT)
        more = how(kind, spec_draft_n_max=n_max, spec_draft_p_min=p_min)
        with Speculator(ctx, **more, model_draft=draft(kind)) as speculator:
            run(speculator, {0: tokens(12)}, 12)
            counts[kind, p_min] = next(iter(speculator.statistics.values())).drafted_at
    assert (len(counts["own", 0.0]), len(counts["markov", 0.0])) == (7, 8)
    assert sum(counts["markov", 0.55]) < 4 * 12
    assert sum(counts["pairs", 0.9]) < 5 * 12
    assert len(counts["candidates", 0.0]) == 7
    assert sum(counts["candidates", 0.9]) < 5 * 12


@pytest.mark.parametrize("kind", ["own", "streams", "candidates"])
def test_drafts_are_the_same_where_devices_share_layers(kind: str) -> None:
    rows = []
    for model in (draft(kind), shared(f"dflash-{kind}", (1, 1))):
        ctx = Context(model, **EXACT, target=Context(live("llama-dense", "cpu"), **EXACT))
        states = random(20, model.hparams.n_embd_inp)
        ctx.decode(Batch(embd=states, pos=range(20)), "none")
        rows.append(ctx.decode(Batch([3, 1, 1], pos=range(20, 23)), "all"))
    assert nmse(*rows) < 1e-12


def test_what_does_not_fit() -> None:
    for target, kind, options, keys, message in (
        (
            "llama-dense",
            "own",
            {"spec_type": "draft-dspark"},
            {},
            "needs a draft model of its type",
        ),
        ("llama-dense", "some", {"spec_draft_p_min": 0.5}, {}, "has no draft probabilities"),
        ("gemma4-shared", "own", {}, {}, "for embedding length 64, but live.gguf has 32"),
        ("llama-dense", "own", {}, {"target_layers": (0, 3)}, "do not expose the input of layer 3"),
    ):
        ctx = Context(live(target, "cpu"), **EXACT)
        with pytest.raises((ContextError, ModelError), match=message) as e:
            Speculator(ctx, **how(kind, **options), model_draft=draft(kind, **keys))
        assert "\n" not in str(e.value) and not ctx.cparams.gives_more
    metadata, arrays = made("dflash-own")
    del metadata["tokenizer.ggml.mask_token_id"]
    with pytest.raises(ModelError, match="has no mask token"):
        ctx = Context(live("llama-dense", "cpu"), **EXACT)
        Speculator(ctx, **how("own"), model_draft=model_of(metadata, arrays, "cpu"))


def test_blocks_of_several_lengths() -> None:
    trunk = Context(live("llama-dense", "cpu"), **EXACT)
    options = {**EXACT, "n_ctx": 512, "n_seq_max": 2, "kv_unified": True}
    ctx = Context(draft("markov"), **options, target=trunk)
    with pytest.raises(ContextError, match="3 tokens of 2 sequences: this model drafts blocks of"):
        ctx.decode(Batch([3, 1, 4], seq_ids=[(0,), (0,), (1,)]))


@pytest.mark.parametrize(
    ("kind", "keys", "error", "message"),
    [
        (
            "own",
            {"hyper_connection.count": 4},
            HParamsError,
            "dflash.attention.q_lora_rank is missing",
        ),
        ("streams", {"hyper_connection.count": 2}, HParamsError, "must be from 4 to 4"),
        ("streams", {"expert_gating_func": 2}, HParamsError, "must be 4"),
        (
            "streams",
            {"expert_count": 0, "expert_used_count": 0},
            HParamsError,
            "must be at least 1",
        ),
        (
            "streams",
            {"attention.compress_ratios": [0, 4]},
            HParamsError,
            "must each be 0 for a block draft",
        ),
        ("streams", {"attention.head_count_kv": 2}, HParamsError, "must be 1"),
        ("streams", {"attention.output_group_count": 3}, HParamsError, "must divide head_count"),
        (
            "streams",
            {"rope.dimension_sections": [8, 0, 0, 0]},
            HParamsError,
            "must be 0 for a model with several streams",
        ),
        (
            "candidates",
            {"/lilicorr.candidate_topk": 8},
            HParamsError,
            "k must be at most 64 tokens, and k . .k . 1. at most 64 dimensions",
        ),
        (
            "candidates",
            {"/lilicorr.num_heads": 5},
            HParamsError,
            "must divide lilicorr.hidden_size",
        ),
        ("candidates", {"/lilicorr.factor_dim": 0}, HParamsError, "must be at least 1"),
        ("candidates", {"block_size": 1}, HParamsError, "must be at least 2"),
        ("streams", LILICORR, HParamsError, "must be 0 for a model with LiLiCorr"),
        ("own", {"hidden_activation": "relu"}, HParamsError, "must be one of|silu"),
        ("own", {"block_size": 0}, HParamsError, "from 1 to 4096"),
        (
            "own",
            {"attention.sliding_window_pattern": [False, False]},
            HParamsError,
            "at least one layer a window",
        ),
        ("own", {"target_layers": []}, HParamsError, "must have the layers"),
        (
            "pairs",
            {"selector_top_k": 8},
            WeightsError,
            "= 8 needs 72 dimensions, but the model has 64",
        ),
        ("pairs", {"conv_group_size": 12}, WeightsError, "must divide 64 dimensions, got 12"),
        ("pairs", {"selector_rank": 0}, WeightsError, "pair scores are missing"),
    ],
)
def test_keys_that_do_not_fit(
    kind: str, keys: dict[str, Any], error: type[Exception], message: str
) -> None:
    metadata, arrays = made(f"dflash-{kind}")
    metadata |= {k[1:] if k[0] == "/" else f"dflash.{k}": v for k, v in keys.items()}
    with pytest.raises(error, match=message):
        model_of(metadata, arrays, "cpu")
