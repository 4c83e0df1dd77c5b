"""Parts of a model's name: `Owner/Name-8B-Instruct` has 8B parameters and is finetuned
(gguf-py: Metadata.get_model_id_components, utility.size_label)."""

from __future__ import annotations

import re
from typing import NamedTuple

VERSION = re.compile(r"(v|iter)?\d+([.]\d+)*", re.IGNORECASE)
TYPE = re.compile(r"i?q\d(_\w)*|b?fp?(16|32)", re.IGNORECASE)
SIZE = re.compile(
    r"(([A]|\d+[x])?\d+([._]\d+)?[KMBT][\d]?|small|mini|medium|large|x?xl)", re.IGNORECASE
)
FINETUNE = re.compile(r"chat|instruct|vision|lora", re.IGNORECASE)
UNCHANGED = re.compile(r"(v\d+(?:\.\d+)*|\d.*)")  # versions and sizes


class NameParts(NamedTuple):
    """Parts of a name on Hugging Face; None: not in the name."""

    name: str | None = None
    organization: str | None = None
    basename: str | None = None
    finetune: str | None = None
    version: str | None = None
    size_label: str | None = None


def split_name(model_id: str, n_params: int) -> NameParts:
    """Return the parts of `organization/name` or of a name.

    n_params  parameters of the model: a very different size is a context length
    """
    if " " in model_id:  # a sentence
        return NameParts(model_id)
    organization, _, name = (
        model_id.rpartition("/") if "/" not in model_id else (model_id.partition("/"))
    )
    words = [word for word in name.split("-") if word]
    kinds = [set[str]() for _ in words]
    for i, word in enumerate(words):
        words[i] = _classify(word, kinds[i], i == 0, n_params)
    _drop_word_sizes(words, kinds)
    _find_basename(words, kinds)

    def join_words(kind: str) -> str | None:
        return "-".join(w for w, k in zip(words, kinds, strict=True) if kind in k) or None

    sizes = (w for w, k in zip(words, kinds, strict=True) if "size_label" in k)
    size_label = "-".join(dict.fromkeys(sizes)) or None
    finetune, basename = join_words("finetune"), join_words("basename")
    versions = (
        w for w, k in zip(words, kinds, strict=True) if "version" in k and "basename" not in k
    )
    version = "-".join(versions) or None
    if size_label is None and finetune is None and version is None:
        basename = None  # ambiguous
    owner = None if not organization or organization.startswith(".") else organization
    return NameParts(name, owner, basename, finetune, version, size_label)


def _classify(word: str, kinds: set[str], is_first: bool, n_params: int) -> str:
    """Add the word's kinds; return its normal form."""
    if VERSION.fullmatch(word):
        kinds.add("version")
    elif TYPE.fullmatch(word):
        kinds.add("type")
        return word.upper()
    elif not is_first and SIZE.fullmatch(word):
        return _normal_size(word, kinds, n_params)
    elif not is_first and FINETUNE.fullmatch(word):
        is_label = n_params < 0 and word.lower() == "lora"
        kinds.add("type" if is_label else "finetune")
    return word


def _normal_size(word: str, kinds: set[str], n_params: int) -> str:
    word = word.replace("_", ".")
    if word[-1].isdecimal():  # 7b1 is 7.1B
        word = word[:-2] + "." + word[-1] + word[-2]
    if len(word) > 1 and word[-2].isdecimal() and word[-1] in "kmbt":
        word = word[:-1] + word[-1].upper()
    if n_params != 0:
        try:
            labelled = float(word[:-1]) * pow(1000, " KMBT".find(word[-1]))
        except ValueError:  # a word, or experts: 8x7B
            labelled = None
        if labelled is not None and (
            (n_params < 0 and labelled < abs(n_params) // 8)
            or (n_params > 0 and abs(labelled - n_params) > 7 * n_params // 8)
        ):
            kinds.add("finetune")
            word = word[:-1] + word[-1].lower()
    if not kinds:
        kinds.add("size_label")
    return word


def _drop_word_sizes(words: list[str], kinds: list[set[str]]) -> None:
    """Forget sizes like `large` if there is a number."""
    pairs = [(w, k) for w, k in zip(words, kinds, strict=True) if "size_label" in k]
    if any(c.isdecimal() for word, _ in pairs for c in word):
        for word, kind in pairs:
            if word.isalpha():
                kind.remove("size_label")


def _find_basename(words: list[str], kinds: list[set[str]]) -> None:
    """Mark the words at the start; the others without a kind are of the finetune."""
    at_start = True
    for word, kind in zip(words, kinds, strict=True):
        if at_start and ((not kind and word[0].isalpha()) or "version" in kind):
            kind.add("basename")
        else:
            at_start = False
            if not kind:
                kind.add("finetune")
    for kind in reversed(kinds):  # a version at the end is only a version
        if "basename" not in kind or len(kind) == 1:
            break
        kind.remove("basename")


def title(name: str) -> str:
    """Return a name with capitals, except versions and words that have some."""
    words = name.strip().replace("-", " ").split()
    return " ".join(w.title() if w.islower() and not UNCHANGED.fullmatch(w) else w for w in words)


def size_label(n_total: int, n_shared: int, n_expert: int, experts: int) -> str:
    """Return a label such as `7.2B` or `8x7.2B`.

    n_total   all parameters
    n_shared  parameters outside of experts
    n_expert  parameters of one expert
    experts   number of experts
    """
    if experts > 0:
        return f"{experts}x{_round(abs(n_shared) + abs(n_expert))}"
    return _round(abs(n_total))


def _round(n: int) -> str:
    steps = ((1e12, 1e-12, "T"), (1e9, 1e-9, "B"), (1e6, 1e-6, "M"), (-1, 1e-3, "K"))
    factor, suffix = next((factor, suffix) for limit, factor, suffix in steps if n > limit)
    scaled = n * factor
    digits = max(2 - len(str(round(scaled)).lstrip("0")), 0)
    return f"{scaled:.{digits}f}{suffix}"
