"""The engines of dev/compare/compare_speed.py: each is found by its option; those that need
missing libraries run with stand-ins."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dev.compare import compare_speed
from dev.compare.speed import peer
from dev.compare.speed.c_header import Header, enumerator
from dev.compare.speed.peers import ik_llama_cpp, llama_cpp_python, tinygrad, transformers
from tests.support.commands import tiny_model

HEADER = """
typedef int32_t llama_pos; typedef int32_t llama_token;
/* struct not { char this; } */
struct batch {
    int32_t n_tokens; // how many; and more
    llama_token  *  token;
    const char* names;
    llama_pos ** pos;
    enum kind type;
    struct other * more;
    bool a, b_is_not_here_callback;
};
struct params {
    const struct other * overrides;
    ggml_abort_callback abort_callback;
    void *              abort_data;
    enum ggml_type type_k;
    float scale; bool flash_attn;
};
struct bad { time_t when; };
"""


def test_structs_are_read_from_a_header() -> None:
    header = Header(HEADER)
    fields = dict(header.struct("params")._fields_)  # type: ignore[arg-type]
    pointer = ctypes.c_void_p
    assert fields == {
        "overrides": pointer,
        "abort_callback": pointer,
        "abort_data": pointer,
        "type_k": ctypes.c_int,
        "scale": ctypes.c_float,
        "flash_attn": ctypes.c_bool,
    }
    with pytest.raises(ValueError, match="'bool a, b_is_not_here_callback' is not understood"):
        header.struct("batch")
    batch = Header(HEADER.replace("bool a, b_is", "bool b; bool b_is")).struct("batch")
    token = (ctypes.c_int32 * 2)(5, 6)
    made = batch(n_tokens=2, token=token)
    assert (made.n_tokens, made.token[1], bool(made.pos)) == (2, 6, False)
    with pytest.raises(ValueError, match="the type of 'time_t when' is not known"):
        header.struct("bad")
    with pytest.raises(ValueError, match="no struct none"):
        header.struct("none")
    assert enumerator("A_B = 3, A = 4 // x", "A") == 4
    assert enumerator("A_B = 3", "A") is None


def test_what_a_version_does_not_have_is_not_set() -> None:
    params = Header(HEADER).struct("params")()
    ik_llama_cpp.set_known(params, {"flash_attn": True, "type_k": 8, "of_later": 1})
    assert (params.flash_attn, params.type_k) == (True, 8)


def test_a_build_is_found_from_its_bench(tmp_path: Path) -> None:
    bench = tmp_path / "build" / "bin" / "llama-bench"
    library = tmp_path / "build" / "src" / "libllama.so"
    for path in (bench, tmp_path / "include" / "llama.h"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with pytest.raises(ValueError, match="no libllama; build it with -DBUILD_SHARED_LIBS=ON"):
        ik_llama_cpp.find(bench)
    library.parent.mkdir()
    library.touch()
    assert ik_llama_cpp.find(bench) == ik_llama_cpp.find(tmp_path) == (tmp_path, library)
    with pytest.raises(ValueError, match=r"no include/llama\.h here or above"):
        ik_llama_cpp.find(tmp_path.parent)


def test_peers_are_asked_for_by_options() -> None:
    def names(*more: str) -> list[str]:
        return [p.name for p in peer.asked(compare_speed.parse(["-m", "x", *more]))]

    both = ["llama.cpp repacked", "llama.cpp plain"]
    assert names() == ["ours", *both]
    assert sorted(
        names(
            "--peer-python",
            "",
            "--ik",
            "x",
            "--tinygrad",
            "p",
            "--transformers",
            "p",
            "--llama-cpp-python",
            "p",
        )
    ) == [
        "ik_llama.cpp plain",
        "ik_llama.cpp repacked",
        "llama-cpp-python",
        "ours",
        "tinygrad",
        "transformers bfloat16",
        "transformers float32",
    ]


class Rows(list[Any]):
    """Stands for a tensor of logits."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(0)


class Cache:
    """Stands for transformers' DynamicCache: how many tokens it has, and cuts."""

    def __init__(self) -> None:
        self.length = 0

    def crop(self, n: int) -> None:
        self.length = n


class Model:
    """Stands for a model of transformers."""

    config = SimpleNamespace(vocab_size=9)

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def eval(self) -> Model:
        return self

    def __call__(
        self, input_ids: Any, past_key_values: Cache, logits_to_keep: int, **_: Any
    ) -> Any:
        self.seen.append((past_key_values.length, len(input_ids), len(input_ids[0])))
        past_key_values.length += len(input_ids[0])
        return SimpleNamespace(past_key_values=past_key_values, logits=Rows([[1.0] * 9]))


def test_transformers_keeps_rows_and_cuts_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    model, loaded = Model(), {}

    def from_pretrained(folder: str, **how: Any) -> Model:
        loaded.update(how, folder=folder)
        return model

    torch: Any = ModuleType("torch")
    torch.set_num_threads = torch.set_grad_enabled = lambda _: None
    torch.tensor, torch.float32 = np.array, "f32"
    library: Any = ModuleType("transformers")
    library.DynamicCache = Cache
    library.AutoModelForCausalLM = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "transformers", library)
    engine = transformers.Loaded("/a/b.gguf", 1, "float32")
    assert loaded == {"folder": "/a", "gguf_file": "b.gguf", "torch_dtype": "f32"}
    assert engine.first_token() == 0
    model.seen.clear()
    engine.context(5, n_ctx=16, n_seqs=2, n_batch=4, n_ubatch=4)
    engine.pp(6)
    engine.batch(2)
    engine.at_once(3)
    assert model.seen[:2] == [(0, 2, 4), (4, 2, 1)]  # to the depth, all rows at once
    assert model.seen[2:4] == [(5, 1, 4), (9, 1, 2)]
    assert model.seen[4:6] == [(5, 2, 1), (6, 2, 1)]
    assert model.seen[6:8] == [(5, 1, 3), (8, 1, 3)]
    with pytest.raises(ValueError, match="in the type of the weights"):
        engine.context(0, n_ctx=16, type_k="q8_0")


class Transformer:
    """Stands for tinygrad's model: it says how many tokens it had to read."""

    def __init__(self) -> None:
        self.cached: list[int] = []
        self.read: list[int] = []

    @classmethod
    def from_gguf(cls, file: Any, max_context: int) -> tuple[Transformer, dict[str, Any]]:
        return cls(), {"tokenizer.ggml.tokens": ["a"] * 50}

    def get_start_pos(self, tokens: list[int]) -> int:
        pairs = zip(tokens[:-1], self.cached, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), len(self.cached))

    def generate(self, tokens: list[int]) -> Any:
        self.read.append(len(tokens) - min(self.get_start_pos(tokens), len(tokens) - 1))
        while True:
            self.cached = list(tokens)
            tokens.append(7)
            yield 7


def test_tinygrad_reads_no_prompt_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: dict[str, Any] = {name: ModuleType(name) for name in ("tinygrad", *tinygrad.MODULES)}
    modules["tinygrad"].Tensor = lambda path: path
    modules[tinygrad.MODULES[1]].Transformer = Transformer
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, tinygrad.MODULES[0], None)  # an older version
    for name in ("DEV", "CPU", "CPU_COUNT"):
        monkeypatch.setenv(name, "")
    engine: Any = tinygrad.Loaded("x", 2)
    assert engine.first_token() == 7
    engine.context(0, n_ctx=64)
    engine.pp(6)
    engine.pp(6)
    assert engine.model.read == [6, 6]
    engine.context(20, n_ctx=64)
    engine.pp(6)
    engine.pp(6)
    engine.tg(3)
    assert engine.model.read == [20, 6, 6, 1]
    engine.model.has_recurrent_block = True
    with pytest.raises(ValueError, match="cannot roll back to a depth"):
        engine.keep()
    for bad in ({"n_seqs": 2}, {"type_v": "q8_0"}):
        with pytest.raises(ValueError, match="one sequence and an F16 cache"):
            engine.context(0, n_ctx=64, **bad)
    with pytest.raises(ValueError, match="no logits of all tokens"):
        engine.at_once(2)


@pytest.mark.parity
@pytest.mark.parametrize("name", ["llama-dense", "qwen35moe-moe", "gemma2-dense"])
def test_llama_cpp_goes_back_to_the_depth(tmp_path: Path, name: str) -> None:
    pytest.importorskip("llama_cpp")
    from dev.compare.speed.peers import llama_cpp

    model = str(tiny_model(tmp_path, name))
    engine = llama_cpp.Loaded(model, 1, repack=False)
    engine.context(20, n_ctx=256, n_seqs=2, n_batch=16, n_ubatch=16)
    found = []
    for _ in range(2):
        engine.back()
        engine.step([3, 4])
        engine.decode_all([1, 2])
        logits = engine.decode([5])
        found.append([logits[i] for i in range(engine.n_vocab)])
    assert found[0] == found[1]
    assert min(engine.pp(4), engine.tg(2), engine.batch(2), engine.at_once(2)) > 0
    with pytest.raises(ValueError, match="no cache type q9_9"):
        engine.context(0, n_ctx=256, type_k="q9_9")
    python = llama_cpp_python.Loaded(model, 1)
    assert python.first_token() == engine.first_token()
    python.context(20, n_ctx=256)
    assert min(python.pp(4), python.tg(2)) > 0
