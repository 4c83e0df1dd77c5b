"""The file with MCP servers, in the form of other clients: `{"mcpServers": {NAME: {...}}}`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ggml_py.errors import ModelError

MAX_BYTES = 1 << 20
SHORT = 6  # characters; shorter values, such as true, are too common to hide them in texts
HIDDEN = "***"
TYPES = ("stdio", "http", "streamable-http", "streamableHttp")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class ServerConfig:
    """An MCP server: a program of this machine (`command`), or a URL.

    Values of `env` and `headers`, and the URL, may be secret: `hide` removes them.
    """

    name: str
    command: str = field(default="", repr=False)
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = field(default=None, repr=False)
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def hide(self, text: str) -> str:
        """Replace secret values in a text."""
        parts = [part for value in self.headers.values() for part in (value, *value.split())]
        url = urlsplit(self.url)
        secrets = [*self.env.values(), *parts, self.url, url.query, url.username, url.password]
        known = {one for one in secrets if one and len(one) >= SHORT}
        for secret in sorted(known, key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text


def read_servers(path: str | Path) -> list[ServerConfig]:
    """Read the servers of a file, except servers with `"disabled": true`.

    `${NAME}` and `${NAME:-default}` in values are replaced by environment variables.

    Raises:
        OSError: The file cannot be read.
        ModelError: The file does not have the form; messages do not have values of the file.
    """
    with Path(path).open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ModelError(f"{path} must have at most {MAX_BYTES >> 20} MiB; use a file of servers")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as e:
        place = f"line {e.lineno}: {e.msg}" if isinstance(e, json.JSONDecodeError) else "not UTF-8"
        raise ModelError(f"{path} is not JSON ({place}); correct it") from None
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ModelError(f'{path} must be an object with "mcpServers": {{NAME: {{...}}}}')
    try:
        return [_server(name, one) for name, one in servers.items() if not _is_disabled(one)]
    except ModelError as e:
        raise ModelError(f"{path}: {e}") from None


def _is_disabled(server: Any) -> bool:
    return isinstance(server, dict) and server.get("disabled") is True


def _server(name: str, given: Any) -> ServerConfig:
    where = f"server {name!r}"
    if not isinstance(given, dict):
        raise ModelError(f"{where} must be an object with command or url")
    if ("command" in given) == ("url" in given):
        raise ModelError(f"{where} must have either command or url")
    kind = given.get("type", TYPES[0])
    if kind not in TYPES:
        known = " or ".join(TYPES)
        raise ModelError(f"{where}: type must be {known}; use the server's URL for one")
    args = given.get("args", [])
    if not isinstance(args, list):
        raise ModelError(f"{where}: args must be a list of strings")
    if "url" in given:
        url = _text(where, "url", given["url"])
        if not url.startswith(("http://", "https://")) or not urlsplit(url).hostname:
            raise ModelError(f"{where}: url must begin with http:// or https://, and have a host")
        return ServerConfig(name, url=url, headers=_texts(where, "headers", given))
    command = _text(where, "command", given["command"])
    if not command:
        raise ModelError(f"{where}: command must not be empty")
    return ServerConfig(
        name,
        command,
        tuple(_text(where, "args", one) for one in args),
        _texts(where, "env", given),
        None if given.get("cwd") is None else _text(where, "cwd", given["cwd"]),
    )


def _texts(where: str, key: str, given: Mapping[str, Any]) -> dict[str, str]:
    found = given.get(key, {})
    if not isinstance(found, dict):
        raise ModelError(f"{where}: {key} must be an object with string values")
    return {name: _text(where, f"{key}.{name}", value) for name, value in found.items()}


def _text(where: str, key: str, value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ModelError(f"{where}: {key} must be a string")

    def variable(match: re.Match[str]) -> str:
        found = os.environ.get(match[1], match[2])
        if found is None:
            raise ModelError(
                f"{where}: {key} needs the environment variable {match[1]}; set it, or write "
                f"${{{match[1]}:-default}}"
            )
        return found

    return _VARIABLE.sub(variable, value)
