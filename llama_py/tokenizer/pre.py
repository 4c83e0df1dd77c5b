"""Pre-tokenizers: split a text into words before merging, by `tokenizer.ggml.pre`.

A pre-tokenizer is a list of cuts, applied in sequence, and other properties that llama.cpp derives
from its name (llama-vocab.cpp:llm_tokenizer_bpe, impl::load). The patterns are llama.cpp's.

To add one: an entry in `PRE_TOKENIZERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_py.tokenizer.cuts import CutStep, Kinds, PatternCut, Threes, words

_FALCONS_END = 11  # BOS and EOS if the file does not specify them


@dataclass(frozen=True)
class PreTokenizer:
    """Pre-tokenizer; flags apply if the file lacks their key.

    ignore_merges  a word that is a token is that token
    add_bos        a text starts with BOS; `always`: regardless of the file
    clean_spaces   llama.cpp removes spaces before punctuation when it joins tokens
    default_bos    BOS if the file does not specify its id
    as_bytes       tokens consist of GPT-2's characters for bytes; else of text, with U+2581 for a
                   space (if `escape`), and a character without a token becomes tokens of bytes
    newlines       a row of newlines that is a token is that token
    space_prefix   a word other than newlines starts with U+2581
    lowercase      letters are lowercased, if the model supports it
    """

    cuts: tuple[CutStep, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    always: bool = False
    add_sep: bool = False
    clean_spaces: bool = False
    default_bos: int | None = _FALCONS_END
    as_bytes: bool = True
    escape: bool = False
    newlines: bool = False
    space_prefix: bool = False
    lowercase: bool = True

    @property
    def default_ids(self) -> dict[str, int]:
        """Special tokens, if the file does not specify them."""
        bos = {} if self.default_bos is None else {"bos": self.default_bos}
        return {"eos": _FALCONS_END} | bos

    def split(self, text: str) -> list[str]:
        """Split a text into words; joined, they are the text."""
        return words(text, self.cuts)


# 's, 't, ... in either case.
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"


def _join_patterns(*patterns: str) -> Kinds:
    return Kinds("|".join(patterns))


_GPT2 = Kinds(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)")
_LLAMA3 = _join_patterns(_CONTRACTION, _WORD, r"\p{N}{1,3}", _PUNCTUATION, _SPACES)
_QWEN2 = _join_patterns(_CONTRACTION, _WORD, r"\p{N}", _PUNCTUATION, _SPACES)
_QWEN35 = _join_patterns(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    _SPACES,
)
_UFAKZEKA = _join_patterns(_WORD, r"\p{N}", _PUNCTUATION, _SPACES)
_DIGITS, _UP_TO_THREE = Kinds(r"\p{N}"), Kinds(r"\p{N}{1,3}")
_MINICPM5 = (_UP_TO_THREE, _join_patterns(_CONTRACTION, _WORD, r"\p{N}+", _PUNCTUATION, _SPACES))
_SEED_CODER = _join_patterns(_CONTRACTION, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES)
_EXAONE_MOE = _join_patterns(
    _CONTRACTION,
    # The original pattern (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+ without nesting.
    r"[^\r\n\p{L}\p{N}]?\p{L}[\p{L}\p{M}]*(?: \p{L}[\p{L}\p{M}]*)*",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
    _SPACES,
)
_JAIS2 = _join_patterns(
    _CONTRACTION,
    _WORD,
    r"\p{N}{1,3}",
    _PUNCTUATION,
    r"\s*[\r\n]+",
    *(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)),
    r"\s{1,2}(?!\S)|\s",
)

_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{U}%(mark)s]*[\p{W}%(mark)s]+%(end)s",
    r"[^\r\n\p{L}\p{N}]?[\p{U}%(mark)s]+[\p{W}%(mark)s]*%(end)s",
)
_CASED_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


def _build_cased(numbers: str, mark: str = "", end: str = "") -> Kinds:
    found = (pattern % {"mark": mark, "end": end} for pattern in _CASED)
    return _join_patterns(*found, numbers, _CASED_PUNCTUATION, _SPACES)


_TEKKEN = _build_cased(r"\p{N}")
_GPT4O = _build_cased(r"\p{N}{1,3}", end=_CONTRACTION + "?")
_GRANITE_EMBED = _build_cased(r"\p{N}{1,3}", r"\p{M}", _CONTRACTION + "?")

# llama.cpp accepts any letter for \p{Lu}, \p{Ll} and similar, so the original's two cases are one.
_MARKED_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_CONTRACTION}?"
_YOUTU = (
    PatternCut(r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
    _join_patterns(_MARKED_WORD, r"\p{N}", _CASED_PUNCTUATION, _SPACES),
)
_TINY_AYA = (
    Threes(r"\p{N}+"),
    _join_patterns(_MARKED_WORD, r"\p{N}{1,3}", _CASED_PUNCTUATION, _SPACES),
)
_SUPERBPE = (Kinds(r"\p{N}+"), Threes("[0-9]+", before=True))

# Like llama.cpp, unlike the original: capitals and combining marks do not end or join a word.
_KIMI_K2 = _join_patterns(
    r"\p{Han}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?(?:(?!\p{{Han}})\p{{L}})+{_CONTRACTION}?",
    r"\p{N}{1,3}",
    _PUNCTUATION,
    _SPACES,
)

_DEEPSEEK_LETTERS = (
    "A-Za-z"
    "µÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤ"
    "Ⳬ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_CJK = PatternCut(r"[一-龥ࠀ-一가-\ud7ff]+")
_DEEPSEEK_LLM = (
    PatternCut(r"[\r\n]"),
    PatternCut(rf"\s?[{_DEEPSEEK_LETTERS}]+"),
    PatternCut(r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"),
    PatternCut(r"\s+\Z"),
    _DEEPSEEK_CJK,
    Kinds(r"\p{N}+"),
)
_DEEPSEEK_CODER = (
    PatternCut(r"[\r\n]"),
    Kinds(r"\s?\p{L}+"),
    Kinds(r"\s?\p{P}+"),
    _DEEPSEEK_CJK,
    _DIGITS,
)
_DEEPSEEK_WORD = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
)
_DEEPSEEK_V3 = (
    _UP_TO_THREE,
    PatternCut(r"[一-龥぀-ゟ゠-ヿ]+"),
    _join_patterns(_DEEPSEEK_WORD, r" ?[\p{P}\p{S}]+[\r\n]*", _SPACES),
)
_SPARK = (
    *_DEEPSEEK_V3[:2],
    _join_patterns(_DEEPSEEK_WORD, r" ?[\p{P}\p{S}]+", r"[\r\n]", r"\s+(?!\S)", r"\s+"),
    _DIGITS,
)
_AFMOE = (
    Threes(r"\p{N}+"),
    PatternCut(
        r"[一-鿿㐀-䶿\u8C48-\uFAFF぀-ゟ゠-ヿ･-ﾟ⼀-⿟\u0E40-\u0E7F\u0E80-\u0EFF"
        r"\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF"
        r"\u1100-\u11FF]+"
    ),
    _DEEPSEEK_V3[2],
)
_BLOOM = PatternCut(r" ?[^(\s|.,!?…。，、।۔،)]+")
_CHAMELEON = (
    PatternCut(r"<sentinel:[0-9]+>"),
    PatternCut(r"IMGIMG[A-I]{1,4}Z"),
    PatternCut(r"[\t\n]|    |  "),
    _DIGITS,
    Kinds(r"[\p{P}!-/:-@\[-`{-~]"),
    _GPT2,
)
_DEFAULT = (Kinds(r"[\p{P}\$\+<=>\^~\|]+"), _GPT2, Kinds(r"\p{N}+"), PatternCut(r"[0-9][0-9][0-9]"))
_FALCON = (Kinds(r"[\p{P}\$\+<=>\^~\|`]+"), _GPT2, PatternCut(r"[0-9][0-9][0-9]"))
_LINES = PatternCut(r"[^\n]+|\n+")
_SPACED_LINES = PatternCut(r"▁?[^▁\n]+|▁|\n+")


def _names(names: str, *cuts: CutStep, **flags: Any) -> dict[str, PreTokenizer]:
    return dict.fromkeys(names.split(), PreTokenizer(cuts, **flags))


PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    **_names("default", *_DEFAULT, clean_spaces=True),
    **_names(
        "gpt-2 phi-2 mpt olmo jais exaone4 gigachat mellum a.x-4.0 modern-bert jina-es jina-de"
        " jina-v2-es jina-v2-de",
        _GPT2,
        clean_spaces=True,
    ),
    **_names("trillion granite-docling", _GPT2),
    **_names("jina-v1-en jina-v2-code roberta-bpe", _GPT2, add_sep=True, clean_spaces=True),
    **_names(
        "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        _LLAMA3,
        ignore_merges=True,
        add_bos=True,
        clean_spaces=True,
    ),
    **_names("dbrx smaug-bpe", _LLAMA3, clean_spaces=True),
    **_names("chatglm-bpe", _LLAMA3, clean_spaces=True, default_bos=None),
    **_names("glm4 glm5", _LLAMA3, ignore_merges=True, clean_spaces=True, default_bos=None),
    **_names("stablelm2 megrez", _QWEN2, clean_spaces=True),
    **_names(
        "qwen2 deepseek-r1-qwen hunyuan solar-open grok-2 kormo f2llmv2 bailingmoe bailingmoe2"
        " llada-moe",
        _QWEN2,
    ),
    **_names("qwen35", _QWEN35),
    **_names("ufakzeka", _UFAKZEKA),
    **_names("laguna", _LINES, _QWEN2),
    **_names("minicpm5", *_MINICPM5, ignore_merges=True, clean_spaces=True),
    **_names("seed-coder", _SEED_CODER),
    **_names("exaone-moe", _EXAONE_MOE, clean_spaces=True),
    **_names("jais-2", _JAIS2, clean_spaces=True),
    **_names("tekken", _TEKKEN, ignore_merges=True, add_bos=True),
    **_names("gpt-4o llama4 kanana2 talkie minimax-m2", _GPT4O),
    **_names("granite-embed-multi-97m", _GRANITE_EMBED, ignore_merges=True),
    **_names("tiny_aya cohere2moe", *_TINY_AYA),
    **_names("youtu", *_YOUTU, ignore_merges=True),
    **_names("kimi-k2", _KIMI_K2),
    **_names("smollm command-r", _DIGITS, _GPT2),
    **_names(
        "starcoder refact codeshell exaone minerva-7b mellum2", _DIGITS, _GPT2, clean_spaces=True
    ),
    **_names("superbpe", *_SUPERBPE),
    **_names("deepseek-llm", *_DEEPSEEK_LLM),
    **_names("deepseek-coder", *_DEEPSEEK_CODER),
    **_names("deepseek-v3 hunyuan-dense joyai-llm hy_v4", *_DEEPSEEK_V3),
    **_names("spark2_5", *_SPARK),
    **_names("afmoe", *_AFMOE),
    **_names("falcon", *_FALCON, clean_spaces=True),
    **_names("bloom gpt3-finnish", _BLOOM, clean_spaces=True),
    **_names("poro-chat", _BLOOM),
    **_names("viking", _BLOOM, _DIGITS),
    **_names("chameleon", *_CHAMELEON, add_bos=True),
    **_names(
        "gemma4 granite-embed-multi-311m",
        _LINES,
        always=True,
        clean_spaces=True,
        as_bytes=False,
        escape=True,
        newlines=True,
    ),
    **_names(
        "mmbert",
        _SPACED_LINES,
        clean_spaces=True,
        as_bytes=False,
        escape=True,
        newlines=True,
        space_prefix=True,
    ),
    **_names("sarvam-moe", _LINES, as_bytes=False, escape=True),
    **_names("whitespace", PatternCut(r"\S+"), clean_spaces=True, as_bytes=False, lowercase=False),
}
