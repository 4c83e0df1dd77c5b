"""Streams, models, conversations and the command line with drafts: the same answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, GGUFError, ModelError
from llama_py import Conversation
from llama_py.batch import F32
from llama_py.decoding.prefix_cache import PrefixCache
from llama_py.decoding.sequences import Sequences
from llama_py.sampler import Sampler
from llama_py_tools.generate import cli
from tests.support.commands import DEMO, demo_with_template, tiny_model

PROMPT = "ROMEO:\nO, O, O, "
N = 48
SHORT = {  # n-grams of a text of a few dozen tokens
    "spec_ngram_simple_size_n": 2,
    "spec_ngram_simple_size_m": 5,
    "spec_ngram_map_k_size_n": 2,
    "spec_ngram_map_k_size_m": 5,
    "spec_ngram_map_k4v_size_n": 2,
    "spec_ngram_map_k4v_size_m": 5,
    "spec_ngram_mod_n_match": 2,
    "spec_ngram_mod_n_min": 1,
    "spec_ngram_mod_n_max": 5,
}
TEMPLATE = (
    "{% for m in messages %}{{ 'ROMEO' if m.role == 'assistant' else m.role }}:{{ m.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}ROMEO:{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[llama_py.Model]:
    path = demo_with_template(tmp_path_factory.mktemp("chat"), TEMPLATE)
    with llama_py.load(path, load_mtp=True) as model:
        yield model


def answer(ctx: llama_py.Context, prompt: Any = PROMPT, **options: Any) -> list[int | None]:
    return [p.token for p in llama_py.stream(ctx, prompt, **options)]


@pytest.fixture(scope="module")
def expected(model: llama_py.Model) -> list[int | None]:
    return answer(model.context(256), max_tokens=N)


WAYS = [
    "draft-mtp",
    "draft-simple",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    ("ngram-simple", "draft-mtp"),
    "draft-mtp,draft-simple",
    "none",
]


@pytest.mark.parametrize(
    ("types", "n_rs_seq"),
    [*((types, 0) for types in WAYS), *((types, 3) for types in WAYS if "draft-mtp" in types)],
)
def test_every_way_to_draft(
    model: llama_py.Model, types: str | Sequence[str], n_rs_seq: int, expected: list[int | None]
) -> None:
    ctx = model.context(256, n_rs_seq=n_rs_seq)
    options = {**SHORT, "model_draft": DEMO if "draft-simple" in types else None}
    assert answer(ctx, max_tokens=N, spec_type=types, **options) == expected
    assert ctx.memory.seq_pos_max(0) == len(model.tokenize(PROMPT)) + N - 2
    if types == "none":
        assert Sequences.for_context(ctx).drafts is None
        return
    first = next(iter(Sequences.for_context(ctx).statistics.values()))
    assert first.n_accepted > 5
    if types == "draft-mtp":
        assert (Sequences.for_context(ctx).rollback.n_checkpoints > 0) == (n_rs_seq == 0)
    assert types != "draft-simple" or first.rate == 1  # it is the model itself


@pytest.mark.parametrize(
    "how",
    [
        {"repeat_penalty": 1.1},
        {"dry_multiplier": 1.0, "dry_allowed_length": 1, "xtc_probability": 0.3},
        {"mirostat": 1, "mirostat_ent": 3.0},
        {"mirostat": 2, "mirostat_ent": 3.0},
        {"sampler_seq": "kma", "adaptive_target": 0.5},
    ],
    ids=lambda how: next(iter(how)) + str(next(iter(how.values()))),
)
def test_a_sampler_and_processors_choose_as_without(
    model: llama_py.Model, how: dict[str, Any]
) -> None:
    def no_o(ids: Sequence[int], logits: F32) -> F32:
        changed = logits.copy()
        changed[[id for id in ids[-3:]]] = -np.inf
        return changed

    def options() -> dict[str, Any]:
        params = llama_py.SamplingParams(seed=3, **how)
        sampler = Sampler(params, model.hparams.n_vocab, model.tokenizer)
        return {"sampler": sampler, "logits_processors": [no_o], "max_tokens": 30, "logprobs": 2}

    plain = [*llama_py.stream(model.context(256), PROMPT, **options())]
    ctx = model.context(256, n_rs_seq=3)
    drafted = [*llama_py.stream(ctx, PROMPT, **options(), spec_type="draft-mtp")]
    assert [p.token for p in drafted] == [p.token for p in plain]
    assert [p.text for p in drafted] == [p.text for p in plain]
    for a, b in zip(plain, drafted, strict=True):
        assert b.logprob == pytest.approx(a.logprob, abs=1e-3)
        assert [id for id, _ in b.top] == [id for id, _ in a.top]


@pytest.mark.parametrize("n_rs_seq", [0, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
def test_an_answer_may_end_within_a_draft(
    model: llama_py.Model, n: int, n_rs_seq: int, expected: list[int | None]
) -> None:
    """The caller leaves; then the sequence goes on from there."""
    ctx = model.context(256, n_rs_seq=n_rs_seq)
    stream = llama_py.stream(ctx, PROMPT, spec_type="draft-simple", model_draft=model)
    found = [next(stream).token for _ in range(n)]
    stream.close()  # type: ignore[attr-defined]
    assert found == expected[:n]
    assert ctx.memory.seq_pos_max(0) == len(model.tokenize(PROMPT)) + n - 2
    more = answer(ctx, found[-1:], max_tokens=4, spec_type="draft-simple", model_draft=model)
    assert more == expected[n : n + 4]


def test_a_full_context(model: llama_py.Model) -> None:
    prompt = [5, 6, 7] * 80
    plain = [*llama_py.stream(model.context(256), prompt)]
    ctx = model.context(256, n_rs_seq=3)
    drafted = [*llama_py.stream(ctx, prompt, spec_type="ngram-cache,draft-mtp")]
    assert [p.token for p in drafted] == [p.token for p in plain]
    assert len(plain) == 17
    assert drafted[-1].finish_reason == "length"
    for n in (0, 1):
        ctx.clear()
        pieces = [*llama_py.stream(ctx, [1], max_tokens=n, spec_type="draft-mtp", seq_id=0)][-1:]
        assert pieces[0].finish_reason == "length"


def test_models_and_conversations(model: llama_py.Model) -> None:
    how = {"temp": 0.0, "max_tokens": 12}
    texts = {}
    for types in ("", "draft-mtp", "ngram-cache"):
        texts[types] = [model.generate(p, spec_type=types or (), **how) for p in (PROMPT, "O ")]
        talk = Conversation(model.context(256, n_rs_seq=3))
        for line in ("Speak!", "Again!"):
            pieces = talk.ask(line, max_tokens=9, spec_type=types or ())
            texts[types].append("".join(piece.text for piece in pieces))
        texts[types].append(str(talk.prefix.n_reused))
    assert texts[""] == texts["draft-mtp"] == texts["ngram-cache"]
    model._stop()


@pytest.mark.parametrize("types", ["draft-mtp", "ngram-cache,draft-simple"])
@pytest.mark.parametrize("n_rs_seq", [0, 8])
def test_states_are_kept_at_the_same_places(
    model: llama_py.Model, types: str, n_rs_seq: int
) -> None:
    """Drafts end where a snapshot is due."""
    ids = model.tokenize(PROMPT)
    places, texts = [], []
    for how in ({}, {"spec_type": types, "model_draft": model}):
        ctx = model.context(256, n_rs_seq=n_rs_seq, checkpoint_min_step=5)
        told = PrefixCache.for_context(ctx).start(ids)
        texts.append(answer(ctx, ids[told.n_reused :], max_tokens=29, **how))
        held = [*ids, *texts[-1]][: ctx.memory.seq_pos_max(0) + 1]
        assert PrefixCache.for_context(ctx).tokens(0) == held
        places.append(
            [node.end for node, _ in PrefixCache.for_context(ctx).snapshots.find_states(0)]
        )
    assert texts[0] == texts[1]
    assert places[0] == places[1]
    assert max(places[0]) > len(ids) + 20


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["-c", "256", "--temp", "0", "-n", "12", "-p", PROMPT]
    shown = []
    for more in ([], ["--spec-type", "ngram-cache,draft-mtp", "--spec-draft-n-max", "2"]):
        assert cli.main([*quick, *more]) == 0
        shown.append(capsys.readouterr())
    assert shown[0].out == shown[1].out
    lines = shown[1].err.splitlines()[-2:]
    assert lines[0].startswith("ngram-cache: drafted ")
    assert lines[1].startswith("draft-mtp: drafted ")
    assert "by position" in lines[1]
    assert lines[1].endswith(" tokens per verification")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"spec_type": "magic"}, ModelError, "spec_type must be a list of none, draft-d"),
        ({"spec_type": "draft-mtp"}, ContextError, "they are not loaded, use load_mtp=True"),
        ({"spec_type": "draft-simple"}, ContextError, "pass it as model_draft"),
        (
            {"spec_type": "ngram-mod", "model_draft": DEMO},
            ContextError,
            "does not use a draft model",
        ),
        (
            {"spec_type": "none", "model_draft": DEMO},
            ContextError,
            "none does not use a draft model",
        ),
        (
            {"spec_type": "draft-mtp", "spec_draft_n_max": 0},
            ModelError,
            "spec_draft_n_max must be .*got 0",
        ),
        ({"spec_type": "draft-simple", "model_draft": "missing.gguf"}, GGUFError, "missing.gguf"),
    ],
)
def test_what_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with llama_py.load() as model, pytest.raises(error, match=message):
        answer(model.context(256), max_tokens=2, **options)


def test_a_file_says_how_it_drafts(model: llama_py.Model, tmp_path: Any) -> None:
    """One of NextN layers does; another may be for anything."""
    ctx = model.context(256)
    answer(ctx, max_tokens=3, model_draft=DEMO)
    assert [*Sequences.for_context(ctx).statistics] == ["draft-mtp"]
    with pytest.raises(ContextError, match="spec_type = none does not use a draft model"):
        answer(model.context(256), model_draft=tiny_model(tmp_path))


def test_another_vocabulary(model: llama_py.Model, tmp_path: Any) -> None:
    other = tiny_model(tmp_path)
    with pytest.raises(ModelError, match="has a different vocabulary"):
        answer(model.context(256), spec_type="draft-simple", model_draft=other)
