"""Fill-in-the-middle prompts from the texts before and after a gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ggml_py.errors import TokenizerError
from llama_py.tokenizer import Tokenizer

N_BATCH = 2048
_NEEDED = {"fim_pre": "prefix", "fim_suf": "suffix", "fim_mid": "middle"}


def infill_ids(
    tokenizer: Tokenizer,
    prefix: str,
    suffix: str,
    *,
    prompt: str = "",
    extra: Sequence[Mapping[str, str]] = (),
    n_ctx: int = 0,
    n_predict: int = 0,
    n_batch: int = N_BATCH,
    spm: bool = False,
) -> list[int]:
    """Return the tokens that request the text between two texts
    (server-common.cpp:format_prompt_infill).

    prompt   beginning of the middle
    extra    context from other files, the best last: `{"text": ..., "filename": ...}`; cut to the
             rest of n_ctx after a batch and twice n_predict
    n_batch  three quarters are for the end of the prefix, the rest for the start of the suffix
    spm      order suffix, prefix, middle, which some models prefer

    Raises TokenizerError if the model lacks the infill tokens.
    """
    ids = tokenizer.special_ids
    missing = [text for name, text in _NEEDED.items() if name not in ids]
    if missing:
        raise TokenizerError(
            f"this model cannot fill in the middle: its vocabulary has no {', '.join(missing)} "
            "token; use a model that was trained for it, or set the token ids (--override-kv "
            "tokenizer.ggml.fim_pre_token_id=int:N, fim_suf_, fim_mid_)"
        )
    head, tail = (tokenizer.tokenize(text, False, False) for text in (prefix, suffix))
    begun = tokenizer.tokenize(prompt, False)
    quarter = n_batch // 4
    n_tail = max(0, quarter - (2 + len(begun)))
    before = [ids["fim_pre"], *head[max(0, len(head) - 3 * quarter) :], *begun]
    behind = [ids["fim_suf"], *tail[:n_tail]]
    around = _around(tokenizer, extra)
    n_around = max(0, n_ctx - n_batch - 2 * n_predict)
    first = [ids["bos"]] if tokenizer.add_bos else []
    parts = [behind, before] if spm else [before, behind]
    return [*around[max(0, len(around) - n_around) :], *first, *parts[0], *parts[1], ids["fim_mid"]]


def _around(tokenizer: Tokenizer, extra: Sequence[Mapping[str, str]]) -> list[int]:
    """Tokenize extra texts, as files of a repository if the model has such tokens."""
    special = tokenizer.special_ids

    def tokenize(text: str) -> list[int]:
        return tokenizer.tokenize(text, False, False)

    found = [special["fim_rep"], *tokenize("myproject\n")] if "fim_rep" in special else []
    for chunk in extra:
        if "fim_sep" in special:
            found += [special["fim_sep"], *tokenize(chunk.get("filename", "tmp") + "\n")]
        else:
            found += tokenize("\n\n--- snippet ---\n\n")
        found += tokenize(chunk["text"])
    if "fim_sep" in special:
        found += [special["fim_sep"], *tokenize("filename\n")]
    return found
