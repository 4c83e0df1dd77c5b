"""Tokenizers, on llama.cpp's own test vectors and on small vocabularies."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggml_py.errors import TokenizerError
from llama_py.tokenizer import Tokenizer, TokenType
from llama_py.tokenizer.pre import PRE_TOKENIZERS
from tests.support import vocab_data
from tests.support.text_vocab import bpe, bpe_meta, characters, spm
from tests.support.vocabularies import recorded, texts

NORMAL, CONTROL, USER_DEFINED = TokenType.NORMAL, TokenType.CONTROL, TokenType.USER_DEFINED


def pieces(tokenizer: Tokenizer, text: str, **how: bool) -> list[str]:
    how = {"add_special": False, **how}
    return [tokenizer.vocab.texts[i] for i in tokenizer.tokenize(text, **how)]


WITHOUT_VECTORS = {"aquila", "baichuan", "gpt-neox", "nomic-bert-moe"}  # these have no .inp
LOSING = {"bert-bge", "nomic-bert-moe"}  # case, accents, or spaces of texts


@pytest.mark.parametrize("name", vocab_data.NAMES)
def test_whole_vocabularies_of_llama_cpp(name: str) -> None:
    """Its own test vectors, and what it makes of many texts."""
    metadata, vectors, expected = vocab_data.vocabulary(name)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert len(vectors) == len(expected) > 40 or name in WITHOUT_VECTORS
    for text, wanted in zip(vectors, expected, strict=True):
        ids = tokenizer.tokenize(text, add_special=False, parse_special=False)
        assert ids == wanted, repr(text)
        assert tokenizer.detokenize(ids) == text or name in LOSING
    for text, wanted in zip(texts(), recorded()[name], strict=True):
        assert tokenizer.tokenize(text) == wanted, repr(text)


# What is cut where. One line for each way of cutting; "|" marks a cut. What stands after the "é "
# is what only this way cuts so.
CUTS = {
    "default": "I|'|m| HelloWorld|'|s| |123|45| x|=|y|;| 你好a|\t \n | z|…|🙂| e|́| ",
    "gpt-2": "I|'m| HelloWorld|'s| 12345| x|=|y|;| 你好a|\t \n | z|…🙂| e|́| ",
    "llama-bpe": "I|'m| HelloWorld|'s| |123|45| x|=y|;| 你好a|\t \n| | z|…🙂| e|́| ",
    "qwen2": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=y|;| 你好a|\t \n| | z|…🙂| e|́| ",
    "qwen35": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=y|;| 你好a|\t \n| | z|…🙂| é| ",
    "tekken": "I|'m| Hello|World|'s| |1|2|3|4|5| x|=y|;| 你好a|\t \n| | z|…🙂| e|́| ",
    "gpt-4o": "I'm| Hello|World's| |123|45| x|=y|;| 你好a|\t \n| | z|…🙂| e|́| ",
    "kimi-k2": "I'm| HelloWorld's| |123|45| x|=y|;| |你好|a|\t \n| | z|…🙂| e|́| ",
    "smollm": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=|y|;| 你好a|\t \n | z|…🙂| e|́| ",
    "deepseek-llm": "I|'|m| HelloWorld|'|s| |12345| x|=|y|;| |你好|a|\t |\n| | z|…|🙂| e|́| ",
    "deepseek-coder": "I|'|m| HelloWorld|'|s| |1|2|3|4|5| x|=|y|;| |你好|a|\t |\n| | z|…|🙂| e|́ ",
    "deepseek-v3": "I|'m| HelloWorld|'s| |123|45| x|=y|;| |你好|a|\t \n| | z|…🙂| é| ",
    "falcon": "I|'|m| HelloWorld|'|s| |123|45| x|=|y|;| 你好a|\t \n | z|…|🙂| e|́| ",
    "ufakzeka": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=y|;| 你好a|\t \n| | z|…🙂| e|́| it|'sx",
    "laguna": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=y|;| 你好a|\t |\n| | z|…🙂| e|́| a|!| |\n\n|!",
    "minicpm5": "I|'m| HelloWorld|'s| |123|45| x|=y|;| 你好a|\t \n| | z|…🙂| e|́|   |5",
    "seed-coder": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=y|;| 你好a|\t \n| | z|…🙂| e|́| !|\n\n",
    "exaone-moe": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=y|;| 你好a|\t \n| | z|…🙂| é a b c|/\n|\n",
    "jais-2": "I|'m| HelloWorld|'s| |123|45| x|=y|;| 你好a|\t \n| | z|…🙂| e|́| a|    |  | b",
    "granite-embed-multi-97m": "I'm| Hello|World's| |123|45| x|=y|;| 你好a|\t \n| | z|…🙂| é| é|X",
    "tiny_aya": "I'm| HelloWorld's| |12|345| x|=y|;| 你好a|\t \n| | z|…🙂| é| |1|234|567",
    "youtu": "I'm| HelloWorld's| |1|2|3|4|5| x|=y|;| |你好|a|\t \n| | z|…|🙂| é| |！|ㄅ|한ㄱ",
    "superbpe": "I'm HelloWorld's |12|345| x=y; 你好a\t \n  z…🙂 é |1|234²|567",
    "spark2_5": "I|'m| HelloWorld|'s| |1|2|3|4|5| x|=y|;| |你好|a|\t \n | z|…🙂| é| !|\n|\n",
    "afmoe": "I|'m| HelloWorld|'s| |12|345| x|=y|;| |你好|a|\t \n| | z|…🙂| é| |½|123|ไ|ทย",
    "poro-chat": "I'm| HelloWorld's| 12345| x=y;| 你好a|\t \n | z|…|🙂| é| (|a|)|-b",
    "viking": "I'm| HelloWorld's| |1|2|3|4|5| x=y;| 你好a|\t \n | z|…|🙂| é| (|a|)|-|1|2",
    "gemma4": "I'm HelloWorld's 12345 x=y; 你好a\t |\n|  z…🙂 é |\n\n| a",
    "mmbert": "I'm HelloWorld's 12345 x=y; 你好a\t |\n|  z…🙂 é |\n\n|a|▁|▁b|\n",
    "whitespace": "I'm| |HelloWorld's| |12345| |x=y;| |你好a|\t \n  |z…🙂| |é| \u2003",
    "chameleon": "I|'|m| HelloWorld|'|s| |1|2|3|4|5| x|=|y|;| 你好a|\t| |\n|  |z|…|🙂| e|́| "
    "|<|sentinel|:|7|>|IMGIMGABZ|    |x|\n",
}


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pre_tokenizer_cuts_as_written_here(pre: str) -> None:
    ways = [w for w in CUTS if PRE_TOKENIZERS[w].cuts == PRE_TOKENIZERS[pre].cuts]
    assert len(ways) == 1, f"CUTS needs a line for {pre}"
    cuts = CUTS[ways[0]].split("|")
    text = "".join(cuts)
    assert PRE_TOKENIZERS[pre].split(text) == cuts


def test_merges_go_by_rank_then_from_the_left() -> None:
    tokenizer = bpe("b c", "a b", "ab c", "c c")
    assert pieces(tokenizer, "abc") == ["a", "bc"]
    assert pieces(tokenizer, "abab") == ["ab", "ab"]
    assert pieces(tokenizer, "ccc") == ["cc", "c"]


def test_a_whole_word_goes_before_merges_only_where_the_pre_tokenizer_says_so() -> None:
    assert pieces(bpe("b c", "a b", "ab c", pre="llama-bpe", bos_token_id=0), "abc") == ["abc"]
    assert pieces(bpe("b c", "a b", "ab c", pre="qwen2"), "abc") == ["a", "bc"]


def test_the_first_of_equal_merges_counts() -> None:
    meta = bpe_meta("a b", "b c")
    meta["tokenizer.ggml.merges"] += ["a b"]
    assert pieces(Tokenizer.from_metadata(meta), "abc") == ["ab", "c"]


@given(st.text())
def test_bpe_round_trip(text: str) -> None:
    tokenizer = ROUND_TRIP
    assert tokenizer.detokenize(tokenizer.tokenize(text, False, False)) == text


ROUND_TRIP = bpe("Ġ a", "a b", pre="qwen35")


def test_a_byte_without_a_token_is_dropped_and_does_not_join_its_neighbours() -> None:
    meta = bpe_meta("a b")
    meta["tokenizer.ggml.tokens"] = [*characters()[: ord("x")], *characters()[ord("x") + 1 :], "ab"]
    tokenizer = Tokenizer.from_metadata(meta)
    assert pieces(tokenizer, "axb ab") == ["a", "b", "Ġ", "ab"]


def test_merges_of_and_into_what_is_no_token() -> None:
    """As in llama.cpp: they are made, and what is no token in the end is its bytes."""
    meta = bpe_meta("a b", special={"xyz": NORMAL})
    meta["tokenizer.ggml.merges"] += ["no-space", "b c", "x y", "xy z"]
    tokenizer = Tokenizer.from_metadata(meta)
    assert pieces(tokenizer, "abbcxyz") == ["ab", "b", "c", "xyz"]


def test_a_missing_pre_tokenizer_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "llama_py"):
        assert pieces(bpe(pre=None), "a") == ["a"]
    assert "pre is missing" in caplog.text


def test_bytes_that_are_not_utf8() -> None:
    assert bpe().detokenize(bpe().tokenize("a\udcffb")) == "a�b"
    tokenizer = spm({"▁": -1.0, "a": -1.0})
    ids = tokenizer.tokenize("\udcffa", add_special=False)
    assert b"".join(map(tokenizer.token_bytes, ids)) == b" \xffa"
    assert tokenizer.detokenize(ids) == "�a"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\xea2\x81a", ["a", "<0xEA>", "<0x32>", "<0x81>", "a"]),
        (b"\xe2\x96", ["<0xE2>", "<0x96>"]),
        (b"\x81aa\xc32a", ["<0x81>", "aa", "<0xC3>", "<0x32>", "a"]),
        (b"a\xff\xe2\x96\x81a", ["a", "<0xFF>", "<0xE2>", "<0x96>", "<0x81>", "a"]),
    ],
)
def test_a_first_byte_takes_the_bytes_of_its_character(data: bytes, expected: list[str]) -> None:
    """In llama.cpp's SPM tokenizer, whatever follows it."""
    tokenizer = spm({"▁": -1.0, "a": -1.0, "aa": -1.0, "2": -1.0})
    text = data.decode("utf-8", "surrogateescape")
    assert pieces(tokenizer, text, add_special=False) == ["▁", *expected]


def test_spm_merges_by_score_then_from_the_left() -> None:
    scored = dict.fromkeys("abc", -9.0) | {"ab": -2.0, "bc": -1.0, "aa": -3.0}
    tokenizer = spm(scored, add_space_prefix=False)
    assert pieces(tokenizer, "abc") == ["a", "bc"]
    assert pieces(tokenizer, "aaa") == ["aa", "a"]


def test_spm_merges_what_is_no_token_itself() -> None:
    """`né` is reached from `é`, which is no token; HF's BPE would give bytes."""
    tokenizer = spm({"n": -1.0, "né": -2.0}, add_space_prefix=False)
    assert pieces(tokenizer, "néé") == ["né", "<0xC3>", "<0xA9>"]


def test_spm_space_prefix_and_words() -> None:
    tokenizer = spm({"▁": -1.0, "a": -1.0, "▁a": -0.5, "▁▁": -0.4}, {"<x>": USER_DEFINED})
    assert pieces(tokenizer, "a") == ["▁a"]
    assert pieces(tokenizer, "a  a") == ["▁a", "▁▁", "a"]
    assert pieces(tokenizer, "a<x>a") == ["▁a", "<x>", "▁a"]
    assert pieces(tokenizer, "") == []
    assert tokenizer.detokenize(tokenizer.tokenize("a  a")) == "a  a"


def test_spm_with_spaces_inside_tokens() -> None:
    """`a▁` crosses the words into which a text may be cut when no token does."""
    tokenizer = spm({"▁": -3.0, "a": -3.0, "▁a": -2.0, "a▁": -1.0}, add_space_prefix=False)
    assert pieces(tokenizer, "a a") == ["a▁", "a"]


def test_spm_without_byte_tokens_uses_the_unknown_token() -> None:
    meta = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "a"],
        "tokenizer.ggml.add_bos_token": False,
    }
    tokenizer = Tokenizer.from_metadata(meta)
    assert tokenizer.tokenize("aé") == [0, 0, 0, 1, 0, 0]  # the bytes of ▁ and of é


def test_special_tokens_in_a_text() -> None:
    tokenizer = bpe(special={"<|c|>": CONTROL, "<u>": USER_DEFINED, "<u>+": USER_DEFINED})
    assert pieces(tokenizer, "<u>+<|c|>") == ["<u>+", "<|c|>"]
    assert pieces(tokenizer, "<u><|c|>", parse_special=False) == ["<u>", *"<|c|>"]
    assert tokenizer.detokenize(tokenizer.tokenize("a<|c|><u>")) == "a<u>"
    assert tokenizer.detokenize(tokenizer.tokenize("a<|c|><u>"), special=True) == "a<|c|><u>"
    control = tokenizer.tokenize("<|c|>")[0]
    assert tokenizer.is_control(control) and tokenizer.token_to_piece(control) == b""
    assert tokenizer.token_bytes(control) == b"<|c|>"


def test_bos_and_eos() -> None:
    special = {"<s>": CONTROL, "</s>": CONTROL}
    ids = {"bos_token_id": 256, "eos_token_id": 257}
    plain = bpe(special=special, **ids)
    assert (plain.bos, plain.eos, plain.add_bos) == (256, 257, False)
    assert plain.tokenize("a") == [97]
    both = bpe(special=special, add_bos_token=True, add_eos_token=True, **ids)
    assert both.tokenize("a") == [256, 97, 257]
    assert both.tokenize("a", add_special=False) == [97]
    assert both.detokenize(both.tokenize("a")) == "a"
    assert bpe(special=special, pre="llama-bpe", **ids).tokenize("") == [256]
    assert spm({"▁a": 0.0}).tokenize("a") == [1, 259]


ARCH, PRE, NAME = "general.architecture", "tokenizer.ggml.pre", "general.name"
LEFT, RIGHT, BOTH = [*b"a ", 256, 97], [*b"a", 256, *b" a"], [*b"a ", 256, *b" a"]


@pytest.mark.parametrize(
    ("said", "token", "ids"),
    [
        ({NAME: "Phi-3-mini"}, "<|c|>", LEFT),
        ({NAME: "my phi3"}, "</s>", LEFT),
        ({NAME: "Phi-3-mini"}, "<|endoftext|>", BOTH),
        ({NAME: "other"}, "<|c|>", BOTH),
        ({ARCH: "nomic-bert-moe"}, "<mask>", RIGHT),
        ({ARCH: "jina-bert-v3", NAME: "jina-bert-v3"}, "<mask>", RIGHT),
        ({ARCH: "jina-bert-v3", NAME: "phi-3"}, "<mask>", RIGHT),
        ({ARCH: "jina-bert-v3"}, "[MASK]", BOTH),
        ({PRE: "jina-v2-de"}, "<mask>", RIGHT),
        ({PRE: "jina-es"}, "<mask>", BOTH),
        ({NAME: "Modern-BERT"}, "[MASK]", RIGHT),
        ({NAME: "modern-bert of phi-3"}, "[MASK]", LEFT),
        ({ARCH: "phi3", NAME: "other"}, "<|c|>", BOTH),
    ],
)
def test_tokens_that_eat_the_spaces_beside_them(
    said: dict[str, str], token: str, ids: list[int]
) -> None:
    tokenizer = Tokenizer.from_metadata(bpe_meta(special={token: CONTROL}) | said)
    assert tokenizer.tokenize(f"a {token} a") == ids


def test_words_of_mmbert_start_with_a_space() -> None:
    special = {"▁": NORMAL, "<mask>": CONTROL, "<b>": CONTROL}
    tokenizer = bpe("▁ a", "a ▁", special=special, pre="mmbert", add_bos_token=False)
    assert pieces(tokenizer, "a  a\na<b>a <b>") == ["▁a", "▁", "▁a", "▁a", "<b>", "▁a", "▁", "<b>"]
    assert pieces(tokenizer, "a \n <mask> a<mask>") == ["▁a", "<mask>", "▁a", "<mask>"]


def test_what_ends_generation() -> None:
    texts = ["<|im_end|>", "<|eot_id|>", "<|fim_pad|>", "<odd>", "plain"]
    tokenizer = bpe(special=dict.fromkeys(texts, NORMAL), eos_token_id=259)
    assert tokenizer.eog == {256, 257, 258, 259}
    assert tokenizer.is_eog(256) and not tokenizer.is_eog(260) and not tokenizer.is_eog(10**9)
    assert tokenizer.is_control(256) and not tokenizer.is_control(259)


def test_ends_that_stand_inside_an_answer() -> None:
    names = dict.fromkeys(["<|end|>", "<|return|>", "<|call|>"], CONTROL)
    harmony = bpe(special=names, eos_token_id=257)
    assert harmony.eog == {257, 258} and not harmony.is_control(256)
    phi = bpe(special={"<|end|>": CONTROL}, eos_token_id=256)
    assert phi.eog == {256}


def test_fill_in_the_middle_tokens_are_control_tokens_unless_the_file_names_others() -> None:
    assert bpe(special={"<|fim_prefix|>": USER_DEFINED}).is_control(256)
    named = bpe(special={"<|fim_prefix|>": USER_DEFINED}, fim_pre_token_id=1)
    assert not named.is_control(256)


@pytest.mark.parametrize("model", ["none", "no_vocab"])
def test_files_without_a_vocabulary(model: str) -> None:
    meta = {"tokenizer.ggml.model": model, "general.architecture": "llama", "llama.vocab_size": 5}
    tokenizer = Tokenizer.from_metadata(meta)
    assert tokenizer.n_vocab == 5 and not tokenizer.is_eog(0)
    assert tokenizer.detokenize([4]) == "tok_4"
    with pytest.raises(TokenizerError, match=r"no vocabulary.*--tokens"):
        tokenizer.tokenize("Hello")
    with pytest.raises(TokenizerError, match="vocab_size"):
        Tokenizer.from_metadata(meta | {"llama.vocab_size": 10**12})


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": "plamo"}, r"'plamo'.*known: .*gpt2, hybriddna, llama"),
    "no model": ({"model": None}, "unknown tokenizer.ggml.model 'None'"),
    "pre": ({"pre": "qwen3"}, r"'qwen3'.*known: .*qwen2.*nearest: qwen"),
    "no merges": ({"merges": None}, "merges must be a list of strings, got missing"),
    "tokens": ({"tokens": 3}, "tokens must be a list of strings, got a int"),
    "equal tokens": ({"tokens": ["a", "b", "a"]}, "2 different strings; 'a' occurs again"),
    "few types": ({"token_type": [1]}, "token_type must be 256 numbers"),
    "types": ({"token_type": ["x"] * 256}, "token_type must be 256 numbers"),
    "no bos": ({"add_bos_token": True, "pre": "glm4"}, "bos_token_id is missing"),
    "bos": (
        {"add_bos_token": True, "pre": "glm4", "bos_token_id": 999},
        "bos_token_id .* out of range",
    ),
}


@pytest.mark.parametrize("keys,message", BAD.values(), ids=BAD)
def test_bad_metadata(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        bpe(**keys)


def test_ids_outside_the_vocabulary() -> None:
    for id in (-1, 256):
        with pytest.raises(
            TokenizerError, match=rf"token must be in the vocabulary, 0..255, got {id}"
        ):
            bpe().token_to_piece(id)


def test_empty_tokens_have_the_stand_in_of_llama_cpp() -> None:
    assert bpe(special={"": CONTROL}).vocab.texts[256] == "[EMPTY_256]"


def test_importing_and_opening_do_not_load_the_library() -> None:
    code = (
        "import sys; from llama_py.tokenizer import Tokenizer;"
        "Tokenizer.from_metadata({'tokenizer.ggml.model': 'gpt2', 'tokenizer.ggml.pre': 'gpt-2',"
        " 'tokenizer.ggml.tokens': ['a'], 'tokenizer.ggml.merges': []});"
        "sys.exit('tokenizers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
