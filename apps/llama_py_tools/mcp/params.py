"""Options for tools of MCP servers."""

from __future__ import annotations

from llama_py.params.option import Params, option
from llama_py.params.rules import integers, numbers
from llama_py.params.texts import words


class McpParams(Params):
    """Options for tools of MCP servers."""

    group = "tools (MCP)"

    mcp: str = option(
        "",
        "--mcp",
        'file with MCP servers; the model may call their tools: {"mcpServers": {NAME:'
        ' {"command": ..., "args": [...], "env": {...}} or {"url": ..., "headers": {...}}}}',
        metavar="FILE",
    )
    mcp_allow: tuple[str, ...] = option(
        (),
        "--mcp-allow",
        "tools that run without a confirmation",
        metavar="NAME,...",
        parse=words,
        many=True,
    )
    mcp_steps: int = option(
        10,
        "--mcp-steps",
        "maximum number of responses with tool calls per message",
        check=integers(1),
    )
    mcp_timeout: float = option(
        60.0,
        "--mcp-timeout",
        "time limit in seconds for the start of an MCP server, and for each call",
        check=numbers(0, 86400, above=True),
    )
