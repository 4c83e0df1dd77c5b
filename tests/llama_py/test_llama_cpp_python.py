"""llama-cpp-python's interface: texts of the demo model, forms of responses, errors."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from ctypes import c_char
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
import llama_py.compat
from llama_py.compat import llama_cpp
from llama_py.compat.llama_cpp import (
    Llama,
    LlamaDiskCache,
    LlamaGrammar,
    LlamaPromptLookupDecoding,
    LlamaRAMCache,
    LlamaTokenizer,
    LogitsProcessorList,
    MinTokensLogitsProcessor,
    StoppingCriteriaList,
)
from llama_py.loading.model import DEMO
from tests.support.llama_cpp_python import PROMPT, YES, get_text, make


@pytest.fixture(scope="module")
def with_rows() -> Iterator[Llama]:
    made = make(logits_all=True)
    yield made
    made.close()


def test_a_greedy_text_is_that_of_generate(llm: Llama, model: llama_py.Model) -> None:
    expected = model.generate(PROMPT, max_tokens=24, temp=0)
    found = llm(PROMPT, max_tokens=24, temperature=0)
    assert get_text(found) == expected and found["choices"][0]["finish_reason"] == "length"
    chunks = list(llm(PROMPT, max_tokens=24, temperature=0, stream=True))
    assert "".join(map(get_text, chunks)) == expected
    assert [c["choices"][0]["finish_reason"] for c in chunks][-2:] == [None, "length"]


def test_sampling_is_that_of_generate_with_the_same_chain(
    llm: Llama, model: llama_py.Model
) -> None:
    chain = "penalties;top_k;typ_p;top_p;min_p;temperature"
    how = {"repeat_penalty": 1.3, "presence_penalty": 0.2, "top_k": 20}
    expected = model.generate(PROMPT, max_tokens=16, temp=0.9, seed=7, samplers=chain, **how)
    assert get_text(llm(PROMPT, max_tokens=16, temperature=0.9, seed=7, **how)) == expected


def test_the_form_of_completions(llm: Llama) -> None:
    found = llm.create_completion(PROMPT, max_tokens=2, temperature=0, model="mine")
    assert found.keys() == {"id", "object", "created", "model", "choices", "usage"}
    assert found["id"].startswith("cmpl-") and found["object"] == "text_completion"
    assert found["model"] == "mine" and llm(PROMPT, max_tokens=1)["model"] == str(DEMO)
    assert found["choices"][0].keys() == {"text", "index", "logprobs", "finish_reason"}
    n = len(llm.tokenize(PROMPT.encode()))
    assert found["usage"] == {"prompt_tokens": n, "completion_tokens": 2, "total_tokens": n + 2}
    chunk = next(llm(PROMPT, max_tokens=2, stream=True))
    assert chunk.keys() == found.keys() - {"usage"}


@pytest.mark.parametrize("stop", ["\n", ["\n", "xyz"]])
def test_stop_texts_echo_and_suffix(llm: Llama, stop: str | list[str]) -> None:
    found = llm(PROMPT, max_tokens=60, temperature=0, stop=stop, echo=True, suffix="END")
    first, _, _ = get_text(llm(PROMPT, max_tokens=60, temperature=0)).partition("\n")
    assert get_text(found) == f"{PROMPT}{first}END"
    assert found["choices"][0]["finish_reason"] == "stop"


def test_log_probabilities(llm: Llama, with_rows: Llama, model: llama_py.Model) -> None:
    found = llm(PROMPT, max_tokens=3, temperature=0, logprobs=2)
    logprobs = found["choices"][0]["logprobs"]
    assert "".join(logprobs["tokens"]) == get_text(found)
    assert logprobs["text_offset"][0] == len(PROMPT)
    names = ("tokens", "token_logprobs", "top_logprobs")
    for text, value, top in zip(*(logprobs[k] for k in names), strict=True):
        assert top[text] == value == max(top.values()) and len(top) == 2
    json.dumps(found)
    whole = with_rows(PROMPT, max_tokens=3, temperature=0, logprobs=1, echo=True)
    rows = whole["choices"][0]["logprobs"]
    assert rows["tokens"][-3:] == logprobs["tokens"] and rows["token_logprobs"][0] is None
    assert rows["token_logprobs"][-3:] == pytest.approx(logprobs["token_logprobs"], abs=1e-3)
    assert "".join(rows["tokens"]) == get_text(whole)
    ids = llm.tokenize(PROMPT.encode())
    [score] = model.score(ids[:1], [ids[1:]])
    assert rows["token_logprobs"][1] == pytest.approx(score.logprob, abs=1e-3)
    with pytest.raises(ValueError, match="logits_all=True"):
        llm(PROMPT, logprobs=1, echo=True)


def test_a_prompt_must_leave_a_cell_free(llm: Llama) -> None:
    with pytest.raises(ValueError, match=r"Requested tokens \(256\) exceed context window of 256"):
        llm([5] * 256)
    with pytest.raises(ValueError, match="exceed context window"):
        llm.create_chat_completion([{"role": "user", "content": "word " * 400}], stream=True)
    found = llm([5] * 250, max_tokens=None, logit_bias={str(llm.token_eos()): -1e9})
    assert found["usage"]["completion_tokens"] == 6


def test_seeds(llm: Llama) -> None:
    def three(made: Llama) -> list[str]:
        return [get_text(made(PROMPT, max_tokens=8, temperature=1.5)) for _ in range(3)]

    llm.set_seed(3)
    state, first = llm.save_state(), three(llm)
    assert len(set(first)) == 3
    llm.load_state(state)
    assert three(llm) == first == three(make(seed=3))
    one, same, other = (get_text(llm(PROMPT, max_tokens=8, seed=s, top_p=1.0)) for s in (1, 1, 2))
    assert one == same != other


def test_tokens_are_bytes_on_one_side(llm: Llama, model: llama_py.Model) -> None:
    t = model.tokenizer
    assert llm.tokenize(b"To be") == t.tokenize("To be", True, False)
    assert llm.tokenize(b"To be", add_bos=False) == t.tokenize("To be", False, False)
    assert llm.detokenize(llm.tokenize(b"To be")) == b"To be"
    eos = t.token_bytes(llm.token_eos())
    assert llm.tokenize(eos, add_bos=False, special=True) == [llm.token_eos()]
    assert llm.detokenize([llm.token_eos()]) == b""
    assert llm.detokenize([llm.token_eos()], special=True) == eos
    assert llm.tokenizer().decode(llm.tokenizer().encode("é", add_bos=False)) == "é"
    assert llm.token_bos() == t.bos and llm.token_nl() == t.tokenize("\n", False)[-1]
    assert llm.n_vocab() == t.n_vocab and llm.n_embd() == model.hparams.n_embd
    vocabulary = make(vocab_only=True)
    assert vocabulary.tokenize(b"To be") == llm.tokenize(b"To be")
    assert LlamaTokenizer.from_ggml_file(str(DEMO)).encode("To be") == llm.tokenize(b"To be")
    with pytest.raises(ValueError, match="vocab_only"):
        vocabulary("x")


def test_functions_of_the_vocabulary(llm: Llama) -> None:
    vocab, [id] = llama_cpp.llama_model_get_vocab(llm.model), llm.tokenize(b"king", False)[-1:]
    piece, buffer = llm.vocabulary.token_bytes(id), (c_char * 32)()
    assert llama_cpp.llama_token_to_piece(vocab, id, buffer, 32, 0, True) == len(piece)
    assert bytes(buffer[: len(piece)]) == piece
    assert llama_cpp.llama_token_to_piece(vocab, id, buffer, 1, 0, True) == -len(piece)
    assert llama_cpp.llama_vocab_is_eog(vocab, llm.token_eos())
    assert llama_cpp.llama_vocab_n_tokens(vocab) == llm.n_vocab()


def test_eval_and_sample(llm: Llama, with_rows: Llama, model: llama_py.Model) -> None:
    ids = llm.tokenize(PROMPT.encode())
    expected = list(itertools.islice(llm.generate(ids, temp=0), 4))
    for made in (llm, with_rows):
        made.reset()
        made.eval(ids)
        assert made.n_tokens == len(ids) and made.input_ids[: len(ids)].tolist() == ids
        found = []
        for _ in range(4):
            found.append(made.sample(temp=0))
            made.eval(found[-1:])
        assert found == expected
    rows = model.context(n_ctx=64).decode([*ids, *expected], "all")
    assert np.allclose(with_rows.scores[: with_rows.n_tokens], rows, atol=1e-2)
    assert len(with_rows.eval_logits) == with_rows.n_tokens and len(llm.eval_logits) == 1
    assert np.allclose(llm.eval_logits[0], rows[-1], atol=1e-2)
    assert list(llm.eval_tokens) == [*ids, *expected]
    assert with_rows.sample(temp=0, idx=len(ids) - 1) == expected[0]
    with pytest.raises(ValueError, match="call eval"):
        llm.sample(idx=0)


def test_generate_continues_and_takes_tokens(llm: Llama) -> None:
    ids = llm.tokenize(PROMPT.encode())
    found = llm.generate(ids, temp=0)
    two = [next(found), next(found)]
    assert llm.n_tokens == len(ids) + 1  # the last token is not in memory
    after = found.send(ids)
    found.close()
    assert after == next(llm.generate([*ids, *two, *ids], temp=0))
    llm.reset()
    llm.eval(ids)
    assert next(llm.generate(two, temp=0, reset=False)) == next(llm.generate([*ids, *two], temp=0))
    eos = llm.token_eos()

    def end(_: Any, scores: Any) -> Any:
        scores[eos] = 1e9
        return scores

    always = llm.generate(ids, temp=0, logits_processor=LogitsProcessorList([end]))
    assert list(itertools.islice(always, 3)) == [eos] * 3
    assert len(list(llm.generate([5] * 254, temp=0, logits_processor=[end]))) == 2


def test_logits_processors_and_stopping_criteria(llm: Llama) -> None:
    seen: list[int] = []

    def note(ids: Any, scores: Any) -> Any:
        seen.append(len(ids))
        scores[:] = 0
        scores[7] = 1
        return scores

    ids, after = llm.tokenize(PROMPT.encode()), llm.vocabulary.token_to_piece(7).decode()
    found = llm(PROMPT, max_tokens=3, temperature=0, logits_processor=LogitsProcessorList([note]))
    assert get_text(found) == 3 * after and seen == [len(ids) + i for i in range(3)]
    stops = StoppingCriteriaList([lambda ids, _: len(ids) == seen[0] + 2])
    for stream in (False, True):
        got = llm(PROMPT, max_tokens=9, temperature=0, stopping_criteria=stops, stream=stream)
        text = "".join(map(get_text, got)) if stream else get_text(got)
        assert text == get_text(llm(PROMPT, max_tokens=2, temperature=0))
    eos = llm.token_eos()
    short = [lambda _, s: np.where(np.arange(s.size) == eos, 1e9, s)]
    least = MinTokensLogitsProcessor(4, eos)
    got = llm(PROMPT, max_tokens=9, logits_processor=LogitsProcessorList([*short, least]))
    assert got["usage"]["completion_tokens"] == 4


def test_grammars(llm: Llama, tmp_path: Path) -> None:
    path = tmp_path / "yes.gbnf"
    path.write_text(YES)
    for grammar in (LlamaGrammar.from_string(YES), LlamaGrammar.from_file(path)):
        found = llm(PROMPT, grammar=grammar, max_tokens=9)
        assert get_text(found) in (" yes", " no") and found["choices"][0]["finish_reason"] == "stop"
    schema = LlamaGrammar.from_json_schema(json.dumps({"enum": [1, 2]}))
    assert get_text(llm(PROMPT, grammar=schema, max_tokens=9)) in ("1", "2")
    with pytest.raises(ValueError, match="grammar"):
        LlamaGrammar.from_string("root ::= missing")
    with pytest.raises(ValueError, match="LlamaGrammar"):
        llm(PROMPT, grammar=YES)


class NoDraft(llama_cpp.LlamaDraftModel):
    def __call__(self, input_ids: Any, /, **kwargs: Any) -> Any:
        return input_ids[:0]


def test_drafts_do_not_change_the_text(llm: Llama, tmp_path: Path) -> None:
    prompt = "To be, or not to be: to be, or not"
    expected = get_text(llm(prompt, max_tokens=40, temperature=0))
    with pytest.raises(TypeError, match="LlamaPromptLookupDecoding"):
        make(draft_model=NoDraft())
    made = make(draft_model=LlamaPromptLookupDecoding(num_pred_tokens=4))
    assert get_text(made(prompt, max_tokens=40, temperature=0)) == expected
    draft = LlamaPromptLookupDecoding(max_ngram_size=2, num_pred_tokens=2)
    assert draft(np.array([1, 2, 3, 4, 1, 2])).tolist() == [3, 4]
    assert draft(np.array([1, 2, 3, 4, 5])).tolist() == []


def test_states_and_caches(llm: Llama, tmp_path: Path) -> None:
    ids = llm.tokenize(b"To be, or not")
    llm.reset()
    llm.eval(ids)
    other = make()
    other.load_state(llm.save_state())
    assert other.n_tokens == len(ids) and list(other.eval_tokens) == ids
    assert get_text(other(ids, max_tokens=4, temperature=0)) == get_text(
        llm(ids, max_tokens=4, temperature=0)
    )
    for cache in (LlamaRAMCache(), LlamaDiskCache(str(tmp_path / "states"))):
        writer, reader = make(), make()
        for one in (writer, reader):
            one.set_cache(cache)
        with pytest.raises(KeyError):
            cache[ids]
        expected = get_text(writer(ids, max_tokens=4, temperature=0))
        assert ids in cache and cache.cache_size > 0
        loads: list[Any] = []
        load = reader.load_state
        reader.load_state = lambda state, load=load, loads=loads: loads.append(load(state))  # type: ignore[method-assign]
        assert get_text(reader(ids, max_tokens=4, temperature=0)) == expected
        assert len(loads) == 1 and reader.prefix.n_reused >= len(ids) - 1
        cache.capacity_bytes = 1
        cache[[1]] = writer.save_state()
        assert cache.cache_size == 0


def test_a_pickled_object_is_loaded_again(llm: Llama) -> None:
    again = pickle.loads(pickle.dumps(llm))
    assert again.n_ctx() == 256 and again.n_tokens == 0
    again.close()
