"""Features of LangChain's chat models, the same for every provider."""

from __future__ import annotations

from typing import Any

from feature import ASK, QUESTION, check_call, check_parts, check_text, check_weather, weather
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from schemas import Weather


class ChatFeatures:
    """Checks of a chat model, without arguments."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def chat(self) -> str:
        return check_text(self.model.invoke(ASK).content)

    def stream(self) -> str:
        return check_parts(chunk.content for chunk in self.model.stream(ASK))

    def tools(self) -> str:
        called = tool(weather)
        bound = self.model.bind_tools([called])
        asked = HumanMessage(QUESTION)
        first = bound.invoke([asked])
        result = called.invoke(first.tool_calls[0])
        return check_call(bound.invoke([asked, first, result]).content)

    def schema(self) -> str:
        return check_weather(self.model.with_structured_output(Weather).invoke(QUESTION))
