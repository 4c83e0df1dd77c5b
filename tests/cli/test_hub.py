"""-hf, with a hub that is made up: nothing is asked of any network."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dev import tiny_vision as tiny
from ggml_py.errors import ModelError
from ggml_py.machine.extras import install_hint
from llama_py_tools.command.params import FileParams
from llama_py_tools.generate import cli, vision
from llama_py_tools.models import hub, session
from tests.support.commands import DEMO

NAMES = (
    "README.md",
    "imatrix.gguf",
    "m-F16.gguf",
    "m-Q4_K_M-00001-of-00002.gguf",
    "m-Q4_K_M-00002-of-00002.gguf",
    "m-Q8_0.gguf",
    "mmproj-Q4_K_M.gguf",
)


class NoCache(Exception):
    pass


class Hub:
    """The functions of huggingface_hub that are used."""

    CacheNotFound = NoCache

    def __init__(self, names: Sequence[str] = NAMES, cached: Sequence[str] = ()) -> None:
        self.names, self.cached = names, cached
        self.asked: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def HfApi(self) -> Hub:
        return self

    def model_info(self, repo: str, token: str | None = None, timeout: float = 0) -> Any:
        self.asked.append(("list", repo, token))
        if self.error:
            raise self.error
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in self.names])

    def hf_hub_download(
        self, repo: str, name: str, token: str | None = None, local_files_only: bool = False
    ) -> str:
        self.asked.append((repo, name, local_files_only))
        return str(DEMO) if name.endswith("-F16.gguf") else f"/{name}"

    def scan_cache_dir(self) -> Any:
        if not self.cached:
            raise NoCache
        at = Path("/cache/snapshots/1")
        files = [SimpleNamespace(file_path=at / name, size_on_disk=2**20) for name in self.cached]
        revision = SimpleNamespace(snapshot_path=at, files=files, refs={"main"}, last_modified=0)
        repo = SimpleNamespace(repo_type="model", repo_id="u/m", revisions=[revision])
        return SimpleNamespace(repos=[repo])


def made(monkeypatch: pytest.MonkeyPatch, **how: Any) -> Hub:
    found = Hub(**how)
    monkeypatch.setitem(sys.modules, "huggingface_hub", found)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("repo", "file", "path"),
    [
        ("u/m", "", "m-Q4_K_M-00001-of-00002.gguf"),
        ("u/m:q8_0", "", "m-Q8_0.gguf"),
        ("u/m:f16", "", str(DEMO)),
        ("u/m:Q8_0", "imatrix.gguf", "imatrix.gguf"),
    ],
)
def test_which_file(repo: str, file: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = made(monkeypatch).asked
    found = hub.download_model(FileParams(hf_repo=repo, hf_file=file, hf_token="t"))
    assert found.endswith(path)
    assert asked[0] == ("list", "u/m", "t")
    assert len(asked) == (3 if "Q4_K_M" in path else 2)


def test_a_checkpoint_is_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without GGUF files, the files of a checkpoint are downloaded; the path is their folder."""
    names = [
        "README.md", "config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors", "model.safetensors.index.json", "onnx/model.onnx",
        "pytorch_model.bin", "tokenizer.json", "1_Pooling/config.json",
    ]  # fmt: skip
    asked = made(monkeypatch, names=names).asked
    assert hub.download_model(FileParams(hf_repo="u/m")) == "/"
    assert {name for _, name, _ in asked[1:]} == {*names} - {
        "consolidated.safetensors", "onnx/model.onnx", "pytorch_model.bin"
    }  # fmt: skip
    assert asked[1][1] == "config.json"
    assert hub.download_vision_encoder(FileParams(hf_repo="u/m")) == ""
    with pytest.raises(ModelError, match="no GGUF file of type Q8_0"):
        hub.download_model(FileParams(hf_repo="u/m:Q8_0"))


def test_the_encoder_beside_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        "m-Q8_0.gguf",
        "a/m-F16.gguf",
        "a/b/m-F16.gguf",
        "mmproj-BF16.gguf",
        "mmproj-Q8_0.gguf",
        "a/mmproj.gguf",
        "c/mmproj-F16.gguf",
    )
    assert hub.find_vision_file("m-Q8_0.gguf", names) == "mmproj-Q8_0.gguf"
    assert hub.find_vision_file("m-F16.gguf", names) == "mmproj-BF16.gguf"
    assert hub.find_vision_file("a/b/m-F16.gguf", names) == "a/mmproj.gguf"
    assert hub.find_vision_file("m-F16.gguf", names[:3]) == ""
    found = made(monkeypatch)
    assert hub.download_vision_encoder(FileParams(hf_repo="u/m:Q8_0")) == "/mmproj-Q4_K_M.gguf"
    found.names = ("m-Q8_0.gguf",)
    assert hub.download_vision_encoder(FileParams(hf_repo="u/m")) == ""


def test_an_encoder_that_is_not_known_is_not_used(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    assert vision.usable("") == ""
    assert vision.usable(str(DEMO)) == "" and "not a vision encoder" in caplog.messages[-1]
    assert vision.usable(str(tmp_path / "none.gguf")) == ""
    path = tiny.write("pixtral", tmp_path)
    assert vision.usable(str(path)) == str(path)


def test_a_model_that_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = made(monkeypatch).asked
    args = cli.parser().parse_args(["-hfd", "u/m:Q8_0", "-hf", "a/b", "-hff", "x", "-hft", "t"])
    session.fetch_draft(args)
    assert args.model_draft == "/m-Q8_0.gguf" and asked[0] == ("list", "u/m", "t")
    with pytest.raises(ModelError, match="either -hfd or -md"):
        session.fetch_draft(cli.parser().parse_args(["-hfd", "u/m", "-md", "a.gguf"]))


def test_a_repository_of_presets(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(monkeypatch, names=("preset.ini", "README.md"))
    assert hub.download_preset(FileParams(hf_repo="u/m")) == "/preset.ini"
    assert hub.download_preset(FileParams(hf_repo="u/m:Q8_0")) == ""  # a model is asked for
    found.names = ("a/preset.ini", "m-Q8_0.gguf")
    assert hub.download_preset(FileParams(hf_repo="u/m")) == ""


def test_without_a_usual_type_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch, names=("b.gguf", "a.gguf"))
    assert hub.download_model(FileParams(hf_repo="u/m")) == "/a.gguf"


def test_the_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(monkeypatch, cached=["x/m-Q8_0.gguf"])
    assert hub.download_model(FileParams(hf_repo="u/m", offline=True)) == "/x/m-Q8_0.gguf"
    assert found.asked == [("u/m", "x/m-Q8_0.gguf", True)]


def test_a_network_that_is_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = made(monkeypatch, cached=["m-Q8_0.gguf"])
    found.error = ConnectionError("no route")
    unreachable = "the Hugging Face Hub cannot be reached (no route)"
    assert hub.download_model(FileParams(hf_repo="u/m")) == "/m-Q8_0.gguf"
    assert caplog.messages == [f"-hf u/m: {unreachable}; using the files in the cache"]
    assert found.asked[1:] == [("u/m", "m-Q8_0.gguf", True)]  # not from the network again
    found.cached = ()
    with pytest.raises(ModelError) as refused:
        hub.download_model(FileParams(hf_repo="u/m"))
    assert str(refused.value) == (
        f"-hf u/m: {unreachable}, and it is not in the cache; check the network"
    )


@pytest.mark.parametrize(
    "fetch", [hub.download_model, hub.download_vision_encoder, hub.download_preset, hub.to_fetch]
)
def test_an_unreachable_hub_is_asked_once(fetch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("huggingface_hub")
    slept: list[float] = []
    with socket.socket() as bound:  # a port without a listener
        bound.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}"
        monkeypatch.setattr(real, "HfApi", lambda make=real.HfApi: make(endpoint=endpoint))
        monkeypatch.setattr(real, "scan_cache_dir", lambda: SimpleNamespace(repos=[]))
        monkeypatch.setattr("time.sleep", slept.append)
        with pytest.raises(ModelError, match=r"cannot be reached \(.*refused.*check the network$"):
            fetch(FileParams(hf_repo="u/m"))
    assert slept == []  # between retries


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"hf_repo": "m"}, "expected USER/MODEL"),
        ({"hf_repo": "u/m:Q2_K"}, "of type Q2_K found; it has m"),
        ({"hf_repo": "u/m", "hf_file": "no"}, "-hff no: u/m does not have this file; it has"),
        ({"hf_repo": "u/m", "offline": True}, "it is not in the cache; run without --offline"),
    ],
)
def test_refusals(how: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch)
    with pytest.raises(ModelError, match=says):
        hub.download_model(FileParams(**how))


def test_what_the_hub_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    made(monkeypatch).error = RuntimeError("401 Client Error\n\nRepository Not Found")
    with pytest.raises(ModelError, match=r"^-hf u/m: 401 Client Error Repository Not Found$"):
        hub.download_model(FileParams(hf_repo="u/m"))


def test_without_the_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert cli.main(["-hf", "u/m"]) == 1
    assert capsys.readouterr().err == (f"error: -hf needs huggingface_hub: {install_hint('hub')}\n")


def test_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made(monkeypatch, cached=["m-Q8_0.gguf", "README.md"])
    assert cli.main(["-hf", "u/m:F16", "-dev", "ref", "-p", "ROMEO:", "-n", "1", "-no-cnv"]) == 0
    assert capsys.readouterr().out.startswith("ROMEO:")
    assert cli.main(["--cache-list"]) == 0
    shown = "number of models in cache: 1\n   1. u/m m-Q8_0.gguf (1 MiB)\n"
    assert capsys.readouterr().out == shown
    made(monkeypatch)
    assert cli.main(["-cl"]) == 0
    assert capsys.readouterr().out == "number of models in cache: 0\n"
    for argv, says in (
        (["-m", "a", "-hf", "b/c"], "set only one of -hf, -m and -mu"),
        (["-hff", "a"], "-hff needs -hf"),
    ):
        assert cli.main(argv) == 1
        assert says in capsys.readouterr().err


def test_the_real_library_takes_these_arguments() -> None:
    import inspect

    real = pytest.importorskip("huggingface_hub")
    for name, function in (
        ("HfApi().model_info", real.HfApi().model_info),
        ("hf_hub_download", real.hf_hub_download),
    ):
        ours = inspect.signature(getattr(Hub(), name.rpartition(".")[2]))
        assert {*ours.parameters} - {"repo", "name"} <= {*inspect.signature(function).parameters}
    assert issubclass(real.CacheNotFound, Exception)
    assert session.model_path(FileParams()).endswith("demo.gguf")


def test_a_model_is_removed_from_its_own_repository(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Copies of a repository have its commits and its file names."""
    real = pytest.importorskip("huggingface_hub")
    for name in ("one", "two", "three"):
        repo = tmp_path / f"models--u--{name}"
        for commit, ref in (("a" * 40, "main"), ("b" * 40, "old")):
            snapshot = repo / "snapshots" / commit
            for folder in (repo / "refs", repo / "blobs", snapshot):
                folder.mkdir(parents=True, exist_ok=True)
            (repo / "refs" / ref).write_text(commit)
            for kind in ("Q8_0", "Q4_0"):
                blob = repo / "blobs" / f"{ref}{kind}"
                blob.write_bytes(b"GGUF")
                (snapshot / f"m-{kind}.gguf").symlink_to(f"../../blobs/{blob.name}")
    monkeypatch.setattr(
        hub,
        "_library",
        lambda: SimpleNamespace(
            scan_cache_dir=lambda: real.scan_cache_dir(tmp_path), CacheNotFound=real.CacheNotFound
        ),
    )
    kinds = {f"u/{name}:{kind}" for name in ("one", "two", "three") for kind in ("Q8_0", "Q4_0")}
    assert {*hub.cached_names()} == kinds and len(hub.cached_files()) == 6
    assert all("a" * 40 in str(path) for path in hub.cached_names().values())
    for name in ("u/two:Q8_0", "u/two:Q4_0"):
        kinds -= {name}
        assert hub.remove_model(name) and not hub.remove_model(name)
        assert {*hub.cached_names()} == kinds
    assert sorted(p.name for p in tmp_path.iterdir()) == ["models--u--one", "models--u--three"]
    assert len([*tmp_path.rglob("blobs/*")]) == 8
