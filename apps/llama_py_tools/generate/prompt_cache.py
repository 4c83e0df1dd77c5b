"""State of a prompt in a file, so that the next run need not compute it (llama-completion's)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params.option import Params, option
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py.decoding.prefix import Prefix
    from llama_py.text.generate import Pieces
    from llama_py_tools.generate.generation import GenerationRun


class PromptCacheParams(Params):
    """Options of the prompt cache file."""

    group = "prompt cache"

    prompt_cache: str = option(
        "",
        "--prompt-cache",
        "file for the state of the prompt; later runs process only the tokens after the common"
        " prefix",
        metavar="FILE",
        env="",
    )
    prompt_cache_all: bool = option(
        False, "--prompt-cache-all", "also store the generated tokens in the prompt cache", env=""
    )
    prompt_cache_ro: bool = option(
        False, "--prompt-cache-ro", "use the prompt cache without changing the file", env=""
    )


class CachedPrompt:
    """Generates responses with cached states from a file."""

    def __init__(self, run: GenerationRun, params: PromptCacheParams) -> None:
        """Open the cache; ContextError if the file is damaged, not writable, or of another
        model."""
        from ggml_py.errors import ContextError
        from llama_py.decoding.prefix import Prefix
        from llama_py.decoding.prefix_cache import PrefixCache, load_slot

        self.run, self.params = run, params
        self.path = Path(params.prompt_cache)
        if not params.prompt_cache_ro and not os.access(self.path.parent, os.W_OK):
            raise ContextError(
                f"--prompt-cache {self.path}: folder is missing or not writable; use another, or "
                "--prompt-cache-ro"
            )
        self.prefix: Prefix = Prefix(run.ctx)
        if self.path.exists() and self.path.stat().st_size:
            load_slot(PrefixCache.for_context(run.ctx), self.path)

    def answer(self, ids: Sequence[int], echo: bool) -> None:
        """Continue with the tokens and write text as it is generated; then write the file."""
        rest = self.prefix.start(ids)
        self.run.note_reuse(self.prefix.last_match)
        with closing(self._pieces(ids, rest)) as pieces:
            self.run.show(pieces, len(rest), ids if echo else ())

    def _pieces(self, ids: Sequence[int], rest: Sequence[int]) -> Pieces:
        from llama_py import stream

        before, answer = ids[: len(ids) - len(rest)], list[int]()
        how = vars(self.run.params) | {"before": before}
        try:
            for piece in stream(self.run.ctx, rest, **how):
                if not answer:  # the prompt is processed, and no token is generated yet
                    self.prefix.add(rest)
                    self._save(len(rest) > 1 and not self.params.prompt_cache_all)
                if piece.token is not None:
                    answer.append(piece.token)
                yield piece
        finally:
            self.prefix.add(answer)
            self._save(self.params.prompt_cache_all)

    def _save(self, wanted: bool) -> None:
        from llama_py.decoding.prefix_cache import PrefixCache, save_slot

        if wanted and not self.params.prompt_cache_ro:
            size = save_slot(PrefixCache.for_context(self.run.ctx), self.path)
            session.log.info("%s: %.2f MiB", self.path, size / 2**20)
