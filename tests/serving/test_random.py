"""Whatever comes in whatever order, every answer is the right one, and nothing is lost."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

import pytest

from llama_py.serving import Engine
from tests.serving.engines import WAIT, Asked, alone, ask, engine, request
from tests.support.live_models import tokens

N = 24
STEMS = [tokens(n, seed) for seed, n in enumerate([45, 20, 33])]


@cache
def expected(name: str, stem: int, n: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A prompt that begins like others, and its answer."""
    ids = [*STEMS[stem][:n], *tokens(seed, 7 + seed)]
    return tuple(ids), tuple(alone(name, ids, N))


def check(name: str, rng: Random, made: Engine, folder: Path, n_turns: int) -> None:
    asked = list[tuple[Asked, tuple[int, ...], int]]()
    files = list[Path]()
    for _ in range(n_turns):
        act = rng.random()
        if act < 0.6:
            how = rng.randrange(3), rng.choice([5, 16, 20]), rng.choice([1, 4])
            ids, answer = expected(name, *how)
            n = rng.choice([1, 3, N])
            slot = rng.choice([-1, -1, -1, rng.randrange(made.n_slots)])
            how_scored = rng.choice([None, None, 0])
            one = request(
                ids, n, id_slot=slot, cache_prompt=rng.random() < 0.9, prompt_logprobs=how_scored
            )
            asked.append((ask(made, one), answer, n))
        elif act < 0.75 and asked:
            handle = rng.choice(asked)[0].handle
            assert handle is not None
            handle.cancel()
        elif act < 0.85 and asked:
            one = rng.choice(asked)[0]
            one.until(0) if not one.events else one.end()
        elif act < 0.9:
            files.append(folder / f"{len(files)}.bin")
            made.save_slot(rng.randrange(made.n_slots), files[-1]).exception(WAIT)
        elif act < 0.95 and files and (file := rng.choice(files)).exists():
            made.restore_slot(rng.randrange(made.n_slots), file).exception(WAIT)
        elif act < 0.97:
            made.erase_slot(rng.randrange(made.n_slots)).result(WAIT)
        else:
            made.embed([tokens(9, 1)]).result(WAIT)
    for one, answer, n in asked:
        end = one.end()
        assert end.error is None
        assert tuple(one.tokens) == answer[: len(one.tokens)]
        assert len(one.tokens) == n or end.finish_reason == "cancelled"
    assert all(slot.state == "idle" for slot in made.slots())


@pytest.mark.parametrize(
    ("name", "seed"), [("llama-dense", 0), ("gemma3-dense", 1), ("qwen35-dense", 0)]
)
def test_anything_in_any_order(name: str, seed: int, tmp_path: Path) -> None:
    rng = Random(f"{name} {seed}")
    unified = rng.random() < 0.5
    with engine(
        name,
        kv_unified=unified,
        n_ctx=256 if unified else 1024,
        n_batch=64,
        checkpoint_min_step=rng.choice([0, 4, 16]),
        cache_ram=rng.choice([0, 1, 8192]),
    ) as made:
        check(name, rng, made, tmp_path, 60)
