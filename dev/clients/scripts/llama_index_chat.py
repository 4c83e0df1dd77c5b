"""Features of LlamaIndex's chat models, the same for every provider."""

from __future__ import annotations

import asyncio
from typing import Any

from feature import ASK, QUESTION, check_call, check_parts, check_text, check_weather, weather
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from schemas import Weather

MESSAGES = [ChatMessage(ASK)]


class ChatFeatures:
    """Checks of a chat model, without arguments."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def chat(self) -> str:
        return check_text(self.model.chat(MESSAGES).message.content)

    def stream(self) -> str:
        return check_parts(part.delta for part in self.model.stream_chat(MESSAGES))

    def tools(self) -> str:
        async def ask() -> Any:
            how: Any = {"llm": self.model, "allow_parallel_tool_calls": False}
            return await FunctionAgent(tools=[weather], **how).run(QUESTION)

        return check_call(str(asyncio.run(ask())))

    def schema(self) -> str:
        return check_weather(self.model.as_structured_llm(Weather).complete(QUESTION).raw)
