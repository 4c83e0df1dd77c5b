"""Options that are secret: no route and no log shows them, whatever its level."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ggml_py.errors import ModelError
from llama_py.params.option import Option
from llama_py_server.app import app
from llama_py_server.command import build_model_pool, parser
from llama_py_server.models.feed import Feed
from llama_py_server.params import ListenParams
from llama_py_server.wire.sse import Frame, encode
from llama_py_tools.command import logs
from llama_py_tools.command.options import read
from llama_py_tools.command.params import CommonParams, FileParams
from tests.server.served import ASK, LOCAL, SMALL
from tests.support.commands import DEMO

SECRETS: dict[str, Option] = {f.name: o for _, f, o in parser().added if o.secret}
VALUE, KEY = "notarealsecret0123456789", "notarealkey0123456789"
LEVELS = (0, len(logs.LEVELS))  # a level shows all that lower ones show
BODY = {"model": "one", "prompt": "a", "input": "a", "content": "a", "messages": ASK}


def test_options_that_sound_secret_are_marked() -> None:
    names = {f.name for _, f, _ in parser().added}
    sound = re.compile(r"(^|_)(token|key|keys|password|secret|cert|ssl|url)(_|$)")
    assert {name for name in names if sound.search(name)} == {*SECRETS}
    assert {"hf_token", "api_key", "ssl_key_file", "model_url"} <= {*SECRETS}


@pytest.fixture
def value(tmp_path: Path) -> str:
    """A value that any secret option takes: a file, with a key in it."""
    (tmp_path / VALUE).write_text(KEY)
    return str(tmp_path / VALUE)


def of(option: Option, value: str) -> str:
    """Return a value that an option takes."""
    url = f"http://me:{VALUE}@127.0.0.1:9/m.gguf?key={KEY}"
    return url if option.metavar == "URL" else value


def answers(client: TestClient, level: int) -> Iterator[str]:
    """The responses of all routes at a level of the log, without a key and with one."""
    logs.set_up(CommonParams(log_verbosity=level))
    for key in ("", KEY):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        for route in client.app.routes:  # type: ignore[attr-defined]
            path = re.sub(r"{\w+:path}", "one", route.path).replace("{id_slot}", "0")
            for method in route.methods:
                more: dict[str, Any] = {"params": {"model": "one"}} if method != "POST" else {}
                body = {"json": {**BODY, "max_tokens": 1}} if method == "POST" else {}
                found = client.request(method, path, headers=headers, **more, **body)
                yield f"{found.headers} {found.text}"


async def beginning(feed: Feed) -> AsyncIterator[bytes]:
    """Yield what a feed begins with, which would not end by itself."""
    yield encode(Frame(feed._statuses()))


@pytest.fixture
def shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[str]], list[str]]:
    """Returns the secrets that a server of several models shows at any level of its log."""
    monkeypatch.setattr(Feed, "stream", beginning)

    def found(flags: list[str]) -> list[str]:
        args = parser().parse_args([*SMALL, *flags])
        args.given = [*SMALL, *flags]
        pool = build_model_pool(args)
        try:
            made = app(pool, read(args, ListenParams))
            client = TestClient(made, base_url=LOCAL, raise_server_exceptions=False)
            texts = [text for level in LEVELS for text in answers(client, level)]
        finally:
            logs.set_up(CommonParams())
            pool.close()
        assert any('"object":"list"' in text for text in texts)
        both = f"{texts} {capsys.readouterr()}"
        return [secret for secret in (VALUE, KEY) if secret in both]

    return found


def test_of_the_command_line(
    value: str, tmp_path: Path, shown: Callable[[list[str]], list[str]]
) -> None:
    preset = tmp_path / "models.ini"
    preset.write_text(f"[one]\nmodel = {DEMO}\n")
    flags = [word for o in SECRETS.values() for word in (o.flags[-1], of(o, value))]
    assert shown(["--models-preset", str(preset), *flags]) == []


@pytest.mark.parametrize("name", SECRETS)
def test_of_presets(
    name: str, value: str, tmp_path: Path, shown: Callable[[list[str]], list[str]]
) -> None:
    """They are refused, or honored."""
    preset = tmp_path / "models.ini"
    line = f"{SECRETS[name].flags[-1].lstrip('-')} = {of(SECRETS[name], value)}\n"
    preset.write_text(f"[*]\n{line}[one]\nmodel = {DEMO}\n{line}")
    if name in ListenParams.__dataclass_fields__:
        with pytest.raises(ModelError, match=rf"\[\*?\w*\]: {line.split()[0]}: .* server") as e:
            shown(["--models-preset", str(preset)])
        assert VALUE not in str(e.value)
    else:
        assert shown(["--models-preset", str(preset)]) == []


@pytest.mark.parametrize("line", [f"hf-token {VALUE}", f"hf_token = {VALUE}", f"api = {VALUE}"])
def test_of_lines_that_are_wrong(line: str, tmp_path: Path) -> None:
    preset = tmp_path / "models.ini"
    preset.write_text(f"[one]\nmodel = {DEMO}\n{line}\n")
    args = parser().parse_args(["--models-preset", str(preset)])
    with pytest.raises(ModelError, match=r"models.ini: (line 3: expected|.*unknown option)") as e:
        build_model_pool(args)
    assert VALUE not in str(e.value)


def test_of_representations() -> None:
    args = parser().parse_args(["--api-key", VALUE, "--hf-token", VALUE])
    assert VALUE not in f"{read(args, ListenParams)} {read(args, FileParams)}"


def test_keys_in_urls_and_folders(tmp_path: Path) -> None:
    preset = tmp_path / "models.ini"
    url = f"https://me:{VALUE}@host/m.gguf?key={VALUE}"
    preset.write_text(f"[one]\nmodel-url = {url}\n")
    args = parser().parse_args(["--models-preset", str(preset)])
    (entry,) = build_model_pool(args).entries.values()
    assert entry.args == ()
    args = parser().parse_args(["--model-url", url])
    assert read(args, FileParams).title == "https://host/m.gguf"
    preset.write_text(f"[one]\nmodel = {DEMO}\n")
    (entry,) = build_model_pool(
        parser().parse_args(["--models-preset", str(preset)])
    ).entries.values()
    assert entry.args == ("--model", DEMO.name)


@pytest.mark.parametrize("scheme", ["http", "ftp"])
def test_a_url_that_cannot_be_fetched(
    scheme: str, tmp_path: Path, shown: Callable[[list[str]], list[str]]
) -> None:
    """Neither the error of the model nor the log has its password."""
    preset = tmp_path / "models.ini"
    url = f"{scheme}://me:{VALUE}@127.0.0.1:9/a b.gguf?key={KEY}"
    preset.write_text(f"[one]\nmodel-url = {url}\n")
    assert shown(["--models-preset", str(preset)]) == []
