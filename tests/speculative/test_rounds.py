"""Texts with drafts are those without, whatever was drafted and wherever it was wrong."""

from __future__ import annotations

import pytest

from llama_py.batch import Batch
from tests.speculative.scripted import N_MAX, context, greedy, plain, run, scripted, wrong_at
from tests.support.live_models import nmse

RECURRENT = [
    "qwen35-dense",
    "qwen35moe-moe",
    "qwen3next-moe",
    "kimi-linear-moe",
    "kimi-k3-moe",
    "mamba-dense",
    "mamba2-dense",
    "rwkv6-fused",
    "lfm2-dense",
    "falcon-h1-dense",
]
OTHERS = ["llama-dense", "gemma3-dense", "deepseek2-moe"]
N = 46  # tokens: a draft of eight is wrong at each of its places, and then right


@pytest.mark.parametrize(
    ("name", "n_rs_seq", "form"),
    [
        *((name, n, "auto") for name in RECURRENT for n in (0, N_MAX)),
        *((name, 0, "auto") for name in OTHERS),
        *((name, n, "slots") for name in RECURRENT[:3] for n in (0, N_MAX)),
    ],
)
def test_a_refusal_at_every_place(name: str, n_rs_seq: int, form: str) -> None:
    prompt, expected = plain(name, N + N_MAX)
    ctx = context(name, n_rs_seq=n_rs_seq, forms={"delta_net": form})
    with scripted(ctx, wrong_at({0: [*prompt, *expected]}, N_MAX)) as made:
        answer = run(made, {0: prompt}, N)[0]
        found = made.statistics["ngram-simple"]
    assert answer == expected[: len(answer)]
    assert found.drafted_at == [found.n_drafts] * N_MAX
    assert found.n_drafts >= N_MAX + 1
    assert found.accepted_at[0] < found.n_drafts
    assert found.accepted_at == sorted(found.accepted_at, reverse=True)
    if name in OTHERS or ctx.cparams.n_rs_seq:
        assert made.rollback.n_checkpoints == 0
    last = ctx.memory.seq_pos_max(0)
    assert last == len(prompt) + len(answer) - 2  # all but the last
    alone = context(name)
    alone.decode([*prompt, *answer[:-1]])
    assert nmse(alone.decode(answer[-1:]), ctx.decode(answer[-1:])) < 1e-9


@pytest.mark.parametrize(
    ("name", "unified", "form"),
    [
        ("qwen35moe-moe", False, "auto"),
        ("qwen3next-moe", True, "auto"),
        ("mamba-dense", False, "auto"),
        ("llama-dense", True, "auto"),
        ("llama-dense", False, "auto"),
        ("qwen35moe-moe", False, "slots"),
        ("qwen3next-moe", True, "slots"),
    ],
)
def test_four_sequences_at_once(name: str, unified: bool, form: str) -> None:
    texts = [plain(name, 30, seed) for seed in range(4)]
    options = {"n_ctx": 1024, "n_seq_max": 4, "kv_unified": unified, "n_rs_seq": 3}
    ctx = context(name, **options, forms={"delta_net": form})
    known = {s: [*prompt, *answer] for s, (prompt, answer) in enumerate(texts)}
    with scripted(ctx, wrong_at(known, 3)) as made:
        answers = run(made, {s: prompt for s, (prompt, _) in enumerate(texts)}, 20)
    for s, (_, expected) in enumerate(texts):
        assert answers[s] == expected[: len(answers[s])]
    assert made.statistics["ngram-simple"].n_accepted > 30


@pytest.mark.parametrize("name", ["qwen35moe-moe", "qwen3next-moe", "llama-dense"])
def test_sequences_that_go_on_in_turn(name: str) -> None:
    """Each loses the guesses of which it was in the middle, and nothing else."""
    texts = [plain(name, 30, seed) for seed in range(3)]
    ctx = context(name, n_ctx=768, n_seq_max=3, n_rs_seq=3)
    known = {s: [*prompt, *answer] for s, (prompt, answer) in enumerate(texts)}
    found: list[list[int]] = [[], [], []]
    with scripted(ctx, wrong_at(known, 3)) as made:
        for s, (prompt, _) in enumerate(texts):
            made.extend(s, prompt)
        for turn in range(36):
            s = turn % 3
            if not made.has_rows(s):
                made.advance([s])
            found[s].append(made.take(s, greedy)[0])
        for s, (prompt, expected) in enumerate(texts):
            made.finish(s)
            assert found[s] == expected[:12]
            assert ctx.memory.seq_pos_max(s) == len(prompt) + 10


@pytest.mark.parametrize("name", ["qwen35moe-moe", "qwen3next-moe"])
def test_another_decode_in_the_middle_of_a_draft(name: str) -> None:
    """It may move states, so that those of earlier tokens are gone."""
    prompt, expected = plain(name, 30)
    ctx = context(name, n_ctx=768, n_seq_max=3, kv_unified=True, n_rs_seq=3)
    found: list[int] = []
    others = Batch([5, 6], seq_ids=[(0,), (2,)])
    with scripted(ctx, wrong_at({1: [*prompt, *expected]}, 3)) as made:
        made.keeps_rows = True
        ctx.decode(Batch([5], seq_ids=[(0,)]))
        made.extend(1, prompt)
        made.advance()
        ctx.decode(Batch([5], seq_ids=[(2,)]))
        while len(found) < 16:
            if not made.has_rows(1):
                made.advance([1])
            found.append(made.take(1, greedy)[0])
            if made.has_rows(1):  # the first time, sequence 2 takes the place of this one
                ctx.decode(others)
        made.finish(1)
    assert found == expected[:16]


def test_drafts_that_do_not_fit_are_left_out() -> None:
    """Cells that sequences share: one lets the other no room for guesses."""
    prompt, expected = plain("llama-dense", 30)
    ctx = context("llama-dense", n_seq_max=2, kv_unified=True)
    ctx.decode(Batch([1] * (256 - 24), seq_ids=[(1,)] * (256 - 24)))
    with scripted(ctx, wrong_at({0: [*prompt, *expected]}, N_MAX)) as made:
        assert run(made, {0: prompt}, 15)[0][:15] == expected[:15]


def test_a_long_prompt_is_read_in_parts() -> None:
    prompt, expected = plain("qwen35moe-moe", 12)
    ctx = context("qwen35moe-moe", n_batch=4, n_ubatch=4, n_rs_seq=2)
    with scripted(ctx, wrong_at({0: [*prompt, *expected]}, N_MAX)) as made:
        answer = run(made, {0: prompt}, 8)[0]
    assert answer == expected[: len(answer)]
    assert made.statistics["ngram-simple"].drafted_at[3:] == []  # with the last token one ubatch


@pytest.mark.parametrize("name", ["qwen3next-moe", "llama-dense"])
def test_what_was_drafted_does_not_outlive_an_interruption(name: str) -> None:
    prompts = {s: plain(name, 20, s) for s in range(2)}
    ctx = context(name, n_ctx=512, n_seq_max=2)
    texts = {s: [*prompt, *answer] for s, (prompt, answer) in prompts.items()}
    lengths = {0: 2, 1: 4}

    def uneven(r: object) -> list[int]:
        return [63] * lengths[r.seq_id]  # type: ignore[attr-defined]

    seen: list[int] = []

    def interrupt(res: object, ubatch: object) -> None:
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with scripted(ctx, uneven) as made:
        for s, (prompt, _) in prompts.items():
            made.extend(s, prompt)
        made.advance()
        for s in prompts:
            made.take(s, lambda row, s=s: texts[s][len(prompts[s][0])])  # type: ignore[misc]
        ctx.on_graph = interrupt
        with pytest.raises(KeyboardInterrupt):
            made.advance()
        for s in prompts:
            made.finish(s)
            assert ctx.memory.seq_pos_max(s) + 1 in (0, len(prompts[s][0]), len(prompts[s][0]) + 1)
