"""What ends an answer, and how its text is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llama_py.params.option import Params, option


@dataclass(frozen=True, kw_only=True)
class GenerateParams(Params):
    """What ends an answer, and how its text is shown: the arguments of `stream`."""

    max_tokens: int = option(
        -1, "-n", "--predict", "--n-predict", env="LLAMA_ARG_N_PREDICT",
        help="tokens to generate (-1: to the end, or a full context)",
    )  # fmt: skip
    stop: Sequence[str] = option(
        (), "-r", "--reverse-prompt", env="LLAMA_ARG_REVERSE_PROMPT", metavar="TEXT",
        parse=lambda text: (text,), many=True, help="stop at this text; may be repeated",
    )  # fmt: skip
    special: bool = option(
        False, "-sp", "--special", env="LLAMA_ARG_SPECIAL", help="show special tokens"
    )
