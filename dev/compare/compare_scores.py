"""Time of multiple-choice scores: the choices of a question together, and one request each.

    python -m dev.compare.compare_scores -m model.gguf -t 2 -n 1000

Questions are random ids with a common beginning (`--shared`) and `--choices` continuations of
different lengths. All engines score the same ids, and the table has the largest difference of a
continuation's log probability from the first row. For an idle machine.

* `separate`: a request per choice with the log probabilities of its whole text, like
  `/v1/completions` with `echo`, one after another or one per slot
* `Engine.score`, `Model.score`: a question's choices after its prompt
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from time import perf_counter
from typing import NamedTuple

import numpy as np

import llama_py
from llama_py.loading.model import DEMO
from llama_py.params import AnswerParams
from llama_py.serving import Engine, Event, Request


class Question(NamedTuple):
    """A prompt and its continuations, as ids."""

    prompt: list[int]
    choices: list[list[int]]


ScoreAll = Callable[[Sequence[Question]], list[float]]


def questions(p: argparse.Namespace, n_vocab: int, n: int) -> list[Question]:
    """Return random questions with prompts and choices of the given lengths."""
    rng = np.random.default_rng(p.seed)

    def ids(n: int) -> list[int]:
        return [int(id) for id in rng.integers(0, n_vocab, n)]

    shared, found = ids(p.shared), []
    for _ in range(n):
        choices = [ids(int(rng.integers(1, 2 * p.length))) for _ in range(p.choices)]
        found.append(Question([*shared, *ids(p.prompt - p.shared)], choices))
    return found


class Separate:
    """One request per choice, at most n at once."""

    def __init__(self, engine: Engine, n: int) -> None:
        self.engine, self.n = engine, n

    def __call__(self, asked: Sequence[Question]) -> list[float]:
        """Return the log probability of each choice."""
        texts = [(q.prompt, ids) for q in asked for ids in q.choices]
        found, ended = [0.0] * len(texts), SimpleQueue[int]()
        for i, (prompt, ids) in enumerate(texts):
            if i >= self.n:
                ended.get(timeout=600)
            self._submit(i, prompt, ids, found, ended)
        for _ in range(min(self.n, len(texts))):
            ended.get(timeout=600)
        return found

    def _submit(
        self,
        i: int,
        prompt: Sequence[int],
        ids: Sequence[int],
        found: list[float],
        ended: SimpleQueue[int],
    ) -> None:
        first = len(prompt) - 1
        scores: list[float] = []

        def receive(event: Event) -> None:
            scores.extend(one.logprob or 0.0 for one in event.scores)
            if event.finish_reason is not None:
                found[i] = sum(scores[first:])
                ended.put(i)

        params = AnswerParams(max_tokens=0)
        request = Request(prompt=[*prompt, *ids], params=params, prompt_logprobs=0)
        self.engine.submit(request, receive)


def score_with_engine(engine: Engine) -> ScoreAll:
    """Return the scores of `Engine.score`, a question at a time."""

    def score(asked: Sequence[Question]) -> list[float]:
        results = [engine.score(q.prompt, q.choices).result(600) for q in asked]
        return [sum(one.logprob or 0.0 for one in text) for texts in results for text in texts]

    return score


def score_with_model(model: llama_py.Model) -> ScoreAll:
    """Return the scores of `Model.score`, a question at a time."""

    def score(asked: Sequence[Question]) -> list[float]:
        return [one.logprob for q in asked for one in model.score(q.prompt, q.choices)]

    return score


@contextmanager
def engines(p: argparse.Namespace) -> Iterator[tuple[llama_py.Model, dict[str, ScoreAll]]]:
    """Yield the model, and the compared ways to score by name."""
    n_ctx = p.choices * (p.prompt + 2 * p.length + 1)
    how = {"n_threads": p.threads, "n_threads_batch": p.threads} if p.threads else {}
    with (
        llama_py.load(p.model) as model,
        Engine(model, n_ctx=n_ctx, n_seq_max=p.choices, kv_unified=True, **how) as engine,
    ):
        yield (
            model,
            {
                "separate": Separate(engine, 1),
                f"separate, {p.choices} at once": Separate(engine, p.choices),
                "Engine.score": score_with_engine(engine),
                "Model.score": score_with_model(model),
            },
        )


def main(args: Sequence[str] | None = None) -> int:
    """Print the table; return 1 if scores differ."""
    p = parser().parse_args(args)
    with engines(p) as (model, ways):
        n_vocab = model.hparams.n_vocab
        print("| engine | choices/s | to the faster separate | difference |")
        print("|---|---:|---:|---:|")
        wanted, best, worst = list[float](), 0.0, 0.0
        for name, score in ways.items():
            score(questions(p, n_vocab, p.warmup))  # other graphs and compiled kernels
            start = perf_counter()
            found = score(questions(p, n_vocab, p.questions))
            rate = len(found) / (perf_counter() - start)
            wanted = wanted or found
            best = max(best, rate) if name.startswith("separate") else best
            difference = float(np.abs(np.subtract(found, wanted)).max())
            worst = max(worst, difference)
            print(f"| {name} | {rate:.1f} | {rate / best:.2f} | {difference:.1e} |", flush=True)
    return int(worst > p.tolerance)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("-m", "--model", default=DEMO, help="GGUF file (default: the demo model)")
    made.add_argument("-t", "--threads", type=int, default=0, help="threads (default: all cores)")
    made.add_argument("-n", "--questions", type=int, default=1000, help="number of questions")
    made.add_argument("--choices", type=int, default=4, help="choices of a question")
    made.add_argument("--prompt", type=int, default=128, help="tokens of a question's prompt")
    made.add_argument("--shared", type=int, default=0, help="prompt tokens common to all questions")
    made.add_argument("--length", type=int, default=4, help="mean tokens of a choice")
    made.add_argument("--warmup", type=int, default=8, help="questions before the measurement")
    made.add_argument("--seed", type=int, default=0, help="seed of the questions")
    made.add_argument("--tolerance", type=float, default=0.1, help="maximum difference")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
