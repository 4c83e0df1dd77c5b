"""Report of the access that a server's options allow to unknown clients."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from llama_py_server.params import ListenParams, ModelsParams, ServerParams
from llama_py_server.wire.addresses import list_addresses


def is_public(listen: ListenParams) -> bool:
    """Return True if other machines can connect."""
    return any(_reaches_others(host) for host, _ in list_addresses(listen))


def _reaches_others(host: str) -> bool:
    if host.endswith(".sock") or host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True  # a name may resolve to any address


def exposure(
    listen: ListenParams, server: ServerParams, models: ModelsParams, tools: bool = False
) -> Iterator[str]:
    """Yield lines on allowed connections, access without an API key, and access of web pages.

    tools  True if the server offers tools of MCP servers
    """
    others, keys = is_public(listen), listen.keys()
    where = f"--host {', '.join(listen.host)}"
    if listen.ollama:
        where += f"; --ollama {':'.join(map(str, list_addresses(listen)[-1]))}"
    yield f"reachable from: {'other machines' if others else 'this machine only'} ({where})"
    n_keys = (
        f"{len(keys)} (--api-key, --api-key-file)" if keys else "none, so every client has access"
    )
    yield f"API keys: {n_keys}"
    if listen.ssl_key_file:
        yield "encrypted: yes"
    elif others:
        yield "encrypted: no, so the network can read keys, prompts and responses (--ssl-key-file)"
    yield "without a key: " + ("/health and the page" if keys else "; ".join(_list_open(server)))
    manage = {
        "here": "clients of this machine, and clients with a key",
        "all": "every client with access",
        "none": "no client",
    }[models.models_manage]
    if models.is_several:
        yield f"may download and remove models: {manage} (--models-manage)"
    if tools:
        yield "may call tools of MCP servers: clients of this machine or with a key (--mcp)"
    if server.media_path:
        yield f"readable as images: files of {server.media_path} (--media-path)"
    urls = {
        "public": "public addresses only",
        "any": "any address that this machine can reach",
        "none": "nowhere",
    }[server.media_urls]
    yield f"images are downloaded from: {urls} (--media-urls)"
    pages = {"*": "any page", "localhost": "pages of this machine"}
    known = pages.get(listen.cors_origins, listen.cors_origins)
    yield f"web pages that can read responses: {known} (--cors-origins)"
    yield (
        "web pages that can change settings: pages of this machine, and pages that "
        "--cors-origins lists"
    )
    if "*" in listen.allowed_host:
        yield "any web page can read and change everything by DNS rebinding (--allowed-host '*')"
    yield (
        f"limits: {listen.max_connections} connections, {server.max_queue} waiting requests, "
        f"request bodies of up to {listen.body_limits()[True][1] >> 20} MiB"
    )


def _list_open(server: ServerParams) -> Iterator[str]:
    yield "request responses, embeddings and tokens"
    if server.slots:
        yield "see prompts and responses in slots (--no-slots)"
    if server.slot_save_path:
        yield f"save, load and erase sequences in {server.slot_save_path} (--slot-save-path)"
    if server.props:
        yield "change settings (--props)"
    if server.metrics:
        yield "read metrics (--metrics)"
    yield "change the scales of adapters"
