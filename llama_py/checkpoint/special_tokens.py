"""Special tokens, merges and chat templates of a checkpoint's tokenizer files
(gguf-py: vocab.py, SpecialVocab)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ggml_py.errors import ModelError
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues

log = logging.getLogger("llama_py")

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# Keys of the ids, except cls.
ID_KEYS = {
    "bos": "bos", "eos": "eos", "unk": "unknown", "sep": "seperator", "pad": "padding",
    "mask": "mask", "eot": "eot", "eom": "eom",
}  # fmt: skip


class SpecialTokens:
    """Roles of tokens, read from tokenizer.json, tokenizer_config.json and config.json.

    ids       id by role, in the order of the keys
    added     whether tokenizing adds bos, eos and sep
    merges    of a BPE tokenizer, if with_merges
    template  chat template, or several by name
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        with_merges: bool = False,
        n_vocab: int | None = None,
        roles: Sequence[str] = ROLES,
    ) -> None:
        """Read the files. n_vocab: number of tokens; higher ids are ignored."""
        self.folder, self.n_vocab, self.roles = folder, n_vocab, list(roles)
        self.ids: dict[str, int] = {}
        self.added: dict[str, bool] = {}
        self.merges: list[str] = []
        self.template: str | list[dict[str, str]] | None = None
        self.lowercase: bool | None = None
        self.strip_accents: bool | None = None
        tokenizer = folder.json("tokenizer.json")
        self.config = folder.json("tokenizer_config.json")
        if with_merges:
            self.merges = _merges(tokenizer.get("model"))
        if isinstance(normalizer := tokenizer.get("normalizer"), dict):
            self._read_normalizer(normalizer)
        if tokenizer:
            self._read_processors(tokenizer.get("post_processor"))
        if self.config:
            self._read_template()
            self._read_config(tokenizer.get("added_tokens"))
        for role in self.roles:
            self._read_id(role)
        if with_merges and not self.merges:
            self.merges = [*_merges_of_text(folder.text("merges.txt") or "")]

    def set(self, role: str, id: Any) -> None:
        """Set the id of a role that has no id yet."""
        if type(id) is not int or role in self.ids:
            return
        if id < 0:
            raise ModelError(f"{self.folder.path}: the id of {role} must not be negative, got {id}")
        if self.n_vocab is None or id < self.n_vocab:
            self.ids[role] = id
        else:
            log.warning("the id %d of %s is not in the vocabulary; it is ignored", id, role)

    def write(self, out: KeyValues) -> None:
        """Set the tokenizer's keys."""
        if self.merges:
            out.array("tokenizer.ggml.merges", self.merges)
        for role, id in self.ids.items():
            if role in ID_KEYS:
                out.u32(f"tokenizer.ggml.{ID_KEYS[role]}_token_id", id)
        for role, value in self.added.items():
            if role in ("bos", "eos", "sep"):
                out.boolean(f"tokenizer.ggml.add_{role}_token", value)
        self._write_template(out)
        for name in ("lowercase", "strip_accents"):
            if (value := getattr(self, name)) is not None:
                out.boolean(f"tokenizer.ggml.normalizer.{name}", value)

    def _write_template(self, out: KeyValues) -> None:
        default, names = None, list[str]()
        if isinstance(self.template, list):
            for choice in self.template:
                name, text = _plain_name(choice.get("name", "")), choice.get("template")
                if name == "default":
                    default = text
                elif name and text is not None:
                    names.append(name)
                    out.text(f"tokenizer.chat_template.{name}", text)
            if names:
                out.array("tokenizer.chat_templates", [*dict.fromkeys(names)])
        else:
            default = self.template
        if default is not None:
            out.text("tokenizer.chat_template", default)

    def _read_normalizer(self, normalizer: Mapping[str, Any]) -> None:
        kind = normalizer.get("type")
        if kind == "Lowercase":
            self.lowercase = True
        elif kind == "StripAccents":
            self.strip_accents = True
        elif kind == "BertNormalizer":
            self.lowercase = normalizer.get("lowercase", self.lowercase)
            self.strip_accents = normalizer.get("strip_accents", self.strip_accents)
        elif kind == "Sequence":
            for one in normalizer.get("normalizers", []):
                self._read_normalizer(one)

    def _read_processors(self, processor: Any) -> None:
        """Read which special tokens the post-processors add."""
        config = self.config
        self._bos, self._cls = config.get("bos_token"), config.get("cls_token")
        self._eos, self._sep = config.get("eos_token"), config.get("sep_token")
        if config and not self._bos and self._cls:
            config["bos_token"] = self._bos = self._cls
        if config and not self._eos and self._sep:
            config["eos_token"] = self._eos = self._sep
        if not isinstance(processor, dict):
            return
        for one in processor.get("processors", [processor]):
            kind = one.get("type")
            if kind == "ByteLevel":
                self.added.setdefault("bos", False)
                self.added.setdefault("eos", False)
            elif kind == "RobertaProcessing":
                self._read_roberta(one)
            elif kind == "TemplateProcessing":
                self._read_single(one.get("single", []), one.get("pair", []))

    def _read_roberta(self, processor: Mapping[str, Any]) -> None:
        self.added |= {"bos": True, "eos": True, "sep": True}
        if self.config and not self._cls:
            self.config["cls_token"] = self._cls = processor.get("cls", [self._bos])[0]
        if self.config and not self._sep:
            self.config["sep_token"] = self._sep = processor.get("sep", [self._eos])[0]

    def _read_single(self, single: Sequence[Any], pair: Sequence[Any]) -> None:
        """Read the templates of one text and of two."""
        first = last = None
        if len(single) > 1:
            first, last = _special(single[0]), _special(single[-1])
            if first:
                self._read_first(first)
            if last:
                self._read_last(last)
        if pair:
            self._read_pair(pair, first, last)

    def _read_first(self, first: str) -> None:
        if not self.config:
            self._bos = first
        elif first not in (self._bos, self._cls):
            if not self._bos:
                self.config["bos_token"] = self._bos = first
            if not self._cls:
                self.config["cls_token"] = self._cls = first
        self.added["bos"] = first in (self._bos, self._cls)

    def _read_last(self, last: str) -> None:
        if not self.config:
            self._eos = last
        elif last != self._eos:
            role = next((r for r in ("eot", "eom") if r not in self.roles), None)
            if role is not None:
                self.roles.append(role)
                self.config[f"{role}_token"] = self._eos
            self.config["eos_token"] = self._eos = last
        self.added["eos"] = last == self._eos

    def _read_pair(self, pair: Sequence[Any], first: str | None, last: str | None) -> None:
        """Read if a pair of texts has a separator: A [sep] [eos] B."""
        start = 1 if first and _special(pair[0]) == first else 0
        middle = pair[start : -1 if last and _special(pair[-1]) == last else None]
        if len(middle) < 3 or (_sequence(middle[0]), _sequence(middle[-1])) != ("A", "B"):
            return
        between = [_special(one) for one in middle[1:-1]]
        add = between[0] in (self._sep, self._eos) and between[0] is not None and not last
        if len(between) == 2 and between[1] is not None:
            add = add or between[1] in (self._sep, self._eos)
        self.added["sep"] = add
        if add and not self._sep and self.config:
            self.config["sep_token"] = self._eos

    def _read_template(self) -> None:
        other: Any = None
        if (text := self.folder.text("chat_template.jinja")) is not None:
            other = text
            more = sorted((self.folder.path / "additional_chat_templates").glob("*.jinja"))
            if more:
                other = [{"name": "default", "template": text}]
                for path in more:
                    name = f"additional_chat_templates/{path.name}"
                    other.append({"name": path.stem, "template": self.folder.text(name) or ""})
        else:
            other = self.folder.json("chat_template.json").get("chat_template")
        found = self.config.get("chat_template", other)
        if found is None or isinstance(found, str | list):
            self.template = found

    def _read_config(self, added_tokens: Any) -> None:
        listed = added_tokens if isinstance(added_tokens, list) else []
        ids = dict[str, Any]()
        for token in listed:
            ids.setdefault(token.get("content"), token.get("id"))
        for role in self.roles:
            value = self.config.get(f"add_{role}_token")
            if isinstance(value, bool):
                self.added.setdefault(role, value)
            entry = self.config.get(f"{role}_token")
            text = entry.get("content") if isinstance(entry, dict) else entry
            if isinstance(text, str):
                self.set(role, ids.get(text))

    def _read_id(self, role: str) -> None:
        whole = self.folder.whole_config
        id, text = whole.get(f"{role}_token_id"), whole.get("text_config")
        if id is None and isinstance(text, dict):
            id = text.get(f"{role}_token_id")
        self.set(role, id)


def special_texts(folder: CheckpointFolder) -> list[str]:
    """Return the texts of tokens that have a role in tokenizer_config.json."""
    config = folder.json("tokenizer_config.json")
    if "added_tokens_decoder" not in config:
        config = {**folder.json("special_tokens_map.json"), **config}
    own = (key for key in config if key.endswith("_token"))
    entries = [config.get(key) for key in (*(f"{role}_token" for role in ROLES), *own)]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        more = config.get(key)
        more = [*more.values()] if isinstance(more, dict) else more
        entries += more if isinstance(more, list) else []
    texts = (entry.get("content") if isinstance(entry, dict) else entry for entry in entries)
    return list(dict.fromkeys(text for text in texts if isinstance(text, str)))


def _special(part: Any) -> str | None:
    found = part.get("SpecialToken", {}).get("id") if isinstance(part, dict) else None
    return found if isinstance(found, str) else None


def _sequence(part: Any) -> str | None:
    found = part.get("Sequence", {}).get("id") if isinstance(part, dict) else None
    return found if isinstance(found, str) else None


def _plain_name(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in name)


def _merges(model: Any) -> list[str]:
    """Return merges as texts `a b`; a space within a part becomes its byte-level character."""
    merges = model.get("merges") if isinstance(model, dict) else None
    if not isinstance(merges, list) or not merges:
        return []
    if isinstance(merges[0], str):
        return merges
    return [" ".join(part.replace(" ", chr(ord(" ") + 256)) for part in pair) for pair in merges]


def _merges_of_text(text: str) -> Iterator[str]:
    """Yield the merges of a merges.txt."""
    for i, line in enumerate(text.splitlines()):
        parts = line.split()
        if len(parts) == 2 and not (i == 0 and line.startswith("#")):
            yield " ".join(parts)
