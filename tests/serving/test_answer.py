"""Text, probabilities and ends of one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError
from llama_py.params import AnswerParams
from llama_py.sampler import Sampler
from llama_py.serving import Engine, Event, Request
from llama_py.serving.answer import Answer, Lines

IDS = "ROMEO:\nO, O, O, "


@pytest.fixture(scope="module")
def model() -> llama_py.Model:
    return llama_py.load()


def made(model: llama_py.Model, **options: Any) -> Answer:
    own = {k: options.pop(k) for k in [*options] if k in Request.__dataclass_fields__}
    answer = Answer(Request(prompt=[5], params=AnswerParams(temp=0, **options), **own), model)
    answer.limit(10**6)
    return answer


def feed(answer: Answer, ids: list[int]) -> list[Event]:
    """The tokens as if the model had said them."""
    events: list[Event] = []
    for id in ids:
        row = np.zeros(answer._sampler.n_vocab, np.float32)  # type: ignore[attr-defined]
        row[id] = 10
        events.append(answer.token(answer.choose(row), row))
        if answer.ended:
            break
    return events


def text_of(events: list[Event]) -> str:
    return "".join(e.text for e in events)


def test_a_stop_string_is_held_back_and_named(model: llama_py.Model) -> None:
    ids = model.tokenize("and so END of it all", add_special=False)
    events = feed(made(model, stop=["so END", "it"]), ids)
    assert text_of(events).rstrip() == "and" and events[-1].finish_reason == "stop"
    assert events[-1].stopped_by == "so END" and not events[-1].truncated
    assert len(events) < len(ids)
    events = feed(made(model, stop=["END of nothing"], max_tokens=len(ids)), ids)
    assert text_of(events) == "and so END of it all" and events[-1].finish_reason == "length"


def test_the_rest_comes_when_it_is_cut(model: llama_py.Model) -> None:
    answer = made(model, stop=["so END"])
    ids = model.tokenize("and so", add_special=False)
    shown = text_of(feed(answer, ids))
    assert shown + answer.end("cancelled").text == "and so" and shown != "and so"


def test_its_end_token_ends_it(model: llama_py.Model) -> None:
    end = next(iter(model.tokenizer.eog))
    assert feed(made(model), [9, end])[-1].finish_reason == "eos"
    row = np.zeros(model.hparams.n_vocab, np.float32)
    row[end] = 10
    assert made(model, ignore_eos=True).choose(row) != end


@pytest.mark.parametrize("n_pieces", [1, 3])
def test_lines_that_are_indented_too_little_end_it(n_pieces: int) -> None:
    for text, n, expected in [
        ("def f():\n    a\n    b\nc = 1", 4, "def f():\n    a\n    b\n"),
        ("  x\n  y\n z", 2, "  x\n  y\n "),
        ("x\n\ty\nz", 1, "x\n\ty\n"),
        ("x\n\n  y", 1, "x\n"),
        ("x\ny", 0, "x\ny"),
        ("no line ends", 9, "no line ends"),
    ]:
        lines, found, ended = Lines(n), "", False
        step = -(-len(text) // n_pieces)
        for at in range(0, len(text), step):
            shown, ended = lines.push(text[at : at + step])
            found += shown
            if ended:
                break
        assert (found, ended) == (expected, expected != text)


def test_too_long_a_time_ends_it_with_its_line(model: llama_py.Model) -> None:
    answer = made(model, t_max_predict=2.0)
    answer.spend(1.5)
    (line,), (word,) = (model.tokenize(t, add_special=False)[-1:] for t in ("\n", "O"))
    assert [e.finish_reason for e in feed(answer, [word, line, word])] == [None] * 3
    answer.spend(1.0)
    assert [e.finish_reason for e in feed(answer, [word, line, word])] == [None, "time"]


def test_probabilities(model: llama_py.Model) -> None:
    row = np.linspace(-5, 5, model.hparams.n_vocab).astype(np.float32)
    logs = row - np.log(np.exp(row.astype(np.float64)).sum())
    for logprobs in (0, 3):
        answer = made(model, logprobs=logprobs)
        event = answer.token(answer.choose(row), row)
        best = np.argsort(-row, kind="stable")[:logprobs]
        assert event.logprob == pytest.approx(logs.max())
        assert [id for id, _ in event.top] == best.tolist()
        assert [p for _, p in event.top] == pytest.approx(logs[best])
    assert made(model).token(5, row).logprob is None


def test_probabilities_after_sampling(model: llama_py.Model) -> None:
    rng = np.random.default_rng(0)
    row = rng.standard_normal(model.hparams.n_vocab).astype(np.float32) * 3
    how: dict[str, Any] = {"temp": 0.7, "top_k": 4, "top_p": 1.0, "min_p": 0.0, "seed": 1}
    p = AnswerParams(logprobs=2, **how)
    answer = Answer(Request(prompt=[5], params=p, post_sampling_probs=True), model)
    plain = Sampler(llama_py.SamplingParams(**how), model.hparams.n_vocab, model.tokenizer)
    answer.limit(99)
    best = np.argsort(-row)[:4]
    weights = np.exp(row[best] / np.float32(0.7))
    right = dict(zip(best.tolist(), np.log(weights / weights.sum()).tolist(), strict=True))
    for _ in range(5):
        event = answer.token(answer.choose(row), row)
        assert event.token is not None and event.token == plain.sample(row)
        plain.accept(event.token)
        assert event.logprob == pytest.approx(right[event.token], abs=1e-5)
        assert [id for id, _ in event.top] == best[:2].tolist()
        assert dict(event.top) == pytest.approx({i: right[i] for i in best[:2].tolist()}, abs=1e-5)


def test_probabilities_of_a_grammar(model: llama_py.Model) -> None:
    row = np.zeros(model.hparams.n_vocab, np.float32)
    p = AnswerParams(logprobs=3, temp=1.0, regex="7|8")
    answer = Answer(Request(prompt=[5], params=p, post_sampling_probs=True), model)
    answer.limit(99)
    event = answer.token(answer.choose(row), row)
    likely = {model.tokenizer.detokenize([id]): log for id, log in event.top if log > -np.inf}
    assert likely == pytest.approx({"7": np.log(0.5), "8": np.log(0.5)})
    assert event.logprob == pytest.approx(np.log(0.5))


def test_what_a_request_may_not_say(model: llama_py.Model) -> None:
    for bad in ({"spec_type": "draft-mtp"}, {"seq_id": 1}, {"before": [1]}):
        with pytest.raises(ContextError):
            made(model, **bad)
    with pytest.raises(ModelError, match="stop"):
        made(model, stop=[""])
    grammar = Sampler(llama_py.SamplingParams(regex="a"), model.hparams.n_vocab, model.tokenizer)
    with pytest.raises(ContextError, match="constraint"):
        made(model, sampler=grammar, constraint=grammar.constraint)


def test_a_constraint_ends_it(model: llama_py.Model) -> None:
    ids = model.tokenize(IDS)
    with Engine(model, n_ctx=512, n_seq_max=2) as engine:
        for options, text, reason in [
            ({"grammar": 'root ::= "yes" | "no"'}, ("yes", "no"), ("stop", "eos")),
            (
                {"json_schema": {"type": "integer", "minimum": 10, "maximum": 12}},
                ("10", "11", "12"),
                ("stop", "eos"),
            ),
        ]:
            p = AnswerParams(temp=1, seed=2, max_tokens=30, **options)  # type: ignore[arg-type]
            events = [*engine.stream(Request(prompt=ids, params=p))]
            assert text_of(events) in text and events[-1].finish_reason in reason
