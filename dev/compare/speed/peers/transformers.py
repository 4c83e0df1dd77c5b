"""Hugging Face transformers with PyTorch, which make plain weights of a GGUF file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from dev.compare.speed.engine import Engine, Sizes

OPTION = (
    "--transformers",
    {"metavar": "PYTHON", "help": "has transformers, torch and gguf: float32 and bfloat16"},
)


def started(python: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for dtype in ("float32", "bfloat16"):
        yield f"transformers {dtype}", python, {"dtype": dtype}


class Loaded(Engine):
    name = "transformers"

    def __init__(self, model: str, threads: int, dtype: str) -> None:
        torch, transformers = map(import_module, ("torch", "transformers"))
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        self.torch, self.new_cache = torch, transformers.DynamicCache
        folder, file = Path(model).parent, Path(model).name
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), gguf_file=file, torch_dtype=getattr(torch, dtype)
        ).eval()
        self.n_vocab = int(self.model.config.vocab_size)

    def open(self, sizes: Sizes) -> None:
        if (sizes.type_k, sizes.type_v) != ("f16", "f16"):
            raise ValueError("transformers keeps its caches in the type of the weights")

    def clear(self) -> None:
        self.cache = self.new_cache()

    def decode(self, tokens: Sequence[int], seq: int = 0) -> Any:
        return self._run([tokens], 1)[0, -1]

    def fill(self, tokens: Sequence[int]) -> None:
        """Decode the same tokens in all sequences, which are rows of one tensor."""
        for i in range(0, len(tokens), self.sizes.n_ubatch):
            self._run([tokens[i : i + self.sizes.n_ubatch]] * self.sizes.n_seqs, 1)

    def step(self, tokens: Sequence[int]) -> None:
        self._run([[token] for token in tokens], 1)

    def decode_all(self, tokens: Sequence[int]) -> None:
        self._run([tokens], len(tokens))

    def _run(self, rows: Sequence[Sequence[int]], n_logits: int) -> Any:
        ids = self.torch.tensor(rows)
        found = self.model(
            input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=n_logits
        )
        self.cache = found.past_key_values
        return found.logits

    def keep(self) -> None:
        """Return without copying, because the cache can be cut."""

    def back(self) -> None:
        if self.depth:
            self.cache.crop(self.depth)
        else:
            self.clear()
