"""What `llama-py-server --check` says, and a start that other machines can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_py_server.command import main
from llama_py_server.params import ListenParams, ModelsParams, ServerParams
from llama_py_server.wire.exposure import exposure, is_public


@pytest.mark.parametrize(
    "hosts, others",
    [
        (("127.0.0.1",), False),
        (("127.9.9.9", "::1", "localhost", "/run/llama.sock"), False),
        (("0.0.0.0",), True),
        (("127.0.0.1", "::"), True),
        (("192.168.7.7",), True),
        (("box",), True),
    ],
)
def test_hosts_that_others_reach(hosts: tuple[str, ...], others: bool) -> None:
    assert is_public(ListenParams(host=hosts)) is others


def test_what_clients_can_do(tmp_path: Path) -> None:
    def said(listen: ListenParams, **options: object) -> str:
        server = ServerParams(**options)  # type: ignore[arg-type]
        return "\n".join(exposure(listen, server, ModelsParams(models_cached=True)))

    shut = said(ListenParams(api_key=("k",), ssl_key_file="x", cors_origins="localhost"))
    assert "keys: 1" in shut and "encrypted: yes" in shut and "this machine only" in shut
    assert "without a key: /health and the page" in shut
    assert "web pages that can read responses: pages of this machine" in shut
    wide = said(
        ListenParams(host=("0.0.0.0",), allowed_host=("*",)),
        slot_save_path=str(tmp_path),
        props=True,
        metrics=True,
        media_urls="any",
        media_path=str(tmp_path),
    )
    for part in (
        "other machines",
        "API keys: none",
        "encrypted: no",
        f"save, load and erase sequences in {tmp_path}",
        "change settings",
        "read metrics",
        "any address that this machine can reach",
        f"files of {tmp_path}",
        "DNS rebinding",
        "clients of this machine, and clients with a key",
    ):
        assert part in wide


def test_check_ends_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--host", "0.0.0.0", "-m", "absent.gguf"]) == 0
    assert capsys.readouterr().out.startswith("reachable from: other machines (--host 0.0.0.0)\n")


def test_other_machines_need_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--host", "0.0.0.0"])
    told = capsys.readouterr().err
    assert (
        "--host 0.0.0.0 accepts connections from other machines; set --api-key, or --insecure"
        in told
    )


def test_tools_of_mcp_servers() -> None:
    def said(tools: bool) -> str:
        return "\n".join(exposure(ListenParams(), ServerParams(), ModelsParams(), tools))

    line = "may call tools of MCP servers: clients of this machine or with a key (--mcp)"
    assert line in said(True) and "tools of MCP" not in said(False)


def test_ollamas_address_needs_a_key_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for address, says in (
        ("0.0.0.0", "--host 127.0.0.1,0.0.0.0 accepts connections from other machines"),
        ("box:none", "OLLAMA_HOST=box:none: expected HOST:PORT"),
    ):
        monkeypatch.setenv("OLLAMA_HOST", address)
        with pytest.raises(SystemExit) as stopped:
            main(["--ollama"])
        assert stopped.value.code == 2 and says in capsys.readouterr().err
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0:99")
    assert main(["--ollama", "--check"]) == 0
    assert "other machines (--host 127.0.0.1; --ollama 0.0.0.0:99)" in capsys.readouterr().out
