"""Scores of multiple-choice tasks (perplexity.cpp: hellaswag_score, winogrande_score and
multiple_choice_score): how often a model prefers the right continuation of a text.

Files have llama-perplexity's formats. The same tasks are selected, and lines are the same.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llama_py.params.option import Params, option
from llama_py.params.rules import integers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from llama_py import Context, Model
    from llama_py.memory.specs import MemorySpec
    from llama_py.text.score import ScoreTask

    F32 = npt.NDArray[np.float32]
    F64 = npt.NDArray[np.float64]
    I32 = npt.NDArray[np.int32]

Z = 1.95996398454  # standard deviations of a 95 % interval
N_ANSWERS, LINES = 4, 6  # HellaSwag: answers of a task, and lines of a task
MAX_ANSWERS = 100
MAX_SEQUENCES = 128  # of a context for tasks
STATE_BYTES = 512 << 20  # maximum size of the recurrent states of these sequences
TRAILING = 3  # WinoGrande: with more tokens after the common part, the choice is not scored


class ChoiceParams(Params):
    """Options of multiple-choice tasks."""

    group = "tasks"

    hellaswag: bool = option(False, "--hellaswag", "score the HellaSwag tasks in -f FILE")
    hellaswag_tasks: int = option(
        400, "--hellaswag-tasks", "maximum number of HellaSwag tasks", check=integers(1)
    )
    winogrande: bool = option(False, "--winogrande", "score the WinoGrande tasks in -f FILE (CSV)")
    winogrande_tasks: int = option(
        0, "--winogrande-tasks", "maximum number of WinoGrande tasks (0: all)", check=integers(0)
    )
    multiple_choice: bool = option(
        False, "--multiple-choice", "score the multiple-choice tasks in -bf FILE"
    )
    multiple_choice_tasks: int = option(
        0,
        "--multiple-choice-tasks",
        "maximum number of multiple-choice tasks (0: all)",
        check=integers(0),
    )

    @property
    def has_tasks(self) -> bool:
        """True if tasks are scored, not a text."""
        return self.hellaswag or self.winogrande or self.multiple_choice


@dataclass(frozen=True)
class ChoiceTask:
    """Texts with right and wrong answers.

    Attributes:
        texts: The question with each answer.
        right: True for a correct answer, by answer.
        bases: WinoGrande: the texts up to the end of the choice.
    """

    texts: Sequence[str]
    right: Sequence[bool]
    bases: Sequence[str] = ()


def select_tasks(p: ChoiceParams, data: bytes) -> list[ChoiceTask]:
    """Read the tasks of a file and return the selected tasks.

    Raises:
        ContextError: The file has another format.
    """
    if p.hellaswag:
        return read_hellaswag(data, p.hellaswag_tasks)
    if p.winogrande:
        return read_winogrande(data, p.winogrande_tasks)
    return read_choices(data, p.multiple_choice_tasks)


def score_lines(ctx: Context, p: ChoiceParams, tasks: Sequence[ChoiceTask]) -> Iterator[str]:
    """Score tasks and yield the lines of llama-perplexity.

    Raises:
        ContextError: A task does not fit the context.
    """
    score = _hellaswag if p.hellaswag else _winogrande if p.winogrande else _multiple_choice
    yield from score(ctx, tasks)


def read_hellaswag(data: bytes, n: int) -> list[ChoiceTask]:
    """Read six lines per task (context, index of the right ending, four endings); select n."""
    from llama_py.sampler.mt19937 import Mt19937

    lines = data.decode("utf-8", "replace").split("\n")
    if not lines[-1]:
        del lines[-1]
    left = [lines[i : i + LINES] for i in range(0, len(lines), LINES)]
    if not left or len(left[-1]) != LINES:
        raise _error("HellaSwag", f"the number of lines must be a multiple of 6, got {len(lines)}")
    random, tasks = Mt19937(1), []
    for _ in range(min(n, len(left))):
        context, label, *endings = left.pop(random.uniform_int(len(left)))
        if not re.match(r"\s*[0-3]", label):
            raise _error("HellaSwag", f"the index must be 0 to 3, got {label!r}")
        right = [i == int(label) for i in range(N_ANSWERS)]
        tasks.append(ChoiceTask([f"{context} {ending}" for ending in endings], right))
    return tasks


def read_winogrande(data: bytes, n: int) -> list[ChoiceTask]:
    """Read rows of index, sentence with `_`, two choices and the right one (1 or 2).

    llama-perplexity ignores a last row without a line break, and rows that it cannot read.
    """
    tasks = []
    row = re.compile(r'[^,]*,((?:[^",]|"[^"]*")*),((?:[^",]|"[^"]*")*),((?:[^",]|"[^"]*")*),(.*)')
    for line in data.decode("utf-8", "replace").split("\n")[:-1]:
        found = row.fullmatch(line)
        end = found and re.match(r"\s*([12])(?!\d)", found[4])
        if not found or not end or "_" not in found[1]:
            continue
        sentence = found[1][1:-1] if found[1].startswith('"') else found[1]
        first, _, second = sentence.partition("_")
        bases = [first + found[2], first + found[3]]
        right = [end[1] == "1", end[1] == "2"]
        tasks.append(ChoiceTask([base + second for base in bases], right, bases))
    if not tasks:
        raise _error(
            "WinoGrande",
            "each row must have an index, a sentence with _, two choices, and the answer 1 or 2",
        )
    return [tasks[i] for i in _select_indices(len(tasks), n)]


def read_choices(data: bytes, n: int) -> list[ChoiceTask]:
    """Read llama-perplexity's binary tasks (multiple_choice_task::deserialize)."""
    at = 0

    def word() -> int:
        nonlocal at
        at += 4
        return int(struct.unpack_from("<I", data, at - 4)[0])

    def text() -> str:
        nonlocal at
        size = word()
        at += size
        if at > len(data):
            raise struct.error
        return data[at - size : at].decode("utf-8", "replace")

    def answers() -> tuple[list[str], list[bool]]:
        if (n_answers := word()) > MAX_ANSWERS:
            raise struct.error
        texts = [text() for _ in range(n_answers)]
        return texts, [word() == 1 for _ in range(n_answers)]

    tasks = []
    try:
        places = [word() for _ in range(word())]
        first = at
        for i in _select_indices(len(places), n):
            if 0 < n < len(places):
                at = places[i]
            question, (texts, right), _ = text(), answers(), answers()
            if not (question and texts and all(texts)):
                raise _error("multiple-choice", f"task {i} has an empty question or answer")
            tasks.append(ChoiceTask([f"{question} {answer}" for answer in texts], right))
    except struct.error:
        raise _error("multiple-choice", f"file is truncated at byte {at}") from None
    if not tasks:
        raise _error("multiple-choice", f"file has no tasks in its first {first} bytes")
    return tasks


def _select_indices(n_all: int, n: int) -> list[int]:
    """Return the n tasks that llama-perplexity selects; all for 0."""
    import numpy as np

    from llama_py.sampler.mt19937 import Mt19937

    left, random = [*range(n_all)], Mt19937(1)
    if not 0 < n < n_all:
        return left
    chosen = []
    for _ in range(n):
        at = min(int(np.float32(random.single()) * np.float32(len(left))), len(left) - 1)
        chosen.append(left[at])
        left[at] = left[-1]
        del left[-1]
    return chosen


def _error(kind: str, why: str) -> Exception:
    from ggml_py.errors import ContextError

    return ContextError(f"{kind} file: {why}; use a file in the format of llama-perplexity")


def log_softmax(logits: F32, targets: I32) -> npt.NDArray[np.float64]:
    """log p of a target in each row [n, n_vocab]; float32 terms, a float64 sum."""
    import numpy as np

    logits = logits - logits.max(axis=1, keepdims=True)
    total = np.exp(logits).sum(axis=1, dtype=np.float64)
    found: npt.NDArray[np.float64] = logits[np.arange(len(targets)), targets] - np.log(total)
    return found


def count_sequences(model: Model, tasks: Sequence[ChoiceTask]) -> int:
    """Return the number of sequences for tasks: one per text and per context of a task; more than
    `limit_sequences` for a large task."""
    each = [1 + len(task.texts) for task in tasks]
    return max(min(sum(each), limit_sequences(model, MAX_SEQUENCES)), max(each))


def limit_sequences(model: Model, most: int) -> int:
    """Limit sequences that have separate memory: their states to STATE_BYTES, others to one."""
    from llama_py.memory.specs import CompressedSpec, StateSpec

    specs = memory_specs(model)
    n_floats = sum(one.n_embd_states for one in specs if isinstance(one, StateSpec))
    if n_floats:
        most = min(most, max(STATE_BYTES // (4 * n_floats), 1))
    if any(isinstance(one, CompressedSpec) or getattr(one, "apart", False) for one in specs):
        most = 1
    return most


def memory_specs(model: Model) -> list[MemorySpec]:
    """Return what the layers keep of each sequence."""
    layers = map(model.architecture.sharded_memory_spec, model.hparams.kept_layers)
    return [one for specs in layers for one in specs]


def _split(ctx: Context, task: ChoiceTask) -> tuple[int, list[list[int]]]:
    """Return the number of common tokens, and the tokens of each text."""
    from ggml_py.errors import ContextError

    texts = [ctx.model.tokenizer.tokenize(text, parse_special=False) for text in task.texts]
    n = next(
        (i for i, ids in enumerate(zip(*texts, strict=False)) if len({*ids}) > 1),
        min(map(len, texts)) - 1,
    )
    n_all = n + sum(len(text) - n for text in texts)
    if n < 1 or n_all > ctx.cparams.n_ctx:
        raise ContextError(
            f"a task must have at least 1 token common to all choices, got {n}, and at most "
            f"{ctx.cparams.n_ctx} tokens in total, got {n_all}; use a larger -c"
        )
    return n, texts


def _score(ctx: Context, tasks: Iterable[ScoreTask]) -> Iterator[list[F64]]:
    """Yield the log probabilities of each continuation's tokens."""
    import numpy as np

    from llama_py.text.score import check_scores, score_tasks

    check_scores(ctx)
    for found in score_tasks(ctx, tasks):
        yield [np.array([one.logprob for one in scores]) for scores in found]


def log_probs(ctx: Context, tasks: Iterable[ChoiceTask]) -> Iterator[list[F64]]:
    """Yield the log probabilities of the tokens of each text after the common tokens."""
    from llama_py.text.score import ScoreTask

    split = (_split(ctx, task) for task in tasks)
    yield from _score(ctx, (ScoreTask(ids[0][:n], [one[n:] for one in ids]) for n, ids in split))


def _hellaswag(ctx: Context, tasks: Sequence[ChoiceTask]) -> Iterator[str]:
    yield "\ntask\tacc_norm\t95% confidence interval\n"
    right = 0
    for n, (task, losses) in enumerate(zip(tasks, log_probs(ctx, tasks), strict=True), 1):
        right += task.right[_lowest_loss(losses)]
        share, z = right / n, Z * Z / n
        spread = z * math.sqrt(n * (4 * share * (1 - share) + z)) / (2 * Z)
        low, high = ((share + z / 2 + x) / (1 + z) * 100 for x in (-spread, spread))
        yield f"{n}\t{share * 100:.8f}%\t[{low:.4f}%, {high:.4f}%]\n"
    yield "\n"


def _multiple_choice(ctx: Context, tasks: Sequence[ChoiceTask]) -> Iterator[str]:
    yield "\ntask\tacc_norm\n"
    right, n, n_answers = 0, len(tasks), sum(len(task.texts) for task in tasks)
    for i, (task, losses) in enumerate(zip(tasks, log_probs(ctx, tasks), strict=True), 1):
        right += task.right[_lowest_loss(losses)]
        yield f"{i}\t{100 * right / i:.8f}\n"
    yield "\n"
    for what, share in (("Final result", right / n), ("Random chance", n / n_answers)):
        error = math.sqrt(share * (1 - share) / (n - 1)) if n > 1 else math.nan
        yield f"{what}: {100 * share:.4f} +/- {100 * error:.4f}\n"


def _lowest_loss(losses: Sequence[F64]) -> int:
    means = [float(x.mean()) for x in losses]
    return means.index(max(means))


def _winogrande(ctx: Context, tasks: Sequence[ChoiceTask]) -> Iterator[str]:
    n_right, n = 0, len(tasks)
    found = zip(tasks, winogrande_scores(ctx, tasks), strict=True)
    for i, (task, scores) in enumerate(found, 1):
        answer = 1 if scores[0] > scores[1] else 2
        n_right += task.right[answer - 1]
        yield (
            f"{i}\t{100 * n_right / i:.4f}\t{scores[0]:10.6f}  {scores[1]:10.6f}  {answer}"
            f"  {task.right.index(True) + 1}\n"
        )
    yield "\n"
    if n >= 100:
        share = n_right / n
        error = 100 * math.sqrt(share * (1 - share) / (n - 1))
        yield f"Final Winogrande score({n} tasks): {100 * share:.4f} +/- {error:.4f}\n"


def winogrande_scores(ctx: Context, tasks: Sequence[ChoiceTask]) -> Iterator[list[float]]:
    """Yield the mean log probabilities of the text after each choice.

    After short rests the choices are scored as well. Then llama-perplexity takes the logits of the
    second choice from the end of the first text; so does this function.
    """
    from llama_py.text.score import ScoreTask

    split = [_split(ctx, task) for task in tasks]
    asked = (ScoreTask(a[:n], [[*a[n:], b[n]], b[n:]]) for n, (a, b) in split)
    for task, (n, texts), (first, second) in zip(tasks, split, _score(ctx, asked), strict=True):
        second[0] = first[-1]
        skips = min(map(len, texts)) - n > TRAILING
        scores = []
        for text, base, values in zip(texts, task.bases, (first[:-1], second), strict=True):
            start = len(ctx.model.tokenizer.tokenize(base, parse_special=False)) if skips else n
            end = len(text) - (len(text) - start > 1)
            scores.append(float(values[max(start - n, 0) : end - n].mean()))
        yield scores
