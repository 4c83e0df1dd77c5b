"""Encoders: what is refused, what is kept, what a chat does with images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev import tiny_models as texts
from dev import tiny_vision as tiny
from dev.record.golden.vision import image
from ggml_py.errors import (
    ContextError,
    GGUFError,
    HParamsError,
    ModelError,
    UnknownArchitecture,
    WeightsError,
)
from llama_py.text.conversation import Conversation
from llama_py.vision import Image, ImageEncoder
from llama_py.vision.prompt import Picture

NAME = next(iter(tiny.every()))


def changed(**keys: Any) -> tiny.TinyEyes:
    """The first tiny encoder, with other metadata; `__` in a key is a dot."""
    one = tiny.every()[NAME]
    return replace(one, keys={**one.keys, **{k.replace("__", "."): v for k, v in keys.items()}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vision")


def seeing(name: str, folder: Path) -> llama_py.Model:
    model = llama_py.load(str(texts.write(*tiny.text_of(tiny.every()[name]), folder)))
    model.load_vision(tiny.write(name, folder))
    return model


@pytest.mark.parametrize(
    ("keys", "error", "why"),
    [
        ({"has_vision_encoder": False}, ModelError, "not a vision encoder"),
        ({"has_vision_encoder": False, "has_audio_encoder": True}, ModelError, "an audio encoder"),
        ({"projector_type": "abc"}, UnknownArchitecture, "unknown projector 'abc'; known:"),
        ({"projector_type": 3}, ModelError, "clip.projector_type is missing"),
        ({"vision__patch_size": 0}, HParamsError, "must be from 1"),
        ({"vision__image_size": 10**6}, HParamsError, "must be from 0 to 8192"),
        ({"vision__block_count": 10**6}, HParamsError, "must be from 0"),
        ({"vision__attention__head_count": 0}, HParamsError, "must be at least 1"),
        ({"vision__attention__head_count": 5}, HParamsError, "must divide"),
        ({"vision__image_std": [0.5, 0.0, 0.5]}, HParamsError, "must not be 0"),
        ({"vision__image_mean": [0.5]}, HParamsError, "must have 3 items"),
        ({"use_silu": True}, HParamsError, "must be false if use_gelu"),
        ({"vision__projector__scale_factor": 100}, HParamsError, "do not match"),
        ({"vision__embedding_length": 64}, WeightsError, "misshapen"),
        ({"vision__block_count": 3}, WeightsError, "missing"),
    ],
)
def test_files_that_are_refused(
    keys: dict[str, Any], error: type[Exception], why: str, tmp_path: Path
) -> None:
    path = tiny.write(NAME, tmp_path)
    from llama_py.gguf.file import GGUFFile

    file = GGUFFile.open(path)
    file.override({f"clip.{k.replace('__', '.')}": v for k, v in keys.items()})
    with pytest.raises(error, match=why):
        ImageEncoder(file)


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = tiny.write(NAME, tmp_path)
    whole = path.read_bytes()
    for n in (0, 20, 900, len(whole) - 40):
        path.write_bytes(whole[:n])
        with pytest.raises(GGUFError):
            ImageEncoder(path)


def test_a_text_model_is_no_encoder(folder: Path) -> None:
    with pytest.raises(ModelError, match="not a vision encoder"):
        ImageEncoder(texts.write(*tiny.text_of(tiny.every()[NAME]), folder))


def test_the_encoder_of_another_model(folder: Path) -> None:
    model = llama_py.load(str(texts.write(*tiny.text_of(tiny.every()[NAME]), folder)))
    wide = replace(
        tiny.every()[NAME], keys={**tiny.every()[NAME].keys, "vision.projection_dim": 96}
    )
    with pytest.raises(ModelError, match=r"length 96, but the model .* needs 64"):
        model.load_vision(tiny.write(NAME, folder / "..", wide))
    assert model.vision is None
    with pytest.raises(ModelError, match="no vision encoder is loaded"):
        model.build_image_prompt("<__media__>", [Image.from_pixels(image(8, 8))])
    with pytest.raises(ModelError, match="no vision encoder is loaded"):
        model.chat("what?", images=[Image.from_pixels(image(8, 8))])


def test_places_and_images_are_as_many(folder: Path) -> None:
    model = seeing(NAME, folder)
    with pytest.raises(ModelError, match=r"has 2 image markers .*, but 1 images"):
        model.build_image_prompt("<__media__><__media__>", [Image.from_pixels(image(8, 8))])


def test_rows_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eyes = ImageEncoder(tiny.write(NAME, folder))
    first = eyes.encode(Image.from_pixels(image(50, 40)))
    monkeypatch.setattr(ImageEncoder, "_compute", _never)
    again = eyes.encode(Image.from_pixels(image(50, 40)))
    assert all(a is b for a, b in zip(first, again, strict=True))
    with pytest.raises(AssertionError, match="computed"):
        eyes.encode(Image.from_pixels(image(50, 40, seed=1)))


def _never(*_: Any) -> Any:
    raise AssertionError("computed")


def rest_of(n: int) -> Callable[[Any], Any]:
    return lambda prompt: prompt.rest(n)


@pytest.mark.parametrize("name", list(tiny.every()))
def test_a_prompt_may_begin_anywhere_but_in_an_image(name: str, folder: Path) -> None:
    model = seeing(name, folder)
    size = tiny.every()[name].sizes[0]
    given = model.build_image_prompt("ab<__media__>cd", [Image.from_pixels(image(*size))])
    whole = given.read(model.context(n_ctx=256))
    pictures = [c for c in given.chunks if isinstance(c, Picture)]
    firsts = [given.index(c.ids[0]) for c in pictures]
    inside = [at + i for c, at in zip(pictures, firsts, strict=True) for i in range(1, c.n_pos)]
    for n in (0, 1, firsts[0], len(given) - 1):
        ctx, rest = model.context(n_ctx=256), given.rest(n)
        assert rest is not None
        assert [*rest.before, *rest] == list(given)
        assert rest.n_beyond == given.n_beyond
        start = type(given)(_until(given, n))
        if start:
            start.read(ctx)
        assert np.square(whole - rest.read(ctx)).sum() < 1e-6 * np.square(whole).sum()
    assert all(given.rest(n) is None for n in inside)


def _until(given: Any, n: int) -> list[Any]:
    """The chunks of the first n positions."""
    found: list[Any] = []
    for chunk in given.chunks:
        if n <= 0:
            break
        size = chunk.n_pos if isinstance(chunk, Picture) else len(chunk)
        found.append(chunk if isinstance(chunk, Picture) else chunk[:n])
        n -= size
    return found


@pytest.mark.parametrize("name", [NAME, "qwen2vl_merger"])  # the latter: positions on axes
def test_a_conversation_with_images(name: str, folder: Path) -> None:
    """Each turn is computed as if there were none before; what is held is not computed again."""
    model = seeing(name, folder)
    picture = Image.from_pixels(image(*tiny.every()[name].sizes[0]))
    talk = Conversation(model.context(n_ctx=256))
    tokens = [piece.token for piece in talk.ask("what?", [picture], max_tokens=4)]
    asked = {"max_tokens": 4, "temp": 0.0}
    seen = model.stream_chat("what?", images=[picture], **asked)
    assert tokens == [piece.token for piece in seen]
    other = Image.from_pixels(image(*tiny.every()[name].sizes[0], seed=5))
    held = talk.prefix.tokens
    assert any(id < 0 for id in held)
    tokens = [piece.token for piece in talk.ask("and?", max_tokens=4)]
    assert talk.prefix.last_match is not None and talk.prefix.last_match.n_reused > held.index(
        min(held)
    )
    again = Conversation(model.context(n_ctx=256))
    again.messages = list(talk.messages[:2])
    assert tokens == [piece.token for piece in again.ask("and?", max_tokens=4)]
    talk.clear()
    talk.add_user_message("what?", [other])
    assert talk.prefix.last_match.n_reused < held.index(min(held)) + 1


def test_other_rows_of_the_same_image_are_not_reused(folder: Path, tmp_path: Path) -> None:
    """Of another encoder, or of the same one where images become more embeddings."""
    model, picture = seeing("pixtral", folder), Image.from_pixels(image(50, 40))
    ids = model.build_image_prompt("<__media__>a", [picture])
    one = tiny.every()["pixtral"]
    other = replace(one, keys={**one.keys, "vision.image_mean": [0.1, 0.2, 0.3]})
    model.load_vision(tiny.write("pixtral", tmp_path, other))
    more = model.build_image_prompt("<__media__>a", [picture])
    assert not {i for i in more if i < 0} & {i for i in ids if i < 0}
    model.load_vision(tiny.write("pixtral", folder), min_tokens=40)
    more = model.build_image_prompt("<__media__>a", [picture])
    assert len(more) > len(ids) and not {i for i in more if i < 0} & {i for i in ids if i < 0}


def test_an_image_whose_rows_see_all_is_not_cut(folder: Path) -> None:
    model = seeing("gemma3", folder)
    given = model.build_image_prompt("<__media__>a", [Image.from_pixels(image(50, 40))])
    n = next(c.n_tokens for c in given.chunks if isinstance(c, Picture))
    for n_batch in (n - 1, n // 2):
        with pytest.raises(ContextError, match=f"use at least {n} for both"):
            given.read(model.context(n_ctx=256, n_batch=n_batch, n_ubatch=n_batch))
    given.read(model.context(n_ctx=256, n_batch=n, n_ubatch=n))


def test_no_image_becomes_endless(tmp_path: Path) -> None:
    """However many patches a file says to be one embedding."""
    from llama_py.gguf.file import GGUFFile

    file = GGUFFile.open(tiny.write("gemma4v", tmp_path))
    file.override({"clip.vision.projector.scale_factor": 65535})
    with pytest.raises(HParamsError, match="exceed the maximum of 4096"):
        ImageEncoder(file)
    file.override({"clip.vision.projector.scale_factor": 400})
    with pytest.raises(ModelError, match="smaller min_tokens"):
        ImageEncoder(file).encode(Image.from_pixels(image(50, 40)))


def test_files_of_messages(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image")
    from tests.vision.test_image import png

    model, inside = seeing(NAME, folder), tmp_path / "media"
    inside.mkdir()
    (inside / "a.png").write_bytes(png(image(30, 20)))
    (tmp_path / "b.png").write_bytes(png(image(30, 20)))

    def asked(url: str) -> list[dict[str, Any]]:
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "hm"}]
        return [{"role": "user", "content": parts}]

    expected = model.chat("hm", images=[inside / "a.png"], max_tokens=3)
    assert model.chat(asked("file:a.png"), media_path=inside, max_tokens=3) == expected
    with pytest.raises(ModelError, match="is outside"):
        model.chat(asked("file:../b.png"), media_path=inside)
    with pytest.raises(ModelError, match="file: URLs are not enabled"):
        model.chat(asked("file:a.png"))
    (inside / "circle").symlink_to("circle")
    for url in ("file:%00", "file://[", "file:circle", "file:" + "a" * 5000):
        with pytest.raises(ModelError):
            model.chat(asked(url), media_path=inside)
    with pytest.raises(ModelError, match="URL of an image must be"):
        model.chat(asked("http://127.0.0.1/a.png"), media_path=inside)
