"""Answer multiple-choice questions by the probabilities of their choices.

    python examples/answer_choices.py                    # the demo model
    python examples/answer_choices.py -m model.gguf questions.jsonl

A line of the file is an object: "question", "choices" (a list of texts), and "answer" (the index of
the right choice). The output has the probability of each choice among the choices, and the
accuracy. A choice is chosen by its log probability per byte, so long choices have no disadvantage.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import llama_py

QUESTIONS = [
    {
        "question": "ROMEO:\nBut soft, what light through yonder window breaks?\nIt is",
        "choices": [" the east", " the window of a house", " breakfast"],
        "answer": 0,
    },
    {
        "question": "First Citizen:\nWe are accounted poor",
        "choices": [" computers", " citizens, the patricians good", " xylophones"],
        "answer": 1,
    },
]


def read(path: str | None) -> list[dict[str, Any]]:
    """Return the questions of a file, or the examples."""
    if path is None:
        return QUESTIONS
    return [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", help="questions, one JSON object per line")
    parser.add_argument("-m", "--model", help="GGUF file (default: the demo model)")
    p = parser.parse_args(args)
    n_right, asked = 0, read(p.file)
    with llama_py.load(p.model) as model:
        for one in asked:
            scores = model.score(one["question"], one["choices"])
            logs = np.array([score.logprob for score in scores])
            shares = np.exp(logs - np.logaddexp.reduce(logs))
            rates = logs / [len(text.encode()) for text in one["choices"]]
            chosen = int(rates.argmax())
            n_right += chosen == one["answer"]
            print(one["question"].splitlines()[-1])
            for i, text in enumerate(one["choices"]):
                print(f"{'*' if i == chosen else ' '} {shares[i]:6.1%} {text.strip()}")
    print(f"accuracy: {n_right / len(asked):.0%} of {len(asked)} questions")


if __name__ == "__main__":
    main()
