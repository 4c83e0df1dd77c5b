"""Requests of lm-evaluation-harness, without it: tokens, windows, limits, scores and texts."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import llama_py
from ggml_py.errors import ContextError, ModelError
from llama_py import Model
from llama_py_tools.measure.evaluation import EvaluationParams, Evaluator, split_windows
from llama_py_tools.measure.lm_eval import main
from tests.support.commands import DEMO

PAIRS = [
    ("First Citizen:", " speak."),
    ("ROMEO: ", "what light"),
    ("First Citizen:", " a"),
    ("First Citizen:", " hear the people"),
    ("", "The sea"),
]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with llama_py.load(DEMO) as model:
        yield model


@pytest.fixture(scope="module")
def evaluator(model: Model) -> Iterator[Evaluator]:
    with Evaluator(model, n_seq_max=4) as found:
        yield found


def alone(model: Model, ids: list[int], n: int) -> tuple[float, bool]:
    """Log probability of the last n ids, one text at a time in float64; whether it is greedy."""
    rows = model.context(512).decode(ids, logits="all").astype(np.float64)[-n - 1 : -1]
    logs = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
    return float(logs[range(n), ids[-n:]].sum()), bool((rows.argmax(-1) == ids[-n:]).all())


def test_continuations(model: Model, evaluator: Evaluator) -> None:
    told: dict[int, Any] = {}
    found = evaluator.score_pairs(PAIRS, told.__setitem__)
    assert [told[i] for i in range(len(PAIRS))] == found
    for pair, (total, is_greedy) in zip(PAIRS, found, strict=True):
        context, more = evaluator.encode_pair(*pair)
        wanted = alone(model, [*context, *more], len(more))
        assert total == pytest.approx(wanted[0], abs=5e-3) and is_greedy == wanted[1]


def test_a_greedy_text_is_greedy(evaluator: Evaluator) -> None:
    [text] = evaluator.generate([("ROMEO:", {"max_gen_toks": 6})])
    whole, longer = evaluator.score_pairs([("ROMEO:", text), ("ROMEO:", text + "zq")])
    assert text and whole[1] and not longer[1]


def test_one_prompt_is_computed_once(evaluator: Evaluator) -> None:
    """The continuations of a prompt follow each other, in any order of the requests."""
    prompt = "The people of the city hear the king. " * 8
    pairs = [(prompt, f" {more}") for more in ("go", "come", "stay here", "be gone", "live")]
    evaluator.score_pairs([*pairs, ("other", " text"), *pairs])
    assert evaluator._engine is not None
    before = evaluator._engine.metrics().total
    evaluator.score_pairs([pairs[0], ("another", " text"), *pairs[1:]])
    after = evaluator._engine.metrics().total
    n_prompt = len(evaluator.encode(prompt))
    assert after.n_prompt - before.n_prompt < 2 * n_prompt


def test_tokens_of_a_pair(model: Model, evaluator: Evaluator) -> None:
    tokenize, prefix = model.tokenizer.tokenize, evaluator.prefix_id
    context, more = evaluator.encode_pair("ROMEO: ", "what light")
    assert context == tokenize("ROMEO:") and [*context, *more] == tokenize("ROMEO: what light")
    assert evaluator.encode_pair("", "The sea") == ([prefix], tokenize("The sea", False))
    assert evaluator.encode_pair(" ", "x") in (
        ([prefix], tokenize(" x")),
        (tokenize(""), tokenize(" x")[1:]),
    )
    text = model.tokenizer.token_to_piece(prefix, special=True).decode()
    assert evaluator.encode(text + "a") == [prefix, *tokenize("a", False)]
    assert evaluator.encode_pair("", text + "a") == ([prefix], tokenize("a", False))


@pytest.mark.parametrize("add", [True, False])
def test_bos_as_requested(model: Model, add: bool) -> None:
    with Evaluator(model, EvaluationParams(add_bos_token=add)) as found:
        plain = model.tokenizer.tokenize("a sea", False)
        bos = [model.tokenizer.bos] if add and model.tokenizer.bos is not None else []
        assert found.encode("a sea") == [*bos, *plain]


def test_long_prompts_lose_their_start(model: Model) -> None:
    text = "what is the night that you say of it "
    with Evaluator(model, EvaluationParams(max_length=12, max_gen_toks=4), n_seq_max=2) as found:
        [(total, _)] = found.score_pairs([(text * 3, "the king")])
        context, more = found.encode_pair(text * 3, "the king")
        whole = [*context, *more][-13:]
        assert len(context) + len(more) > 13
        assert total == pytest.approx(alone(model, whole, len(more))[0], abs=5e-3)
        [long] = found.generate([(text * 3, {"until": []})])
        [short] = found.generate([(model.tokenizer.detokenize(found.encode(text * 3)[-8:]), {})])
        assert long == short
        with pytest.raises(ContextError, match="1 to 12 tokens, got"):
            found.score_pairs([("a", text * 3)])
        with pytest.raises(ContextError, match=r"max_gen_toks must be in \[1, 12\), got 12"):
            found.generate([("a", {"max_gen_toks": 12})])


def test_a_larger_context_is_made(model: Model) -> None:
    with Evaluator(model, n_seq_max=2, n_ctx=256) as found:
        assert found.generate([("a", {"max_gen_toks": 2})])
        assert found._open(200, 2).n_ctx == 256
    with Evaluator(model, n_seq_max=2) as found:
        assert found._open(10, 2).n_ctx == 4096 and found._open(5000, 2).n_ctx == 5120


def test_scores_have_more_sequences_than_texts(model: Model) -> None:
    with Evaluator(model, n_ctx=256) as found:
        found.score_pairs([("the sea", " is")])
        assert found._engine is not None and found._engine.n_slots == 64
        found.generate([("a", {"max_gen_toks": 1})])
        assert found._engine.n_slots == 16


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 9, 11])
def test_windows_score_each_token_once(n: int) -> None:
    ids = [*range(100, 100 + n)]
    windows = [*split_windows(ids, 7, 4)]
    assert [id for _, more in windows for id in more] == ids
    assert windows[0] == ([7], ids[:4])
    for context, more in windows[1:]:
        assert len(context) + len(more) == 5 and context
        at = ids.index(context[0])
        assert [*context, *more] == ids[at : at + 5]
    assert not [*split_windows([], 7, 4)]


def test_whole_texts(model: Model) -> None:
    texts = ["The sea", "what is the night that you say of it, and when is the king here?"]
    told: dict[int, float] = {}
    with Evaluator(model, EvaluationParams(max_length=8), n_seq_max=2) as found:
        totals = found.score_texts(texts, told.__setitem__)
        assert [told[0], told[1]] == totals
        for text, total in zip(texts, totals, strict=True):
            windows = split_windows(found.encode(text), found.prefix_id, 8)
            wanted = sum(alone(model, [*a, *b], len(b))[0] for a, b in windows)
            assert total == pytest.approx(wanted, abs=1e-2)


def test_options_of_texts(evaluator: Evaluator, caplog: pytest.LogCaptureFixture) -> None:
    greedy = {"until": ["\n"], "max_gen_toks": 12, "do_sample": False, "temperature": 0.9}
    [first, second] = evaluator.generate([("ROMEO:", greedy), ("ROMEO:", greedy)])
    assert first == second and "\n" not in first
    word = first.split()[1]
    [cut] = evaluator.generate([("ROMEO:", {"until": word, "max_tokens": 12})])
    assert cut == first[: first.index(word)]
    drawn = {"do_sample": True, "temperature": 1.5, "max_gen_toks": 12}
    texts = evaluator.generate([("ROMEO:", drawn)] * 3)
    assert len({*texts}) > 1 and texts == evaluator.generate([("ROMEO:", drawn)] * 3)
    with caplog.at_level(logging.WARNING, "llama_py"):
        evaluator.generate([("a", {"max_gen_toks": 1, "num_beams": 4})])
    assert "num_beams are unknown and ignored" in caplog.text


def test_a_special_token_stops_a_text(evaluator: Evaluator) -> None:
    special = evaluator._prefix_text
    params = evaluator._request(0, "a", {"until": [special, "\n\n", ""]}).params
    assert params.stop == [special, "\n\n"] and evaluator.prefix_id in params.preserved_tokens


def test_reasoning_is_removed(model: Model) -> None:
    with Evaluator(model, n_seq_max=1) as found:
        [text] = found.generate([("ROMEO:", {"max_gen_toks": 12})])
    end = text.split()[1]
    with Evaluator(model, EvaluationParams(think_end_token=end), n_seq_max=1) as found:
        assert found.generate([("ROMEO:", {"max_gen_toks": 12})]) == [
            text.rpartition(end)[2].lstrip()
        ]


def test_chats(model: Model, evaluator: Evaluator) -> None:
    asked = [{"role": "user", "content": "Who are you?"}]
    assert evaluator.render_chat(asked) == model.apply_chat_template(asked)
    begun = [*asked, {"role": "assistant", "content": "I am "}]
    text = evaluator.render_chat(begun, add_generation_prompt=False)
    assert text.rstrip().endswith("I am")
    assert model.apply_chat_template(begun, add_generation_prompt=False).startswith(text.rstrip())


def test_wrong_options(model: Model) -> None:
    with pytest.raises(TypeError, match="n_thread"):
        Evaluator(model, n_thread=2)
    with pytest.raises(ModelError, match="max_length must be at least 2, got 1"):
        Evaluator(model, EvaluationParams(max_length=1))
    with Evaluator(model, EvaluationParams(max_length=2, max_gen_toks=1)) as found:
        assert len(found.score_pairs([("ROMEO: what", "s")])) == 1


def test_nothing_to_do(evaluator: Evaluator) -> None:
    assert evaluator.score_pairs([]) == evaluator.generate([]) == evaluator.score_texts([]) == []
    assert evaluator.score_texts([""]) == [0.0]


@pytest.mark.skipif(find_spec("lm_eval") is not None, reason="lm_eval is installed")
def test_the_command_without_lm_eval(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tasks", "arc_easy"]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("error: llama-py-lm-eval needs lm_eval: pip install")
    assert main(["--help"]) == 0 and "--model_args" in capsys.readouterr().out


def test_the_model_of_lm_eval(model: Model) -> None:
    pytest.importorskip("lm_eval", reason="needs lm_eval")
    from llama_py_tools.measure.lm_eval_model import LlamaPy

    lm = LlamaPy(str(DEMO), batch_size=4, device="cuda:0", max_gen_toks=3)
    pairs = [SimpleNamespace(args=pair) for pair in PAIRS]
    with Evaluator(model, n_seq_max=4) as evaluator:
        wanted = evaluator.score_pairs(PAIRS)
    assert np.allclose([a for a, _ in lm.loglikelihood(pairs, disable_tqdm=True)],
                       [a for a, _ in wanted], atol=5e-3)  # fmt: skip
    assert lm.max_gen_toks == 3 and "demo.gguf" in lm.tokenizer_name
    lm.close()


def test_other_commands_do_not_import_lm_eval() -> None:
    code = "import sys, llama_py_tools.measure.evaluation; print('lm_eval' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
