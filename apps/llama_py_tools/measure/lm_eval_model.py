"""Model `llama-py` of lm-evaluation-harness; importing this module registers it.

from llama_py_tools.measure.lm_eval_model import LlamaPy

results = lm_eval.simple_evaluate(LlamaPy("model.gguf"), tasks=["arc_easy"])
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from tqdm import tqdm

import llama_py
from llama_py.params import ModelParams
from llama_py_tools.measure.evaluation import EvaluationParams, Evaluator, LogLikelihood

DEFAULT_DEVICES = ("cuda", "cuda:0")  # of lm_eval's --device


@register_model("llama-py")
class LlamaPy(LM):  # type: ignore[misc]  # lm_eval has no types
    """A GGUF model; results do not depend on the batch size."""

    def __init__(
        self,
        path: str | None = None,
        pretrained: str | None = None,
        hf_repo: str = "",
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        device: str | None = None,
        **options: Any,
    ) -> None:
        """Load a GGUF model, and create its evaluator.

        Args:
            path: GGUF file; None: the bundled demo model.
            pretrained: Another name of `path`.
            hf_repo: Model of the Hugging Face Hub instead of a file, USER/MODEL[:TYPE].
            batch_size: Sequences computed in parallel; 1 or "auto": the evaluator's default.
            max_batch_size: Ignored; `n_seq_max` limits the sequences.
            device: Device of llama-py; lm_eval's default, cuda:0, means the CPU.
            options: Fields of EvaluationParams, ModelParams and ContextParams.
        """
        super().__init__()
        file: str | None = path or pretrained
        if hf_repo:
            from llama_py_tools.command.params import FileParams
            from llama_py_tools.models.hub import download_model

            file = download_model(FileParams(hf_repo=hf_repo))
        if device not in (None, *DEFAULT_DEVICES):
            options["device"] = device
        params = EvaluationParams(**_take(options, EvaluationParams))
        self.model = llama_py.load(file, **_take(options, ModelParams))
        n_seq_max = options.pop("n_seq_max", _batch_size(batch_size))
        self.evaluator = Evaluator(self.model, params, n_seq_max, **options)
        self._close = weakref.finalize(self, _close, self.evaluator, self.model)

    def close(self) -> None:
        """Release the model's memory; otherwise the end of the program does."""
        self._close()

    def loglikelihood(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[LogLikelihood]:
        """Return log probability and `is_greedy` of each (context, continuation)."""
        with self._progress("loglikelihood", requests, disable_tqdm) as report:
            return self.evaluator.score_pairs([one.args for one in requests], report)

    def loglikelihood_rolling(
        self, requests: Sequence[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        """Return the log probability of each text."""
        with self._progress("loglikelihood_rolling", requests, disable_tqdm) as report:
            return self.evaluator.score_texts([one.args[0] for one in requests], report)

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> list[str]:
        """Return the generated text of each (context, options)."""
        with self._progress("generate_until", requests, disable_tqdm) as report:
            return self.evaluator.generate([one.args for one in requests], report)

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True
    ) -> str:
        """Return the prompt of a conversation."""
        return self.evaluator.render_chat(chat_history, add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the source of the chat template."""
        return self.model.chat_template.source if self.model.chat_template else ""

    @property
    def tokenizer_name(self) -> str:
        """The file's path, which identifies cached requests."""
        return str(Path(self.model.file.path).resolve()).replace("/", "__")

    @property
    def max_length(self) -> int:
        """Maximum tokens of a context with its continuation."""
        return self.evaluator.max_length

    @property
    def max_gen_toks(self) -> int:
        """Generated tokens of requests without a limit."""
        return self.evaluator.params.max_gen_toks

    @contextmanager
    def _progress(
        self, kind: str, requests: Sequence[Instance], silent: bool
    ) -> Iterator[Callable[[int, Any], None]]:
        """Draw a bar, and store each result in lm_eval's cache (`--use_cache`)."""
        with tqdm(total=len(requests), desc=f"Running {kind} requests", disable=silent) as bar:

            def report(at: int, result: Any) -> None:
                self.cache_hook.add_partial(kind, requests[at].args, result)
                bar.update()

            yield report


def _take(options: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Remove the fields of a dataclass from options. -> the removed fields"""
    return {f.name: options.pop(f.name) for f in fields(kind) if f.name in options}


def _batch_size(value: int | str) -> int | None:
    """Return lm_eval's batch size; None for its default, 1, and for "auto"."""
    return int(value) if str(value).isdigit() and int(value) > 1 else None


def _close(evaluator: Evaluator, model: llama_py.Model) -> None:
    evaluator.close()
    model.close()
