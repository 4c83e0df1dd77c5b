"""A model that calls functions of Python, and is told what they give.

    python examples/call_functions.py       # the demo model: it must call, and knows nothing
    python examples/call_functions.py -m model.gguf -p "How warm is it in Bern?" --choice auto

What a call may look like follows from the function: its name, its annotations, its docstring.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Literal

import llama_py
from llama_py.chat.functions import call_function

TURNS = 4  # of calls, at most


def degrees(city: Literal["Bern", "Oslo", "Quito"], unit: Literal["C", "F"] = "C") -> float:
    """How warm it is in a city.

    city: one that there are measurements of
    unit: Celsius or Fahrenheit
    """
    celsius = {"Bern": 12.5, "Oslo": 3.0, "Quito": 19.0}[city]
    return celsius if unit == "C" else celsius * 9 / 5 + 32


def talk(model: llama_py.Model, prompt: str, choice: str, **options: Any) -> list[dict[str, Any]]:
    """The whole conversation: calls and results, until the model says something without a call."""
    functions = [degrees]
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    for _ in range(TURNS):
        answer = model.chat(
            messages, tools=functions, tool_choice=choice, parallel_tool_calls=False, **options
        )
        messages.append(answer.message())
        if not answer.tool_calls:
            break
        messages += [call_function(call, functions) for call in answer.tool_calls]
        choice = "none" if choice == "required" else choice
    return messages


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-m", "--model", help="GGUF file (default: the demo model)")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("-p", "--prompt", default="How warm is it in Bern?")
    parser.add_argument("-n", "--max-tokens", type=int, default=600)
    parser.add_argument("--choice", default="required", help="auto, or required: it must call once")
    p = parser.parse_args(args)
    with llama_py.load(p.model, p.device) as model:
        for message in talk(model, p.prompt, p.choice, max_tokens=p.max_tokens, temp=0):
            calls = [call["function"] for call in message.get("tool_calls", ())]
            told = [f"{call['name']}({call['arguments']})" for call in calls]
            print(f"{message['role']}: {message['content'] or ''}{' '.join(told)}")


if __name__ == "__main__":
    main()
