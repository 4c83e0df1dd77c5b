"""Checkpoints of Qwen's models with images and sound: their text models (conversion/qwenvl.py,
qwen3vl.py)."""

from __future__ import annotations

from typing import ClassVar

from llama_py.checkpoint.arrays import LazyArray, NamedArrays
from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.merge import split_gate_up
from llama_py.checkpoint.models.qwen3 import Qwen3Converter
from llama_py.checkpoint.models.qwen3moe import Qwen3MoeConverter
from llama_py.checkpoint.vocabulary import Vocabulary

END_OF_TURN = "<|im_end|>"
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


class Qwen2VLConverter(Converter):
    arch = "qwen2vl"
    classes = (
        "Qwen2VLModel",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen2_5OmniModel",
    )
    tokenizer = "either"

    def select(self, name: str) -> str | None:
        return super().select(name.removeprefix("thinker."))


class ThinkerConverter(Converter):
    """A model of Qwen3 with a vision encoder. Its first layers add outputs of the encoder's layers.

    is_speech  the model has a sound encoder: no such outputs, and one token ends a message
    """

    is_speech = False

    def select(self, name: str) -> str | None:
        return super().select(name.replace("thinker.", ""))

    def keys(self) -> None:
        super().keys()
        config = self.find("thinker_config") or self.config
        layers = (config.get("vision_config") or {}).get("deepstack_visual_indexes", ())
        self.out.u32("n_deepstack_layers", 0 if self.is_speech else len(layers))

    def vocabulary(self, v: Vocabulary) -> None:
        super().vocabulary(v)
        for id, token in v.added_tokens():
            if self.is_speech and token.get("content") == END_OF_TURN:
                self.out.u32("tokenizer.ggml.bos_token_id", id)
                self.out.u32("tokenizer.ggml.eos_token_id", id)
                return


class Qwen3VLConverter(ThinkerConverter, Qwen3Converter):
    arch = "qwen3vl"
    classes: ClassVar[tuple[str, ...]] = ("Qwen3VLForConditionalGeneration",)


class Qwen3AsrConverter(Qwen3VLConverter):
    classes = ("Qwen3ASRForConditionalGeneration",)
    is_speech = True

    def vocabulary(self, v: Vocabulary) -> None:
        super().vocabulary(v)
        self.out.text("tokenizer.chat_template", CHATML)


class Qwen3VLMoeConverter(ThinkerConverter, Qwen3MoeConverter):
    """Experts are stored as [n_expert, n_in, n_out]."""

    arch = "qwen3vlmoe"
    classes: ClassVar[tuple[str, ...]] = ("Qwen3VLMoeForConditionalGeneration",)

    def tensors(self, name: str, array: LazyArray, layer: int | None) -> NamedArrays:
        stored = name.removesuffix(".weight")
        if stored.endswith("mlp.experts.gate_up_proj"):
            for new_name, new in split_gate_up(name, array.swap(1, 2)):
                yield self.rename(new_name), new
        elif stored.endswith("mlp.experts.down_proj"):
            yield self.rename(f"{stored}.weight"), array.swap(1, 2)
        else:
            yield from super().tensors(name, array, layer)


class Qwen3OmniMoeConverter(Qwen3VLMoeConverter):
    classes = ("Qwen3OmniMoeForConditionalGeneration",)
    is_speech = True
