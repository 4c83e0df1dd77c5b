"""llm: models of `extra-openai-models.yaml`. Its embeddings have no other address than OpenAI's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from feature import (
    ASK,
    OPENAI,
    QUESTION,
    check_call,
    check_logprobs,
    check_parts,
    check_text,
    check_weather,
    run,
    weather,
)
from schemas import Weather

FILE = f"""
- {{model_id: demo, model_name: demo, api_base: {OPENAI}, supports_schema: true, supports_tools: true}}
- {{model_id: completion, model_name: demo, api_base: {OPENAI}, completion: true}}
"""  # noqa: E501


def chat() -> str:
    return check_text(model.prompt(ASK, stream=False).text())


def stream() -> str:
    return check_parts(model.prompt(ASK))


def tools() -> str:
    return check_call(model.chain(QUESTION, tools=[weather]).text())


def schema() -> str:
    return check_weather(model.prompt(QUESTION, schema=Weather).text())


def logprobs() -> str:
    completion: Any = llm.get_model("completion")
    response = completion.prompt("ROMEO:", logprobs=2, max_tokens=8)
    response.text()
    found = [each for one in response.response_json["logprobs"] for each in one["top_logprobs"]]
    return check_logprobs(max(each.values()) for each in found)


with tempfile.TemporaryDirectory() as folder:
    os.environ["LLM_USER_PATH"] = folder
    Path(folder, "extra-openai-models.yaml").write_text(FILE, encoding="utf-8")
    import llm

    model: Any = llm.get_model("demo")
    run("llm", chat=chat, stream=stream, tools=tools, schema=schema, logprobs=logprobs)
