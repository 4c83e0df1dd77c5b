"""dspy: LM with a declared provider, JSONAdapter and Embedder."""

from __future__ import annotations

from typing import Any, Literal

import dspy
from dspy.lm15 import (
    AccessPolicy,
    ModelSupport,
    OpenAIChatCompat,
    ProviderDefinition,
    register_provider,
)
from feature import (
    ASK,
    KEY,
    MODEL,
    OPENAI,
    QUESTION,
    TEXTS,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_vectors,
    check_weather,
    run,
    weather,
)

access = AccessPolicy(provider="llama-py", env_keys=("LLAMA_PY_KEY",), base_url=OPENAI)
register_provider(
    ProviderDefinition.chat(access, compat=OpenAIChatCompat.preset("vllm")),
    supports=ModelSupport(function_calling=True, response_schema=True),
)
model: Any = dspy.LM(f"llama-py/{MODEL}", api_base=OPENAI, api_key=KEY, cache=False, max_tokens=200)
dspy.configure(lm=model, adapter=dspy.JSONAdapter())


class Report(dspy.Signature):
    """Weather of a place."""

    question: str = dspy.InputField()
    place: Literal["here", "there"] = dspy.OutputField()
    sunny: bool = dspy.OutputField()


class Call(dspy.Signature):
    """Calls of tools."""

    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    outputs: dspy.ToolCalls = dspy.OutputField()


def chat() -> str:
    return check_text(model(ASK)[0])


def stream() -> str:
    """Read chunks of any type, and the prediction at the end."""
    read: Any = dspy.streamify(dspy.Predict(Report), async_streaming=False)
    *parts, last = read(question=QUESTION)
    check_weather(last)
    return check_parts(map(str, parts))


def tools() -> str:
    with dspy.context(adapter=dspy.ChatAdapter(use_native_function_calling=True)):
        found = dspy.Predict(Call)(question=QUESTION, tools=[dspy.Tool(weather)])
    weather(**found.outputs.tool_calls[0].args)
    return check_call()


def schema() -> str:
    return check_weather(dspy.Predict(Report)(question=QUESTION))


def embeddings() -> str:
    embed = dspy.Embedder("openai/demo", api_base=OPENAI, api_key=KEY, caching=False)
    return check_vectors(embed(TEXTS))


def logprobs() -> str:
    found = model(ASK, logprobs=True)[0]["logprobs"]
    return check_logprobs(one.logprob for one in found.content)


run(
    "dspy", chat=chat, stream=stream, tools=tools, schema=schema, embeddings=embeddings,
    logprobs=logprobs,
)  # fmt: skip
