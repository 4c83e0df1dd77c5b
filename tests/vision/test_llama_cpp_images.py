"""llama-cpp-python's interface with images, and with a LoRA adapter."""

from __future__ import annotations

import base64
import io
import itertools
from pathlib import Path
from typing import Any

import pytest

from dev.tiny_models import write
from llama_py import Model
from llama_py.compat.llama_cpp import Llama
from llama_py.compat.llama_cpp import llama_chat_format as formats
from tests.support.adapters import matrices, pairs, write_adapter
from tests.support.eyes import files_of, picture
from tests.support.live_models import made


def test_images_of_messages(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    data = io.BytesIO()
    pillow.fromarray(picture(1).pixels).save(data, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"
    image = {"type": "image_url", "image_url": {"url": url}}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": "what is this?"}]}]
    model_file, encoder = files_of("pixtral", tmp_path)
    how: dict[str, Any] = {"max_tokens": 6}
    with Model(str(model_file)) as model:
        model.load_vision(encoder)
        expected = model.chat(messages, **how, temp=0)
        other = model.chat("what is this?", **how, temp=0)
    assert formats.Llava15ChatHandler is formats.MTMDChatHandler
    llm = Llama(
        str(model_file),
        n_ctx=512,
        chat_handler=formats.MTMDChatHandler(str(encoder)),
        verbose=False,
    )
    found = llm.create_chat_completion(messages, **how, temperature=0)
    assert found["choices"][0]["message"]["content"] == expected != other
    assert found["usage"]["prompt_tokens"] > 10
    llm.close()


def test_an_adapter(tmp_path: Path) -> None:
    path = write("llama", "dense", tmp_path)
    _, arrays = made("llama-dense")
    adapter = write_adapter(tmp_path / "a.gguf", "llama", pairs(arrays, matrices(arrays), 4))
    with Model(path) as model:
        ctx = model.context(n_ctx=256)
        ctx.set_adapters({model.load_adapter(adapter): 0.5})
        expected = int(ctx.decode([1, 2, 3])[-1].argmax())
        plain = int(model.context(n_ctx=256).decode([1, 2, 3])[-1].argmax())
    how: dict[str, Any] = {"n_ctx": 256, "verbose": False, "lora_path": str(adapter)}
    llm = Llama(str(path), lora_scale=0.5, **how)
    found = list(itertools.islice(llm.generate([1, 2, 3], temp=0), 1))
    assert found == [expected] != [plain]
