"""Prompts with images, beside others: each answer is as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.batch import F32, Batch, Wanted
from llama_py.context import Context
from llama_py.decoding.prefix_cache.tree import common
from llama_py.params.speculative import SpeculativeParams
from llama_py.serving import TooLong, scheduler
from llama_py.serving.answer import Answer
from llama_py.serving.image_prefill import ImagePrefill, ImageTurns
from llama_py.serving.job import Job
from llama_py.serving.slots import Slot
from llama_py.serving.step_batches import Busy
from llama_py.text.generate import stream
from llama_py.vision import ImageEncoder
from llama_py.vision.prompt import ImagePrompt, Picture
from tests.serving.engines import (
    Asked,
    alone,
    as_given,
    ask,
    ask_all,
    engine,
    note_charges,
    request,
    stall,
)
from tests.support.eyes import HYBRID, picture, seeing
from tests.support.live_models import EXACT, nmse, tokens

AXES = "qwen2vl_merger"  # positions on several axes
KINDS = {
    "gemma3": ("gemma3", None),
    "gemma4v": ("gemma4v", None),
    "llama4": ("llama4", None),
    "pixtral": ("pixtral", None),
    AXES: (AXES, None),
    "qwen3vl": ("qwen3vl_merger", None),
    "hybrid": (HYBRID[1], HYBRID[0]),
}
LARGE = {"n_ubatch": 128}  # for rows that all see each other
Models = Callable[[str], llama_py.Model]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    made: dict[str, llama_py.Model] = {}

    def model(kind: str) -> llama_py.Model:
        if kind not in made:
            made[kind] = seeing(KINDS[kind][0], tmp_path_factory.mktemp(kind), KINDS[kind][1])
        return made[kind]

    yield model
    for one in made.values():
        one.close()


def bare(model: llama_py.Model, seed: int) -> Picture:
    """An image without anything around it."""
    return next(iter(model.build_image_prompt("<__media__>a", [picture(seed)]).media.values()))


def start_of(prompt: ImagePrompt) -> int:
    """The position of the first image."""
    return min(prompt.media)


def first(model: llama_py.Model, ids: Sequence[int]) -> float:
    """How likely the first token is, of a prompt alone."""
    pieces = stream(Context(model, **{**EXACT, **LARGE}), as_given(ids), max_tokens=1, logprobs=0)
    return next(p.logprob for p in pieces if p.logprob is not None)


def scores(one: Asked) -> list[float]:
    return [e.logprob for e in one.events if e.logprob is not None]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_as_if_alone(models: Models, kind: str) -> None:
    model = models(kind)
    prompts = [
        model.build_image_prompt("what <__media__> is?", [picture(1)]),
        tokens(30),
        model.build_image_prompt(
            "<__media__> and <__media__>b", [picture(2, (30, 60)), picture(1)]
        ),
    ]
    with engine(model, **LARGE) as made:
        expected = [alone(model, ids, **LARGE) for ids in prompts]
        firsts = [first(model, ids) for ids in prompts]
        for again in (False, True):
            found = ask_all(made, [request(ids, logprobs=0) for ids in prompts])
            assert [one.tokens for one in found] == expected
            assert np.allclose([scores(one)[0] for one in found], firsts, atol=1e-4)
            for one, ids in zip(found, prompts, strict=True):
                t = one.end().timings
                n = ids.n_tokens if isinstance(ids, ImagePrompt) else len(ids)
                assert t.n_prompt == t.n_done == n
                assert t.n_reused == 0 or again
    other = first(model, model.build_image_prompt("what <__media__> is?", [picture(3)]))
    assert abs(other - firsts[0]) > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_that_is_held_is_not_computed_again(
    models: Models, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models(kind)
    first = model.build_image_prompt("look: <__media__>, what is this?", [picture(1)])
    other = model.build_image_prompt("look: <__media__>, how many?", [picture(1)])
    third = model.build_image_prompt("look: <__media__>, what is this?", [picture(2)])
    expected = [alone(model, ids, **LARGE) for ids in (first, other, third)]
    parts = common(first, other)
    assert parts > first.index(min(first))
    with engine(model, **LARGE) as made:
        marks = [parts]
        assert ask(made, request(first, marks=marks)).end().error is None
        seen: list[ImagePrefill] = []
        monkeypatch.setattr(ImagePrefill, "step", lambda self: seen.append(self) or step(self))
        one = ask(made, request(other))
        n = one.end().timings.n_reused
        assert one.tokens == expected[1] and not seen
        assert n == parts + first.n_tokens - len(first)
        one = ask(made, request(third))
        assert one.end().timings.n_reused <= start_of(third)
        assert one.tokens == expected[2] and seen
        with pytest.raises(ContextError, match="got -"):
            ask(made, request([*first], 2))


step = ImagePrefill.step


@pytest.mark.parametrize("kind", [AXES, "pixtral", "hybrid"])
def test_texts_that_end_with_an_image_or_nearly(models: Models, kind: str) -> None:
    model = models(kind)
    one, two = (bare(model, i) for i in range(2))
    prompts = [
        ImagePrompt(chunks)
        for chunks in ([one, [5]], [one, [5, 6]], [one, two, [7]], [[8], one, [5]], [[8], two, [5]])
    ]
    with engine(model) as made:
        for ids in [*prompts, *prompts]:
            one = ask(made, request(ids, 6, logprobs=0))
            assert one.end().error is None and one.tokens == alone(model, ids, 6)
            assert abs(scores(one)[0] - first(model, ids)) < 1e-4


class CountingContext:
    """A context for a prompt's reader that counts batches."""

    def __init__(self, ctx: Context, n_batch: int) -> None:
        self.ctx, self.cparams = ctx, replace(ctx.cparams, n_batch=n_batch)
        self.sizes: list[int] = []

    def decode(self, tokens: Batch, logits: Wanted = "last") -> F32:
        assert tokens.seq_ids is not None
        self.sizes.append(len(tokens.seq_ids))
        return self.ctx.decode(tokens, logits)


@pytest.mark.parametrize("kind", [AXES, "pixtral", "llama4"])
def test_a_causal_image_and_its_text_are_one_batch(models: Models, kind: str) -> None:
    model = models(kind)
    ids, found = model.build_image_prompt("<__media__> and <__media__>b", [picture(1)] * 2), []
    for n_batch in (512, 7, 1):
        ctx = CountingContext(Context(model, **{**EXACT, **LARGE}), n_batch)
        found.append(ids.read(ctx))
        full, rest = divmod(ids.n_tokens, n_batch)
        assert ctx.sizes == [n_batch] * full + [rest] * (rest > 0)
    assert nmse(found[0], found[1]) < 1e-9 and nmse(found[0], found[2]) < 1e-9
    apart = CountingContext(Context(model, **{**EXACT, **LARGE}), 512)
    chunks = [replace(c, joins=False) if isinstance(c, Picture) else c for c in ids.chunks]
    assert nmse(ImagePrompt(chunks).read(apart), found[0]) < 1e-9
    assert len(apart.sizes) == len(chunks)


def test_an_image_whose_rows_see_each_other_is_a_separate_batch(models: Models) -> None:
    model = models("gemma3")
    ids = model.build_image_prompt("a<__media__>b", [picture(1)])
    ctx = Context(model, **{**EXACT, **LARGE})
    counting = CountingContext(ctx, 512)
    ids.read(counting)
    assert len(counting.sizes) == 3


def test_two_begin_behind_the_same_image(models: Models) -> None:
    """Where it takes more positions than the memory can tell, the second does not begin in it."""
    model = models(AXES)
    ids = ImagePrompt([[3, 4], bare(model, 1), [5]])
    with engine(model, cache_ram=0) as made:
        ask(made, request(ids)).end()
        go_on = stall(made)
        other = ask(made, request([5], 10))
        with made._changed:  # the engine sees both or none
            both = [ask(made, request(ids)) for _ in range(2)]
        go_on.set()
        assert [one.end().error for one in (other, *both)] == [None] * 3
        assert [one.tokens for one in both] == [alone(model, ids)] * 2
        held = [one.events[0].timings.n_reused for one in both]
        assert held == [ids.n_tokens - 1, start_of(ids)]


@pytest.mark.parametrize("kind", ["pixtral", AXES, "hybrid"])
def test_answers_go_on_while_an_image_is_read(
    models: Models, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches with rows of the image have the other response's token, the last one also text."""
    model, batches, decode = models(kind), list[Batch](), Context.decode
    image = model.build_image_prompt("b<__media__>a", [picture(1, (70, 50))])

    def note(self: Context, tokens: Any, *more: Any, **options: Any) -> F32:
        if isinstance(tokens, Batch) and tokens.embd is not None:
            batches.append(tokens)
        return decode(self, tokens, *more, **options)

    monkeypatch.setattr(Context, "decode", note)
    with engine(model, n_seq_max=2, kv_unified=True) as made:
        go_on = stall(made, 1)
        text = ask(made, request(tokens(5), 60))
        seeing = ask(made, request(image, 4))
        go_on.set()
        assert text.end().error is None and seeing.end().error is None
    monkeypatch.undo()
    assert seeing.tokens == alone(model, image, 4) and text.tokens == alone(model, tokens(5), 60)
    (medium,) = image.media.values()
    assert sum(len(b.embd) for b in batches if b.embd is not None) == medium.n_tokens
    assert len(batches) >= medium.n_tokens // 8
    if kind != "hybrid":  # its sequences have equally many tokens in each ubatch
        assert all(len({*(b.seq_ids or ())}) == 2 for b in batches)
    last = batches[-1].tokens
    assert last is not None and [*last].index(-1) < len(last) - 2 and last[-1] >= 0


@pytest.mark.parametrize("kind", ["pixtral", AXES, "hybrid"])
@pytest.mark.parametrize("after", [1, 4])
def test_who_leaves_while_an_image_is_read(
    models: Models, kind: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, n = models(kind), list[int]()
    ids = model.build_image_prompt("a <__media__> b", [picture(1, (70, 50))])
    with engine(model, n_seq_max=1, n_batch=8, n_ubatch=8) as made:
        go_on = stall(made)
        one = ask(made, request(ids))

        def decode_and_cancel(tokens: Any, *more: Any, **options: Any) -> F32:
            if isinstance(tokens, Batch) and tokens.embd is not None:
                n.append(1)
            if len(n) == after:
                assert one.handle is not None
                one.handle.cancel()
            return decode(tokens, *more, **options)

        decode = made._ctx.decode
        monkeypatch.setattr(made._ctx, "decode", decode_and_cancel)
        go_on.set()
        assert one.end().finish_reason == "cancelled" and not one.tokens
        again = ask(made, request(ids))
        assert again.end().error is None and again.tokens == alone(model, ids)


def test_an_image_that_cannot_be_computed_ends_its_request_only(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models("pixtral")
    ids = model.build_image_prompt("a<__media__>b", [picture(7)])
    with engine(model) as made:
        with monkeypatch.context() as patch:
            patch.setattr(ImageEncoder, "computing", _fails)
            bad, good = ask_all(made, [request(ids), request(tokens(20))])
            assert str(bad.end().error) == "no light" and good.tokens == alone(model, tokens(20))
        one = ask(made, request(ids))
        assert one.end().error is None and one.tokens == alone(model, ids)


@pytest.mark.parametrize("kind", ["pixtral", AXES])
def test_a_step_with_an_image_that_fails_is_repeated(
    models: Models, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch with rows of the image fails before and after it is computed."""
    model, failures = models(kind), ["before", "after"]
    ids = model.build_image_prompt("a <__media__> b <__media__>c", [picture(1), picture(2)])
    with engine(model, n_seq_max=2, kv_unified=True) as made:
        decode = made._ctx.decode

        def fail_once(tokens: Any, *more: Any, **options: Any) -> F32:
            mixed = isinstance(tokens, Batch) and tokens.embd is not None and failures
            if mixed and failures.pop(0) == "before":
                raise MemoryError
            found = decode(tokens, *more, **options)
            if mixed:
                raise MemoryError
            return found

        monkeypatch.setattr(made._ctx, "decode", fail_once)
        found = ask_all(made, [request(tokens(5), 30), request(ids)])
    assert not failures
    assert [one.tokens for one in found] == [alone(model, tokens(5), 30), alone(model, ids)]


def _fails(*_: Any) -> Any:
    raise RuntimeError("no light")


def test_what_does_not_fit_is_refused_at_once(models: Models) -> None:
    model = models("gemma3")
    ids = model.build_image_prompt("<__media__>a", [picture()])
    n = ids.n_whole
    with engine(model, n_ubatch=n - 1) as made, pytest.raises(ContextError, match=f"at least {n}"):
        ask(made, request(ids))
    rest = ids.rest(len(ids) - 1)
    assert rest is not None
    with engine(model) as made, pytest.raises(ContextError, match="whole prompt"):
        ask(made, request(rest))
    model = models(AXES)
    ids = model.build_image_prompt("<__media__>a" * 6, [picture(i, (90, 90)) for i in range(6)])
    assert len(ids) < 256 < ids.n_tokens  # it has fewer positions than cells
    with engine(model) as made, pytest.raises(TooLong):
        ask(made, request(ids))


@pytest.mark.parametrize("kind", ["pixtral", AXES, "hybrid"])
def test_images_give_way_where_cells_are_shared(models: Models, kind: str) -> None:
    model = models(kind)
    prompts = [
        model.build_image_prompt("a <__media__> b", [picture(i, (70, 50))]) for i in range(4)
    ]
    assert sum(ids.n_tokens for ids in prompts) > 160
    with engine(model, kv_unified=True, n_ctx=160) as made:
        found = ask_all(made, [request(ids, 20) for ids in prompts])
        assert [one.end().error for one in found] == [None] * 4
        assert [one.tokens for one in found] == [alone(model, ids, 20) for ids in prompts]


@pytest.mark.parametrize("kind", ["pixtral", AXES, "mtp"])
def test_answers_about_images_are_not_drafted(models: Models, kind: str, tmp_path: Path) -> None:
    own = seeing(AXES, tmp_path, ("qwen35", "mtp"), load_mtp=True) if kind == "mtp" else None
    model = own or models(kind)
    seen, text = model.build_image_prompt("what <__media__>a", [picture()]), [1, 2, 3, 4] * 8
    kinds = "ngram-simple,ngram-mod" if own is None else "draft-mtp"
    with engine(model, speculative=SpeculativeParams(spec_type=kinds)) as made:
        for _ in range(2):
            one, other = ask_all(made, [request(seen, 40), request(text, 40)])
            assert one.end().error is None and other.end().error is None
            assert one.tokens == alone(model, seen, 40) and other.tokens == alone(model, text, 40)
            assert one.end().timings.n_drafted == 0
            assert own is None or other.end().timings.n_drafted > 0
        ids = [*seen[: start_of(seen)], *tokens(5)]  # where the image was there is a text now
        one = ask(made, request(ids))
        assert one.end().error is None and one.tokens == alone(model, ids)
    if own is not None:
        own.close()


@pytest.mark.parametrize("kind", ["pixtral", AXES])
def test_a_saved_sequence_has_its_image(
    models: Models, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models(kind)
    ids = model.build_image_prompt("what <__media__> is?", [picture(1)])
    expected = alone(model, ids)
    with engine(model, n_seq_max=1) as made:
        ask(made, request(ids)).end()
        made.save_slot(0, tmp_path / "saved").result()
    with engine(model, n_seq_max=1) as made:
        made.restore_slot(0, tmp_path / "saved").result()
        one = ask(made, request(ids))
        assert one.end().timings.n_reused == ids.n_tokens - 1 and one.tokens == expected
        monkeypatch.setattr(model, "vision", None)
        with pytest.raises(ContextError, match="without an mmproj"):
            made.restore_slot(0, tmp_path / "saved").result()
        one = ask(made, request(tokens(20)))
        assert one.end().error is None and one.tokens == alone(model, tokens(20))


def test_clients_are_charged_for_images(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the encoder's parts, whose time stands still elsewhere."""
    model, now = models("pixtral"), [0.0]

    def take_long(self: ImagePrefill) -> bool:
        now[0] += 100
        return step(self)

    monkeypatch.setattr(scheduler, "clock", lambda: now[0])
    monkeypatch.setattr(ImagePrefill, "step", take_long)
    with engine(model, **LARGE) as made:
        charged = note_charges(made)
        ids = model.build_image_prompt("a<__media__>b", [picture(1)])
        ask_all(made, [request(ids, 4, client="a"), request(tokens(5), 4, client="b")])
    assert now[0] >= 100 and charged["a"] == pytest.approx(now[0], abs=20)
    assert charged["b"] < 20


@pytest.mark.parametrize("kind", ["gemma3", "pixtral"])
def test_images_of_a_client_in_debt_wait(
    models: Models, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen, text = models(kind), list[int](), Asked()

    def note(self: ImagePrefill) -> bool:
        seen.append(len(text.tokens))
        return step(self)

    monkeypatch.setattr(ImagePrefill, "step", note)
    ids = model.build_image_prompt("a<__media__>b", [picture(1)])
    with engine(model, **LARGE) as made:
        shares = made._scheduler._turns.shares
        note_charges(made)  # only this client owes
        shares.owes = lambda client: client == "a" and shares.share > 0  # type: ignore[method-assign]
        go_on = stall(made)
        first = ask(made, request([1], 8, client="c"))
        first.until(0)
        with made._changed:
            image = ask(made, request(ids, 4, client="a"))
            text.handle = made.submit(request(tokens(5), 30, client="b"), text)
        go_on.set()
        assert [one.end().finish_reason for one in (first, text, image)] == ["length"] * 3
    assert seen and {*seen} == {30}
    assert image.tokens == alone(model, ids, 4, **LARGE)


def test_a_client_in_debt_does_not_keep_the_encoder(models: Models) -> None:
    model, owing = models("pixtral"), set[str]()
    ids = model.build_image_prompt("a<__media__>b", [picture(1)])
    jobs = [
        Job(i, Answer(request(ids, client=name), model), lambda event: None)
        for i, name in enumerate("ab")
    ]
    busy = [(Slot(job.id), job) for job in jobs]

    def find_payers(given: Iterable[Busy]) -> list[Busy]:
        return [one for one in given if one[1].request.client not in owing]

    turns = ImageTurns(Context(model, **EXACT), find_payers, lambda: 8)
    owing = {"a"}
    assert turns.choose(busy[:1]) is None
    owing = set()
    current = turns.choose(busy)
    assert current is not None and current.job is jobs[0]
    owing = {"a"}
    assert turns.choose(busy[:1]) is None and turns.choose(busy) is current
    turns.forget(jobs[0])
    following = turns.choose(busy)
    assert following is not None and following.job is jobs[1]
    assert turns.choose([]) is None
