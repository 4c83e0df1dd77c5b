"""LangChain with llama-py-server, by the interface of OpenAI's.

    pip install langchain-openai
    llama-py-server -m model.gguf
    python examples/langchain_chat.py --url http://localhost:8080/v1

An answer as it comes, one that is an object, and a call of a tool.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


class Person(BaseModel):
    """Somebody in a play."""

    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=120)


@tool
def degrees(city: Literal["Bern", "Oslo"]) -> float:
    """How warm it is in a city."""
    return {"Bern": 12.5, "Oslo": 3.0}[city]


def talk(url: str, max_tokens: int = 600) -> dict[str, Any]:
    """What was said, the object, the arguments of the call and its result."""
    model: Any = ChatOpenAI(
        model="any", base_url=url, api_key="none", temperature=0, max_tokens=max_tokens
    )
    said = "".join(str(piece.content) for piece in model.stream("Who is there?"))
    person = model.with_structured_output(Person, method="json_schema").invoke("Who is Juliet?")
    called = model.bind_tools([degrees], tool_choice="required").invoke("How warm is it in Bern?")
    [call, *_] = called.tool_calls
    result = degrees.invoke(call["args"])
    return {"said": said, "person": person, "call": call["args"], "result": result}


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default="http://localhost:8080/v1")
    for name, value in talk(parser.parse_args(args).url).items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
