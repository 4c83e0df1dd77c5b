"""Report of the access that unknown clients get by a server's options."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from llama_py_server.params import ListenParams, ModelsParams, ServerParams


def is_public(listen: ListenParams) -> bool:
    """Return True if other machines can connect."""
    return any(_reaches_others(host) for host in listen.host)


def _reaches_others(host: str) -> bool:
    if host.endswith(".sock") or host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True  # a name may resolve to any address


def exposure(listen: ListenParams, server: ServerParams, models: ModelsParams) -> Iterator[str]:
    """Yield lines on allowed connections, access without a key, and access of web pages."""
    others, keys = is_public(listen), listen.keys()
    where = ", ".join(listen.host)
    yield f"reached by: {'other machines' if others else 'this machine only'} (--host {where})"
    yield f"keys: {len(keys)} (--api-key, --api-key-file)" if keys else "keys: none, all may ask"
    if listen.ssl_key_file:
        yield "encrypted: yes"
    elif others:
        yield "encrypted: no, the network can read keys, prompts and answers (--ssl-key-file)"
    yield "without a key: " + ("/health and the page" if keys else "; ".join(_without_key(server)))
    manage = {
        "here": "clients of this machine and those with a key",
        "all": "everybody who is let in",
        "none": "nobody",
    }[models.models_manage]
    if models.is_several:
        yield f"fetch and remove models of the hub: {manage} (--models-manage)"
    if server.media_path:
        yield f"files of {server.media_path} can be read as images (--media-path)"
    urls = {
        "public": "the internet, not this network",
        "any": "any address that this machine reaches",
        "none": "nowhere",
    }[server.media_urls]
    yield f"images are fetched from: {urls} (--media-urls)"
    pages = {"*": "any page", "localhost": "pages of this machine"}
    known = pages.get(listen.cors_origins, listen.cors_origins)
    yield f"answers can be read by: {known} (--cors-origins)"
    yield "changes are for: pages of this machine and those that --cors-origins names"
    if "*" in listen.allowed_host:
        yield "any page can read and change everything by DNS rebinding (--allowed-host '*')"
    yield (
        f"at once: {listen.max_connections} connections, {server.max_queue} waiting requests,"
        f" bodies of {listen.bytes_together() >> 20} MiB"
    )


def _without_key(server: ServerParams) -> Iterator[str]:
    yield "ask for answers, embeddings and tokens"
    if server.slots:
        yield "see what slots compute (--no-slots)"
    if server.slot_save_path:
        yield f"save, load and erase sequences in {server.slot_save_path} (--slot-save-path)"
    if server.props:
        yield "change settings (--props)"
    if server.metrics:
        yield "read numbers (--metrics)"
    yield "change the scales of adapters"
