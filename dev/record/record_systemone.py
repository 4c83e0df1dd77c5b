#!/usr/bin/env python3
"""Record responses of llama.cpp's server at /v1/systemone:

    python -m venv peer && peer/bin/pip install xllamacpp==2026.10.11549
    python -m dev.record.record_systemone peer/bin/python

The package xllamacpp has the server. It serves the demo model as a decision model of each type.
Types, requests, statuses and texts of the responses go to tests/data/systemone.json.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dev import tiny_models as tiny
from ggml_py.types import F32
from ggml_ref.quants import dequantizer
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.write import content, encode
from llama_py.loading.model import DEMO
from llama_py.text.decision_pointer import END_OF_OPTION
from llama_py.text.decision_types import TYPES, DecisionType

DATA = Path(__file__).parents[2] / "tests" / "data" / "systemone.json"
NAME = "decisions.gguf"
USER_DEFINED = 4  # type of a token
SECONDS = 60.0  # time limit for the start of the server
DESCRIBED = "{% if o.description is not none %}: {{ o.description | tojson }}{% endif %}"
TEMPLATE = (
    "{% if questions is defined %}{% for q in questions %}{{ q.id }} {{ q.type }} "
    "{{ q.instructions | tojson }} {{ q.options[0] | tojson }}\n{% endfor %}{% endif %}"
    "{{ state if state is string else state | tojson }}\n{{ type }} {{ id }}: "
    "{{ instructions if instructions is string else instructions | tojson }}\n"
    "{% for o in options %}[{{ o.label }}] {{ o.key }}" + DESCRIBED + "\n{% endfor %}ANSWER:"
)
JOINT_TEMPLATE = (
    "{{ state | tojson }}{% for q in questions %}\n{{ q.id }} {{ q.type }}:{{ sep }}"
    "{{ mark_question }}{{ q.instructions | tojson }}{{ sep }}:{% for o in q.options %}{{ sep }}"
    "{{ mark_option }}{{ o.key }}" + DESCRIBED + "{{ sep }}\n-{% endfor %}{{ sep }}{% endfor %}END"
)
POINTER_TEMPLATE = (
    "{{ state }}\n{{ type }}: {{ instructions }}\n{% for o in options %}{{ o.key }}"
    "{% if o.description is not none %}: {{ o.description }}{% endif %}<|box_end|>\n{% endfor %}END"
)
HEAD_TEMPLATE = (
    "{{ type }} {{ instructions | tojson }} {{ id }}<sep>{% for o in options %}<mask>{{ o.key }}"
    + DESCRIBED
    + "{% endfor %}<sep>"
    "{{ state if state is string else state | tojson }}<sep>"
)
PIECE_TEMPLATE = (
    "{{ images | join('') }}{{ sep }}{{ type }} {{ id }}{{ ' sound' if audio else '' }}:{{ sep }}"
    "{{ mark_question }}{{ instructions | tojson }}{{ sep }}{% for o in options %}<mask>{{ sep }}"
    "{{ mark_option }}{{ o.key }}" + DESCRIBED + "{{ sep }}{% endfor %}STATE:{{ sep }}"
    "{{ mark_state }}{{ state | tojson }}{{ sep }}END"
)
# Of types that read rows: architecture, its tiny model, and the template.
ROWS = {
    "joint": ("clef", "routing", JOINT_TEMPLATE),
    "pointer": ("qwen35", "dense", POINTER_TEMPLATE),
    "head": ("modern-bert", "decision", HEAD_TEMPLATE),
    "pieces": ("lfm2", "decision", PIECE_TEMPLATE),
}
MAX_HEAD = 60  # tokens of a question and its options, of the type "laya"
WORD, PLACE = "yes", -5  # a token that the demo model has not, instead of one near the end
TEMPERATURES = {
    "noul": 2.0,
    "choice": 1.5,
    "choice.2": 0.75,
    "choice.3_5": 0.5,
    "choice.11": 4.0,
    "score.3_5": 0.25,
    "score.6_10": 3.0,
    "choice.small": 0.6,
    "choice.mid": 2.5,
    "choice.large": 5.0,
    "score.small": 0.35,
}
SERVER = """
import sys, time
import xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_parallel = sys.argv[1], int(sys.argv[2]), 2
p.n_ctx, p.n_batch, p.n_ubatch, p.cpuparams.n_threads = 2048, 512, 512, 1
p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
p.embedding = sys.argv[3] == "rows"
server = xllamacpp.Server(p)
time.sleep(3600)
"""


def _one(**question: Any) -> dict[str, Any]:
    return {"state": "I was charged twice.", "questions": {"q": question}}


def _noul(**fields: Any) -> dict[str, Any]:
    return {"state": "x", "questions": {"q": {"type": "noul", "instructions": "r"}}, **fields}


PNG = (  # one white pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTA1NAAAAABJRU5ErkJggg=="
)
TEXT: Any = {"type": "text", "text": "a"}
IMAGE: Any = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
TEAMS = {"z": "returns", "a": None, "m": "bills"}
REQUESTS: list[Any] = [
    {
        "model": "jev",
        "state": {"a": 1, "b": [True, None, "é"]},
        "questions": {
            "route": {"type": "choice", "instructions": "Which team?", "criteria": TEAMS},
            "u": {"type": "noul", "instructions": "Refund?"},
            "v": {"type": "noul", "instructions": "Refund?", "criteria": {"true": "yes it is"}},
            "s": {"type": "score", "instructions": "How angry?", "criteria": ["calm", None, 3]},
        },
    },
    _noul(state=3.5),
    _noul(state=""),
    _noul(state="é 😀", stream=True, assets={"a": 1}, images=[], videos=[]),
    _one(type="choice", instructions="r", criteria={"only": None}),
    _one(type="choice", instructions="r", criteria={"": 1, "b\n": {"x": 1}}),
    _one(type="choice", instructions="r", criteria={f"c{i}": None for i in range(27)}),
    _one(type="choice", instructions="r", criteria={f"c{i}": None for i in range(53)}),
    _one(type="score", instructions="", criteria=[*"abcdefghij"]),
    _one(type="score", instructions=["a"], criteria=["a", "b"]),
    *(
        _one(type="score", instructions=word, criteria=[*"abcdefg"[:n]])
        for n, word in enumerate(["love", "hate", "crown", "sword"], 4)
    ),
    {},
    {"state": None, "questions": {}},
    {"state": "x"},
    {"state": "x", "questions": []},
    {"state": "x", "questions": {"q": "r"}},
    _one(instructions="r"),
    _one(type=1, instructions="r"),
    _one(type="noul", criteria=[]),
    _one(type="noul", instructions=None),
    _one(type="noul", instructions="r", criteria=[]),
    _one(type="noul", instructions="r", criteria=None),
    _one(type="choice", instructions="r"),
    _one(type="choice", instructions="r", criteria=["a", "b"]),
    _one(type="choice", instructions="r", criteria={}),
    _one(type="score", instructions="r", criteria={"a": "b", "c": "d"}),
    _one(type="score", instructions="r", criteria=["a"]),
    _one(type="score", instructions="r", criteria=[*"abcdefghijk"]),
    _noul(images="y"),
    _noul(files={}),
    _noul(images=["http://localhost/a.png"]),
    _noul(files=[1]),
    _noul(images=[f"data:image/png;base64,{PNG}"]),
    _noul(images=[f"data:image/png;base64,{PNG}"] * 9),
    _noul(images=["data:image/png,AAAA"]),
    _noul(state=[{"role": "user", "content": [TEXT, IMAGE]}]),
    _noul(state={"messages": [{"role": "user", "content": [TEXT]}, "b", {"content": "c"}], "x": 1}),
    _noul(videos=["y"]),
    {"questions": {"q": {"type": "noul", "instructions": "r"}}},
    {"state": None, "questions": {"q": {"type": "noul", "instructions": "r"}}},
]
# Requests that other types answer differently.
OTHERS: list[Any] = [
    {**REQUESTS[0], "state": "I was charged twice."},
    {
        "state": {"b": {"d": 1, "c": [{"f": 2, "e": None}]}, "a": "é"},
        "questions": {
            "q": {
                "type": "choice",
                "instructions": {"z": 1, "y": ["x"]},
                "criteria": {"second": {"b": 1, "a": 2}, "first": "x"},
            },
            "n": {"type": "noul", "instructions": "r", "criteria": {"false": "not so"}},
        },
    },
    _noul(state=None),
    _noul(state=3.5),
    _one(type="choice", instructions="r", criteria={"only": None}),
    *(
        _one(type="choice", instructions="r", criteria={f"c{i}": None for i in range(n)})
        for n in (9, 27, 256)
    ),
    _one(type="choice", instructions="r", criteria={"b": 1, "a": 2, "Z": 3}),
    _one(type="score", instructions="", criteria=[*"abcdefghij"]),
    # texts that are longer than their part of a prompt, and special texts
    _one(
        type="choice", instructions="why " * 80, criteria={"a": "long " * 60, "b": "x", "c": None}
    ),
    _one(type="choice", instructions="r", criteria={f"c{i}": "some words" for i in range(20)}),
    {
        "state": {"<|a|>": "<mask> <sep> <<d1omni:sep>> <<clef:sep>> <|im_end|>"},
        "questions": {
            "q": {
                "type": "noul",
                "instructions": "<mask><|b|>",
                "criteria": {"yes": "so", "no": "<|c|>", "false": None},
            }
        },
    },
]


def _as_floats(info: TensorInfo) -> TensorInfo:
    read = dequantizer(info.type)
    if read is None:
        return info
    values = np.asarray(read(info.data.reshape(-1, info.type.type_size)), np.float32)
    data = np.frombuffer(values.tobytes(), np.uint8)
    return replace(info, type=F32, nbytes=data.size, data=data)


def write_model(path: Path, kind: str = "openjev", temperatures: bool = True) -> None:
    """Write a decision model of any type."""
    if TYPES.get(kind, DecisionType()).rows:
        write_row_model(path, kind)
    else:
        write_demo_model(path, kind, temperatures)


def write_demo_model(path: Path, kind: str, temperatures: bool) -> None:
    """Write the demo model as a decision model, with weights that add no rounding, and the token
    WORD."""
    file = GGUFFile.open(DEMO)
    tensors = [_as_floats(info) for info in file.tensors.values()]
    values = {
        **file.metadata.stored_values,
        **_vocabulary(file, WORD),
        **_decisions(file.architecture, kind, TEMPLATE, TEMPERATURES if temperatures else {}),
    }
    with path.open("wb") as out:
        out.writelines(content(values, tensors))


def write_row_model(path: Path, kind: str) -> None:
    """Write a tiny model of a type that reads rows of embeddings, with the demo model's vocabulary
    and the token END_OF_OPTION."""
    arch, variant, template = ROWS[TYPES[kind].rows]
    made, demo = tiny.find(arch, variant), GGUFFile.open(DEMO)
    vocabulary = _vocabulary(demo, END_OF_OPTION, "<mask>", "<sep>")
    places = {"mask": PLACE - 1, "seperator": PLACE - 2}
    n_vocab = len(demo.metadata["tokenizer.ggml.tokens"])
    keys = {"vocab_size": n_vocab, "context_length": 1024}
    more: Any = {"keys": {**made.keys, **keys}}
    if TYPES[kind].rows == "pointer":
        more["keys"]["embedding_length_out"] = 32
        more["keep"] = [*made.keep, "cls.output.*"]
    tiny.write_file(path, arch, replace(made, **more))
    with GGUFFile.open(path) as file:
        mild = {name: 8 * value for name, value in TEMPERATURES.items()}  # roundings matter less
        values = {
            **file.metadata.stored_values,
            **vocabulary,
            **_decisions(arch, kind, template, mild),
            f"{arch}.decision.max_head_tokens": encode("u32", MAX_HEAD),
            **{
                f"tokenizer.ggml.{name}_token_id": encode("u32", n_vocab + place)
                for name, place in places.items()
            },
        }
        data = b"".join(content(values, list(file.tensors.values())))
    path.write_bytes(data)


def _vocabulary(file: GGUFFile, *added: str) -> dict[str, bytes]:
    """Return the keys of a vocabulary, with words in place of tokens near the end."""
    start, stored = "tokenizer.ggml.", file.metadata.stored_values
    words, types, merges = (
        [*file.metadata[start + name]] for name in ("tokens", "token_type", "merges")
    )
    for place, word in enumerate(added):
        former, words[PLACE - place], types[PLACE - place] = (
            words[PLACE - place],
            word,
            USER_DEFINED,
        )
        merges = [one for one in merges if one.replace(" ", "") != former]
    return {
        **{key: value for key, value in stored.items() if key.startswith(start)},
        f"{start}tokens": encode("arr[str]", words),
        f"{start}token_type": encode("arr[i32]", [*map(int, types)]),
        f"{start}merges": encode("arr[str]", merges),
    }


def _decisions(arch: str, kind: str, template: str, temperatures: bool = True) -> dict[str, bytes]:
    """Return the keys of a decision model."""
    found = {
        f"{arch}.decision.type": encode("str", kind),
        "tokenizer.chat_template.systemone": encode("str", template),
        "tokenizer.chat_templates": encode("arr[str]", ["systemone"]),
    }
    for name, value in temperatures.items():
        found[f"{arch}.decision.temperature.{name}"] = encode("f32", value)
    return found


def ask(port: int, body: Any) -> tuple[int, str]:
    """Return status and text of a response."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/systemone",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python", help="a Python with xllamacpp")
    p = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        for kind in TYPES:
            write_model(path, kind)
            how = "rows" if TYPES[kind].rows else "labels"
            server = subprocess.Popen([p.python, "-c", SERVER, str(path), str(port), how])
            try:
                _wait(server, port)
                for body in REQUESTS if kind == "openjev" else OTHERS:
                    status, text = ask(port, body)
                    text = text.replace(str(path), NAME)
                    found.append({"type": kind, "request": body, "status": status, "text": text})
            finally:
                server.kill()
                server.wait()
    DATA.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _wait(server: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and server.poll() is None:
        with suppress(OSError):
            if ask(port, {})[0] == 400:
                return
        time.sleep(0.1)
    sys.exit("the server did not start")


if __name__ == "__main__":
    main()
