"""Calls of MCP tools in a chat: a question before each call, its result, and the loop.

A response with calls is followed by a response to their results, up to a number of steps.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ggml_py.errors import ContextError
from llama_py_tools.command.streams import is_edited, next_line
from llama_py_tools.generate.thoughts import dim
from llama_py_tools.mcp.results import cut_note, escape_line
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Conversation
    from llama_py.chat.answer import ToolCall
    from llama_py_tools.mcp.params import McpParams
    from llama_py_tools.mcp.servers import ToolServers

QUESTION = "call it? [y]es, [n]o, [a]lways this tool: "
SHOWN = 10  # lines of a result that are printed
WIDTH = 200  # characters of such a line
MIN_TOKENS = 32  # of a result, in a full context
PER_TOKEN = 16  # characters; a longer result has more than the allowed tokens
NO_TERMINAL = "not called: it needs --mcp-allow, because stdin is not a terminal"


class ToolCalls:
    """Tools of MCP servers that the responses of a chat may call.

    Attributes:
        descriptions: The tools in the form of the OpenAI API.
    """

    def __init__(
        self, servers: ToolServers | None, allowed: Iterable[str] = (), steps: int = 10
    ) -> None:
        """allowed: tools without a question; steps: maximum number of responses with calls per
        message."""
        self.servers, self.allowed, self.steps = servers, set(allowed), steps
        tools = servers.tools.values() if servers is not None else ()
        self.descriptions = [tool.describe() for tool in tools]

    def close(self) -> None:
        if self.servers is not None:
            self.servers.close()

    def respond(
        self, conversation: Conversation, ids: list[int], show: Callable[[list[int]], bool]
    ) -> None:
        """Show the response to tokens. While responses have calls, run these and show the
        response to their results.

        show: shows a response; returns False if Ctrl-C ended it
        """
        for step in range(self.steps + 1):
            ended = show(ids)
            calls = conversation.calls
            if not calls:
                return
            if not ended:
                return self._skip(conversation, calls, "interrupted")
            if step == self.steps:
                self._skip(conversation, calls, "not called: too many calls")
                session.tell(dim(f"(stopped after {step} responses with calls; see --mcp-steps)"))
                return
            results = self._run_all(conversation, calls)
            if results is None:
                return
            try:
                ids = conversation.add_tool_results(results)
            except ContextError:  # the next message would fail as well
                self._skip(conversation, calls, "too long")
                raise

    def _run_all(
        self, conversation: Conversation, calls: Sequence[ToolCall]
    ) -> list[dict[str, Any]] | None:
        """Return the messages with the results of calls; None if Ctrl-C ended the calls."""
        results: list[dict[str, Any]] = []
        n_tokens = max(conversation.room() // (len(calls) + 1), MIN_TOKENS)
        try:
            for call in calls:
                text = self._run(call, partial(shorten, conversation, n_tokens))
                results.append(_message(call, text))
        except KeyboardInterrupt:
            conversation.messages += results
            self._skip(conversation, calls[len(results) :], "interrupted")
            if not is_terminal():
                raise
            session.tell(dim("(stopped)"))
            return None
        return results

    def _skip(self, conversation: Conversation, calls: Sequence[ToolCall], why: str) -> None:
        """Add a result to each call, because templates expect one."""
        conversation.messages += [_message(call, why) for call in calls]

    def _run(self, call: ToolCall, cut: Callable[[str], str]) -> str:
        """Return the result of a call, or why it was not called, for the model."""
        if self.servers is None or call.name not in self.servers.tools:
            return f"error: unknown tool {call.name!r}"
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            return "error: the arguments are not a JSON object"
        session.tell(f"{call.name} {escape_line(json.dumps(arguments, ensure_ascii=False))}")
        refused = self._ask(call.name)
        if refused:
            return refused
        result = self.servers.call(call.name, arguments)
        if result.notice:
            session.log.warning("%s", result.notice)
        if result.failure:
            session.log.error("%s", result.failure)
            return f"error: {result.text}"
        text = cut(result.text)
        session.tell(dim(self._describe_result(call.name, text)))
        return f"error: {text}" if result.is_error else text

    def _ask(self, name: str) -> str:
        """Return "" if the tool may be called, else the reason."""
        if name in self.allowed:
            return ""
        if not is_terminal():
            session.tell(dim(f"({NO_TERMINAL})"))
            return NO_TERMINAL
        while True:
            line = ask(QUESTION)
            answer = (line or "n").strip().lower()
            if answer in ("a", "always"):
                self.allowed.add(name)
            if answer in ("y", "yes", "a", "always"):
                return ""
            if answer in ("", "n", "no"):
                return "not called: the user declined"

    def _describe_result(self, name: str, text: str) -> str:
        """Return the first lines of a result, without secrets of the server's configuration."""
        if self.servers is not None:
            text = self.servers.hide(name, text)
        lines = text.split("\n")
        more = [f"... ({len(lines) - SHOWN} more lines)"] if len(lines) > SHOWN else []
        return "\n".join(f"  {escape_line(one)[:WIDTH]}" for one in [*lines[:SHOWN], *more])


def open_tools(params: McpParams) -> ToolCalls:
    """Start the servers of --mcp, and print one line for each server that fails."""
    if not params.mcp:
        return ToolCalls(None)
    from llama_py_tools.mcp.config import read_servers
    from llama_py_tools.mcp.servers import ToolServers

    servers = ToolServers(read_servers(params.mcp), params.mcp_timeout)
    for failure in servers.failures:
        session.log.error("%s", failure)
    unknown = [name for name in params.mcp_allow if name not in servers.tools]
    if unknown:
        session.log.warning("--mcp-allow: unknown tools: %s", ", ".join(unknown))
    session.tell(f"{len(servers.tools)} tools: {', '.join(servers.tools) or 'none'}")
    return ToolCalls(servers, params.mcp_allow, params.mcp_steps)


def is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def ask(question: str) -> str | None:
    """Return the line that answers a question; None at the end. Lines typed before the question
    are dropped."""
    with suppress(ImportError, OSError, ValueError):  # Windows, or no descriptor
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    if is_edited():
        return next_line(True, question)
    session.tell(question)
    return next_line(False)


def shorten(conversation: Conversation, n_tokens: int, text: str) -> str:
    """Cut a result to a number of tokens, with a note."""
    tokenizer = conversation.ctx.model.tokenizer
    ids = tokenizer.tokenize(text[: n_tokens * PER_TOKEN], False, False)
    if len(ids) <= n_tokens and len(text) <= n_tokens * PER_TOKEN:
        return text
    data = b"".join(tokenizer.token_to_piece(id, True) for id in ids[:n_tokens])
    start = data.decode(errors="ignore")
    return f"{start}\n{cut_note(len(start), len(text))}"


def _message(call: ToolCall, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
