"""Images on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev import tiny_vision as tiny
from dev.record.golden.vision import image
from ggml_py.errors import ContextError
from llama_py_tools.generate.chat.talk import Talk
from tests.support.commands import refused, run, tiny_model
from tests.vision.test_image import png

SHORT = ("-n", "4", "--temp", "0", "--no-warmup", "-c", "256")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The options of a model that sees, and an image."""
    folder = tmp_path_factory.mktemp("seen")
    (folder / "a.png").write_bytes(png(image(50, 40)))
    (folder / "b.png").write_bytes(png(image(30, 40, seed=1)))
    mmproj = tiny.write("gemma3", folder)
    return str(tiny_model(folder, "gemma3-dense")), str(mmproj), str(folder)


def test_a_text_with_images_is_continued(seen: tuple[str, ...]) -> None:
    model, mmproj, folder = seen
    files = f"{folder}/a.png,{folder}/b.png"
    how = ("-m", model, "--mmproj", mmproj, "--image", files, *SHORT, "-p")
    said = run("llama-py-cli", *how, "a <__media__> b <__media__> c")
    assert said.returncode == 0, said.stderr
    assert "generated 4 tokens" in said.stderr
    before = run("llama-py-cli", *how, "c")
    assert before.returncode == 0 and "generated 4 tokens" in before.stderr
    assert "16" not in before.stdout


def test_questions_about_images(seen: tuple[str, ...]) -> None:
    model, mmproj, folder = seen
    lines = f"/image {folder}/b.png\nand this?\n/image {folder}/c.png\n/exit\n"
    how = ("-m", model, "--mmproj", mmproj, "--image", f"{folder}/a.png", *SHORT, "-cnv")
    said = run("llama-py-cli", *how, "-p", "what?", stdin=None, input=lines)
    assert said.returncode == 0, said.stderr
    assert "30 x 40, added to your next message" in said.stderr
    assert "c.png: file not found" in said.stderr
    assert said.stderr.count("generated 8 tokens") == 1


def test_an_image_needs_eyes(seen: tuple[str, ...]) -> None:
    model, mmproj, folder = seen
    how = ("-m", model, "--image", f"{folder}/a.png", "-p", "x")
    assert "--image needs a vision encoder; use --mmproj FILE" in refused(run("llama-py-cli", *how))
    how = ("-m", model, "--mmproj", model, "--image", f"{folder}/a.png", "-p", "x")
    assert "not a vision encoder" in refused(run("llama-py-cli", *how))
    how = ("-m", model, "--mmproj", mmproj, "--image", f"{folder}/no.png", "-p", "x")
    assert "no.png: file not found" in refused(run("llama-py-cli", *how))


def test_the_message_after_a_refused_one_has_no_image(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been the image for which there was no room."""
    talk = Talk.__new__(Talk)
    talk.terminal, talk.single_turn, talk.attached, talk.images = True, False, ["x"], ["a.png"]

    def refuse(*_: object) -> None:
        raise ContextError("no room")

    monkeypatch.setattr(Talk, "turn", refuse)
    talk.take("what?", is_typed=False)
    assert talk.images == [] and talk.attached == ["x"]
    assert "attached images were removed" in caplog.messages[-1]


def test_a_full_context_is_told_by_its_cells(tmp_path: Path) -> None:
    """Where an image takes more cells than positions."""
    (tmp_path / "a.png").write_bytes(png(image(90, 80)))
    mmproj, model = tiny.write("qwen2vl_merger", tmp_path), tiny_model(tmp_path, "qwen2vl-dense")
    said = run(
        "llama-py-cli",
        "-m",
        str(model),
        "--mmproj",
        str(mmproj),
        "--image",
        str(tmp_path / "a.png"),
        "-c",
        "512",
        "-n",
        "-1",
        "--ignore-eos",
        "--temp",
        "0",
        "--no-warmup",
        "-cnv",
        "-st",
        "-p",
        "what?",
    )
    assert said.returncode == 0 and "the context is full" in said.stderr, said.stderr
