"""The folder of a checkpoint: config.json, other JSON files, and the tensors of all its shards."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.pocket_tts import pocket_config
from llama_py.checkpoint.safetensors import read_safetensors

log = logging.getLogger("llama_py")

INDEX = "model.safetensors.index.json"
MAX_JSON = 512 << 20  # bytes; the largest tokenizer.json has some 40 MB
# Other names of text_config.
TEXT_CONFIGS = ("llm_config", "lm_config", "language_config", "lfm")
# Classes that count, and not the class in text_config.
WHOLE_NAMES = (
    "StepVLForConditionalGeneration",
    "Sarashina2VisionForCausalLM",
    "Exaone4_5_ForConditionalGeneration",
    "Step3p7ForConditionalGeneration",
    "KimiK3ForConditionalGeneration",
)


class CheckpointFolder:
    """A folder with a model of Hugging Face.

    path    the folder
    config  config.json; values of the text model replace the same of the whole model
    is_mistral  the folder has Mistral's format: params.json and consolidated*.safetensors
    """

    def __init__(self, path: Path) -> None:
        """Read config.json. Raises ModelError if the folder or that file is missing or invalid."""
        self.path = path
        if not path.is_dir():
            raise ModelError(f"{path}: no such folder; use the folder of a checkpoint")
        stored = self.json("config.json") or self.json("params.json") or pocket_config(path)
        if not stored:
            raise ModelError(
                f"{path}: is a folder without a config.json; use a .gguf file, or the folder of a "
                "Hugging Face model"
            )
        self.is_mistral = not self.has("config.json") and self.has("params.json")
        for name in TEXT_CONFIGS:
            if isinstance(stored.get(name), dict):
                stored["text_config"] = stored[name]
        thinker = stored.get("thinker_config")
        if isinstance(thinker, dict) and isinstance(thinker.get("text_config"), dict):
            stored["text_config"] = thinker["text_config"]
        self.whole_config = stored
        text = stored.get("text_config")
        self.config = {**stored, **text} if isinstance(text, dict) else dict(stored)

    @property
    def model_name(self) -> str:
        """Name of the model's class in transformers, of `architectures`."""
        text = self.whole_config.get("text_config")
        whole, own = (
            _first_text(c.get("architectures")) if isinstance(c, dict) else None
            for c in (self.whole_config, text)
        )
        if self.is_mistral:
            kind = next((name for name in ("moe", "llama_4_scaling") if name in self.config), "")
            return f"params.json: {kind}" if kind else "params.json"
        if whole in WHOLE_NAMES:
            return whole or ""
        name = own or whole
        if name is None and isinstance(layer := self.whole_config.get("ssm_cfg"), dict):
            name = f"{layer.get('layer', 'Mamba')}ForCausalLM"
        if name is None:
            raise ModelError(
                f"{self.path / 'config.json'}: architectures must name the model's class, such as "
                '["LlamaForCausalLM"]; download the file again'
            )
        return self._variant(name)

    @property
    def media_name(self) -> str:
        """Name of the class of the encoders: of the vision encoder, or of the model."""
        if self.is_mistral:
            return "params.json"
        vision = self.whole_config.get("vision_config")
        own = _first_text(vision.get("architectures")) if isinstance(vision, dict) else None
        name = own or _first_text(self.whole_config.get("architectures"))
        if name is None:
            raise ModelError(
                f"{self.path / 'config.json'}: architectures must name the model's class, such as "
                '["LlamaForCausalLM"]; download the file again'
            )
        return name

    def _variant(self, name: str) -> str:
        """Return the name of a special class for some configurations."""
        if name in ("LlamaForCausalLM", "LLaMAForCausalLM") and "draft_vocab_size" in self.config:
            return "LlamaForCausalLMEagle3"
        is_mistral = name in ("Mistral3ForConditionalGeneration", "Ministral3ForCausalLM")
        is_latent = is_mistral and self.config.get("model_type") == "mistral4"
        return "Mistral4ForCausalLM" if is_latent else name

    def has(self, name: str) -> bool:
        """Return True if the folder has this file."""
        return (self.path / name).is_file()

    def json(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file; empty without the file. See `read_json`."""
        return read_json(self.path / name)

    def json_or_nothing(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a file; empty without a valid file."""
        try:
            return self.json(name)
        except ModelError as e:
            log.warning("%s", e)
            return {}

    def text(self, name: str) -> str | None:
        """Return the content of a file, or None without the file."""
        return read_text(self.path / name)

    def change_path(self, path: Path) -> CheckpointFolder:
        """Return a folder with the configuration of this one, and the other files of a path."""
        other = copy(self)
        other.path, other.whole_config = path, {}
        return other

    @cached_property
    def tensors(self) -> dict[str, LazyArray]:
        """Name to tensor: of the shards in order of their names, each by name.

        Raises ModelError if files or tensors are missing.
        """
        weights = {} if self.is_mistral else self._weight_map()
        prefix = "consolidated" if self.is_mistral else "model"
        files = sorted({*weights.values()}) or sorted(
            path.name for path in self.path.glob(f"{prefix}*.safetensors")
        )
        if not files:
            raise ModelError(f"{self.path}: {self._explain_missing()}")
        missing = [name for name in files if not (self.path / name).is_file()]
        if missing:
            raise ModelError(
                f"{self.path}: {len(missing)} of {len(files)} files of weights are missing, the "
                f"first is {missing[0]}; download them into this folder"
            )
        found = dict[str, LazyArray]()
        for file in files:
            for name, t in sorted(read_safetensors(self.path / file).items()):
                found[name] = LazyArray.from_stored(t)
        if weights and (differ := sorted(weights.keys() ^ found.keys())):
            raise ModelError(
                f"{self.path}: {len(differ)} tensors are only in {INDEX} or only in the files, the "
                f"first is {differ[0][:100]!r}; download the folder again"
            )
        return found

    def _weight_map(self) -> Mapping[str, str]:
        """Return the file name of each tensor; empty without an index."""
        weights = self.json(INDEX).get("weight_map", {})
        if not isinstance(weights, dict) or not all(map(_is_file_name, weights.values())):
            raise ModelError(
                f"{self.path / INDEX}: weight_map must be an object of names of files in this "
                "folder; download it again"
            )
        return weights

    def _explain_missing(self) -> str:
        if pickles := sorted(path.name for path in self.path.glob("pytorch_model*.bin")):
            return (
                f"its weights ({pickles[0]}) are Python pickles, which can run any program; save "
                "the model as safetensors: model.save_pretrained(folder)"
            )
        return "no file model*.safetensors; download the model's weights"


def _first_text(value: Any) -> str | None:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else None


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and value not in ("", ".", "..") and Path(value).name == value


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty without the file.

    Raises ModelError for a file with another content.
    """
    text = read_text(path)
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        what = str(e) or type(e).__name__
        raise ModelError(f"{path}: not valid JSON: {what}") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path}: must be a JSON object")
    return found


def read_text(path: Path) -> str | None:
    """Return the content of a file, or None without the file."""
    if not path.is_file():
        return None
    if path.stat().st_size > MAX_JSON:
        raise ModelError(f"{path}: must have at most {MAX_JSON >> 20} MiB")
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as e:
        raise ModelError(f"{path}: not a UTF-8 text: {e}") from None
