#!/usr/bin/env python3
"""Record responses of llama.cpp's server at /v1/systemone:

    python -m venv peer && peer/bin/pip install xllamacpp==2026.10.11549
    python -m dev.record.record_systemone peer/bin/python

The package xllamacpp has the server. It serves the demo model as a decision model of the type
"openjev". Requests, statuses and texts of the responses go to tests/data/systemone.json.
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

from ggml_py.types import F32
from ggml_ref.quants import dequantizer
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.write import content, encode
from llama_py.loading.model import DEMO

DATA = Path(__file__).parents[2] / "tests" / "data" / "systemone.json"
NAME = "decisions.gguf"
SECONDS = 60.0  # time limit for the start of the server
TEMPLATE = (
    "{{ state if state is string else state | tojson }}\n{{ type }} {{ id }}: "
    "{{ instructions if instructions is string else instructions | tojson }}\n"
    "{% for o in options %}{{ o | tojson }}\n{% endfor %}ANSWER:"
)
TEMPERATURES = {"noul": 2.0, "choice": 1.5, "choice.3_5": 0.5, "score.3_5": 0.25, "score.6_10": 3.0}
SERVER = """
import sys, time
import xllamacpp
p = xllamacpp.CommonParams()
p.model.path, p.port, p.n_parallel = sys.argv[1], int(sys.argv[2]), 2
p.n_ctx, p.n_batch, p.n_ubatch, p.cpuparams.n_threads = 2048, 512, 512, 1
server = xllamacpp.Server(p)
time.sleep(3600)
"""


def _one(**question: Any) -> dict[str, Any]:
    return {"state": "I was charged twice.", "questions": {"q": question}}


def _noul(**fields: Any) -> dict[str, Any]:
    return {"state": "x", "questions": {"q": {"type": "noul", "instructions": "r"}}, **fields}


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
    _noul(videos=["y"]),
]


def _as_floats(info: TensorInfo) -> TensorInfo:
    read = dequantizer(info.type)
    if read is None:
        return info
    values = np.asarray(read(info.data.reshape(-1, info.type.type_size)), np.float32)
    data = np.frombuffer(values.tobytes(), np.uint8)
    return replace(info, type=F32, nbytes=data.size, data=data)


def write_model(path: Path, kind: str = "openjev", temperatures: bool = True) -> None:
    """Write the demo model as a decision model, with weights that add no rounding."""
    file = GGUFFile.open(DEMO)
    tensors = [_as_floats(info) for info in file.tensors.values()]
    start = f"{file.architecture}.decision."
    values = {
        **file.metadata.stored_values,
        f"{start}type": encode("str", kind),
        "tokenizer.chat_template.systemone": encode("str", TEMPLATE),
        "tokenizer.chat_templates": encode("arr[str]", ["systemone"]),
    }
    for name, value in TEMPERATURES.items() if temperatures else ():
        values[f"{start}temperature.{name}"] = encode("f32", value)
    with path.open("wb") as out:
        out.writelines(content(values, tensors))


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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        write_model(path)
        server = subprocess.Popen([p.python, "-c", SERVER, str(path), str(port)])
        try:
            _wait(server, port)
            found = []
            for body in REQUESTS:
                status, text = ask(port, body)
                text = text.replace(str(path), NAME)
                found.append({"request": body, "status": status, "text": text})
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
