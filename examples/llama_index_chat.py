"""LlamaIndex with llama-py-server, by the interface of OpenAI's.

    pip install llama-index-llms-openai-like
    llama-py-server -m model.gguf
    python examples/llama_index_chat.py --url http://localhost:8080/v1

An answer as it comes, and a call of a tool.
"""

import argparse
from collections.abc import Sequence
from typing import Any, Literal

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


def degrees(city: Literal["Bern", "Oslo"]) -> float:
    """How warm it is in a city."""
    return {"Bern": 12.5, "Oslo": 3.0}[city]


def talk(url: str, max_tokens: int = 600) -> dict[str, Any]:
    """What was said, the arguments of the call and its result."""
    model = OpenAILike(
        model="any",
        api_base=url,
        api_key="none",
        is_chat_model=True,
        temperature=0.0,
        is_function_calling_model=True,
        max_tokens=max_tokens,
    )
    question = ChatMessage(role="user", content="Who is there?")
    said = "".join(piece.delta or "" for piece in model.stream_chat([question]))
    called = model.chat_with_tools(
        [FunctionTool.from_defaults(degrees)], "How warm is it in Bern?", tool_choice="required"
    )
    [call, *_] = model.get_tool_calls_from_response(called)
    return {"said": said, "call": call.tool_kwargs, "result": degrees(**call.tool_kwargs)}


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", default="http://localhost:8080/v1")
    for name, value in talk(parser.parse_args(args).url).items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
