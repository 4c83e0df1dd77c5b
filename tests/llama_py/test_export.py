"""Export of GGUF files is the inverse of their conversion."""

from __future__ import annotations

import errno
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev.record.tiny_checkpoints import convert_plain, read_records, write_adapter, write_folder
from ggml_py.errors import ModelError
from ggml_py.types import BF16, F16, F32
from llama_py.checkpoint import folder_writer
from llama_py.checkpoint.adapter import plan_adapter
from llama_py.checkpoint.export import ExportOptions, export, plan_export
from llama_py.checkpoint.exported_adapter import export_adapter
from llama_py.checkpoint.exported_tokens import StoredTokens, tokenizer_files
from llama_py.checkpoint.output import pieces
from llama_py.checkpoint.rotary import llama3_factors, restore_llama3
from llama_py.checkpoint.safetensors import read_safetensors
from llama_py.checkpoint.sources import SourceArray, narrow
from llama_py.checkpoint.values import decay, undo_decay
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.write import content, encode
from llama_py.loading.model import DEMO
from llama_py_tools.gguf import main
from tests.llama_py.test_checkpoint import write_tiny
from tests.support.vocab_data import vocabulary

MODELS = (
    "llama", "llama31", "mistral", "mixtral", "qwen2", "qwen2moe", "qwen3", "qwen3moe",
    "qwen3next", "qwen35", "qwen35moe", "gemma", "gemma2", "gemma3", "mamba-hf",
    "falcon-mamba-hf", "mamba2",
)  # fmt: skip
ADAPTERS = [name for name, one in read_records().items() if "base" in one]
GEMMAS = (("gemma3", 256, 1), ("gemma3", 16, 0), ("gemma2", 16, 0), ("gemma2", 8, 1))
SHIFTED = ("gemma", "qwen3next", "qwen35")  # models with norms that are stored less 1


def write_gguf(folder: Path, path: Path, **options: Any) -> Path:
    path.write_bytes(convert_plain(folder, **options))
    return path


def read_all(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return type, shape and bytes of all tensors of a folder."""
    return {
        name: (t.dtype, t.shape, t.data.tobytes())
        for path in folder.glob("*.safetensors")
        for name, t in read_safetensors(path).items()
    }


def tensors_of(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    with GGUFFile.open(path) as file:
        return {n: (t.type.name, t.ne, t.data.tobytes()) for n, t in file.tensors.items()}


def keys_of(path: Path) -> dict[str, bytes]:
    """Return the keys of the architecture."""
    with GGUFFile.open(path) as file:
        stored = file.metadata.stored_values
        return {key: raw for key, raw in stored.items() if key.startswith(file.architecture)}


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_a_conversion_of_the_export_is_the_file(name: str, type: str, tmp_path: Path) -> None:
    """Tensors are equal byte for byte, keys too; the folder has the tensors of the checkpoint."""
    source = write_tiny(name, tmp_path)
    file = write_gguf(source, tmp_path / "a.gguf", outtype=type)
    export(file, tmp_path / "new")
    back = write_gguf(tmp_path / "new", tmp_path / "b.gguf", outtype=type)
    assert tensors_of(back) == tensors_of(file)
    assert keys_of(back) == keys_of(file)
    ours, theirs = read_all(tmp_path / "new"), read_all(source)
    assert ours.keys() == theirs.keys()
    for tensor in ours if type == "f32" else ():
        (dtype, shape, data), (_, expected, wanted) = ours[tensor], theirs[tensor]
        assert (dtype, shape) == ("F32", expected), tensor
        if tensor.endswith("norm.weight") and name.startswith(SHIFTED):
            found, exact = (np.frombuffer(raw, np.float32) for raw in (data, wanted))
            assert np.abs(found - exact).max() <= 2.0**-22, tensor
        else:
            assert data == wanted, tensor


@pytest.mark.parametrize("name", ["llama", "qwen3moe", "qwen35", "gemma3", "mamba2"])
def test_a_checkpoint_in_bf16_is_restored(name: str, tmp_path: Path) -> None:
    """Norms, which GGUF stores in F32, are BF16 again; config.json has the values it had."""
    one = read_records()[name]
    tensors = {
        n: ["F32" if n.endswith("A_log") else "BF16", shape]
        for n, (_, shape, *_) in one["tensors"].items()
    }
    write_folder(tmp_path / "a", one["config"], tensors, one.get("files"))
    export(write_gguf(tmp_path / "a", tmp_path / "a.gguf", outtype="auto"), tmp_path / "b")
    ours, theirs = read_all(tmp_path / "b"), read_all(tmp_path / "a")
    assert ours.keys() == theirs.keys()
    for n in ours:
        is_changed = n.endswith("A_log") or (n.endswith("norm.weight") and name.startswith(SHIFTED))
        assert ours[n][0] == "BF16" and (is_changed or ours[n] == theirs[n]), n
    configs = [json.loads((tmp_path / x / "config.json").read_text()) for x in "ab"]
    assert configs[1]["dtype"] == "bfloat16"
    for key in ("architectures", "model_type", "hidden_size", "num_hidden_layers", "vocab_size"):
        assert configs[0][key] == configs[1][key]


def test_layers_that_draft_are_restored(tmp_path: Path) -> None:
    one = read_records()["qwen3next"]
    layer = {n: s for n, s in one["tensors"].items() if n.startswith("model.layers.1.")}
    more = {n.replace("model.layers.1", "mtp.layers.0"): s for n, s in layer.items()}
    n = one["config"]["hidden_size"]
    more |= {f"mtp.{part}.weight": ["F32", [n]]
             for part in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}  # fmt: skip
    tensors = {**one["tensors"], **more, "mtp.fc.weight": ["F32", [n, 2 * n]]}
    write_folder(tmp_path / "a", one["config"], tensors)
    file = write_gguf(tmp_path / "a", tmp_path / "a.gguf", nextn=True)
    export(file, tmp_path / "b")
    assert read_all(tmp_path / "b").keys() == tensors.keys()
    back = write_gguf(tmp_path / "b", tmp_path / "b.gguf", nextn=True)
    assert tensors_of(back) == tensors_of(file) and keys_of(back) == keys_of(file)


def test_quantized_tensors(tmp_path: Path) -> None:
    """They have the type that is asked for, F16 otherwise; norms keep their values."""
    source = write_gguf(write_tiny("llama", tmp_path), tmp_path / "a.gguf", outtype="q8_0")
    for type, dtype in (("auto", "F16"), ("bf16", "BF16"), ("f32", "F32")):
        export(source, tmp_path / type, ExportOptions(type))
        found = read_all(tmp_path / type)
        assert found["model.layers.0.mlp.up_proj.weight"][0] == dtype
        config = json.loads((tmp_path / type / "config.json").read_text())
        assert config["dtype"] == {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}[dtype]
        assert found["model.norm.weight"][0] == "F32"
    with GGUFFile.open(source) as file:
        t = file.tensors["blk.0.ffn_up.weight"]
        raw = t.data.reshape(-1, 34)
        scale = raw[:, :2].copy().view(np.float16).astype(np.float32)
        exact = scale * raw[:, 2:].view(np.int8)
    data = read_all(tmp_path / "f32")["model.layers.0.mlp.up_proj.weight"][2]
    assert np.array_equal(np.frombuffer(data, np.float32), exact.ravel())


def test_shards(tmp_path: Path) -> None:
    """Shards have an index like save_pretrained's; their conversion is that of one file."""
    file = write_gguf(write_tiny("llama", tmp_path), tmp_path / "a.gguf")
    export(file, tmp_path / "whole")
    names = export(file, tmp_path / "cut", ExportOptions(max_shard_size=100_000))
    weights = [name for name in names if name.endswith(".safetensors")]
    assert len(weights) > 3 and weights[0] == f"model-00001-of-{len(weights):05d}.safetensors"
    index = json.loads((tmp_path / "cut" / "model.safetensors.index.json").read_text())
    whole = read_all(tmp_path / "whole")
    assert index["metadata"]["total_size"] == sum(len(data) for *_, data in whole.values())
    assert read_all(tmp_path / "cut") == whole and index["weight_map"].keys() == whole.keys()
    back = write_gguf(tmp_path / "cut", tmp_path / "b.gguf")
    assert tensors_of(back) == tensors_of(file)
    with pytest.raises(ModelError, match="folder has files"):
        export(file, tmp_path / "cut")
    (tmp_path / "cut" / "notes.txt").write_text("mine")
    export(file, tmp_path / "cut", force=True)  # one file replaces the shards
    assert sorted(path.name for path in (tmp_path / "cut").glob("*.safetensors*")) == [
        "model.safetensors"
    ]
    assert (tmp_path / "cut" / "notes.txt").read_text() == "mine"


def test_the_safetensors_library_reads_the_file(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    file = write_gguf(write_tiny("llama", tmp_path), tmp_path / "a.gguf", outtype="f16")
    export(file, tmp_path / "new")
    found = library.load_file(tmp_path / "new" / "model.safetensors")
    expected = read_all(tmp_path / "new")
    assert found.keys() == expected.keys()
    assert all(found[n].tobytes() == data for n, (*_, data) in expected.items())


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_no_files(
    force: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_gguf(write_tiny("llama", tmp_path), tmp_path / "a.gguf")
    if force:
        export(file, tmp_path / "new")
    before = {path: path.read_bytes() for path in (tmp_path / "new").rglob("*")}
    real, n = folder_writer.replace_file, 0

    def fill(path: Path, parts: Iterator[bytes]) -> int:
        nonlocal n
        n += 1
        if n == 3:
            next(iter(parts))
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, parts)

    monkeypatch.setattr(folder_writer, "replace_file", fill)
    with pytest.raises(OSError, match="No space"):
        export(file, tmp_path / "new", ExportOptions(max_shard_size=100_000), force)
    assert {path: path.read_bytes() for path in (tmp_path / "new").rglob("*")} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.gguf", "llama", *["new"][:force]]


def test_memory_is_twice_the_largest_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reordered rows and quantized tensors do not need more; parts are decoded one by one."""
    monkeypatch.setattr("llama_py.checkpoint.sources.PART", 1 << 14)
    n = 512
    config = {**read_records()["llama"]["config"], "hidden_size": n, "head_dim": 128,
              "num_hidden_layers": 1, "intermediate_size": n, "vocab_size": 4 * n}  # fmt: skip
    tensors = {
        name: ["F32", [4 * n if s == 128 else n if s in (64, 96) else n // 2 for s in shape]]
        for name, (_, shape) in read_records()["llama"]["tensors"].items()
        if ".layers." not in name or ".layers.0." in name
    }
    write_folder(tmp_path / "a", config, tensors)
    largest = 4 * n * n
    for type, out in (("bf16", "auto"), ("q8_0", "f16"), ("q8_0", "bf16"), ("f16", "f16")):
        file = write_gguf(tmp_path / "a", tmp_path / "a.gguf", outtype=type)
        with GGUFFile.open(file) as opened:
            made = plan_export(opened, ExportOptions(out))
            tracemalloc.start()
            for t in made.tensors:
                for piece in t.pieces():
                    del piece
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak <= 2 * 2 * largest, (type, out, peak / largest / 2)


def test_refused_models(tmp_path: Path) -> None:
    source = write_gguf(write_tiny("llama", tmp_path), tmp_path / "a.gguf")
    with GGUFFile.open(source) as file:
        stored, tensors = file.metadata.stored_values, [*file.tensors.values()]

        def refuse(error: str, drop: str = "", **changes: bytes) -> None:
            kept = [t for t in tensors if t.name != drop]
            keys = {**stored, **{k.replace("__", "."): v for k, v in changes.items()}}
            (tmp_path / "b.gguf").write_bytes(b"".join(content(keys, kept)))
            with pytest.raises(ModelError, match=error) as found:
                export(tmp_path / "b.gguf", tmp_path / "new")
            assert "\n" not in str(found.value) and not (tmp_path / "new").exists()

        refuse("cannot be exported; known: gemma", general__architecture=encode("str", "phi9"))
        refuse(
            "cannot express llama.rope.dimension_count",
            llama__rope__dimension_count=encode("u32", 8),
        )
        refuse("RoPE of the type 'longrope'", llama__rope__scaling__type=encode("str", "longrope"))
        refuse("block_count must be an integer", llama__block_count=encode("str", "4"))
        refuse("token_embd.weight is missing", drop="token_embd.weight")
    with pytest.raises(ModelError, match="outtype must be auto"):
        export(source, tmp_path / "new", ExportOptions("q8_0"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="is a file"):
        export(source, tmp_path / "file")


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("by_file", [False, True])
def test_adapters(name: str, by_file: bool, tmp_path: Path) -> None:
    """An adapter of PEFT is the same after both conversions, in each tensor."""
    base = read_records()[name]["base"]
    folder = write_tiny(base, tmp_path)
    write_adapter(tmp_path / "adapter", read_records()[base]["tensors"])
    file = write_lora(tmp_path / "adapter", folder, tmp_path / "a.gguf")
    model = write_gguf(folder, tmp_path / "model.gguf") if by_file else folder
    export_adapter(file, tmp_path / "new", model)
    assert read_all(tmp_path / "new") == read_all(tmp_path / "adapter")
    configs = [json.loads((tmp_path / x / "adapter_config.json").read_text())
               for x in ("adapter", "new")]  # fmt: skip
    assert all(configs[0][key] == configs[1][key] for key in ("r", "lora_alpha", "peft_type"))
    assert "model.layers.0.self_attn.q_proj" in configs[1]["target_modules"]
    assert tensors_of(write_lora(tmp_path / "new", folder, tmp_path / "b.gguf")) == tensors_of(file)
    other = write_gguf(write_tiny("gemma2", tmp_path), tmp_path / "other.gguf")
    with pytest.raises(ModelError, match="name the model that it was made for"):
        export_adapter(file, tmp_path / "wrong", other)


def write_lora(adapter: Path, base: Path, path: Path) -> Path:
    chosen, tensors = plan_adapter(adapter, base)
    path.write_bytes(b"".join(pieces(chosen.out.stored, tensors)))
    return path


class Keys:
    """Keys of a vocabulary, like those of a file."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    def get(self, key: str, default: Any = None) -> Any:
        value = self.metadata.get(key)
        if value is None:
            return default
        return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(
    "name",
    ["gpt-2", "gpt-neox", "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact",
     "starcoder", "command-r", "deepseek-coder", "baichuan", "falcon"],
)  # fmt: skip
def test_tokenizers(name: str) -> None:
    """tokenizer.json has the tokens that llama.cpp finds; tokenizer.model those of the file."""
    from tokenizers import Tokenizer

    found = vocabulary(name)
    files = tokenizer_files(Keys(found.metadata), nfc=False)  # type: ignore[arg-type]
    made = Tokenizer.from_str(files["tokenizer.json"].decode())
    wrong = [
        text
        for text, ids in zip(found.texts, found.ids, strict=False)
        if made.encode(text, add_special_tokens=False).ids != ids
    ]
    assert not wrong, (len(wrong), len(found.texts), wrong[:3])
    tokens = StoredTokens(Keys(found.metadata))  # type: ignore[arg-type]
    texts, vocab = tokens.texts, tokens.vocab
    for text in texts[::97]:
        if text in vocab:
            assert made.token_to_id(text) == vocab[text]


def test_the_demo_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command exports it; its conversion has the same tokens and tensors."""
    folder = tmp_path / "demo"
    assert main(["export", str(DEMO), str(folder)]) == 0
    assert "files" in capsys.readouterr().err
    assert main(["export", str(DEMO), str(folder)]) == 1
    assert "folder has files" in capsys.readouterr().err
    assert main(["export", "--list"]) == 0
    assert "qwen3next            Qwen3NextForCausalLM" in capsys.readouterr().out
    with GGUFFile.open(DEMO) as demo:
        words = ["--pre", str(demo.metadata["tokenizer.ggml.pre"]), "--outtype", "f16"]
        assert main(["convert", str(folder), str(tmp_path / "b.gguf"), *words]) == 0
        with GGUFFile.open(tmp_path / "b.gguf") as back:
            assert back.tensors.keys() == demo.tensors.keys()
            for key in ("tokens", "token_type", "merges", "bos_token_id", "eos_token_id"):
                name = f"tokenizer.ggml.{key}"
                assert np.array_equal(back.metadata.get(name), demo.metadata.get(name)), name
            assert back.metadata.get("tokenizer.chat_template") == demo.metadata.get(
                "tokenizer.chat_template"
            )


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "a.gguf"])
    assert "export needs IN and FOLDER" in capsys.readouterr().err


def test_decays() -> None:
    """Each decay that an F32 or BF16 logarithm has is restored exactly."""
    rng = np.random.default_rng(0)
    for kind in (np.float32, np.float16):
        log = rng.uniform(-8, 4, 100_000).astype(kind).astype(np.float32)
        a = decay(log).astype(np.float32)
        assert np.array_equal(decay(undo_decay(a)).astype(np.float32), a)


@pytest.mark.parametrize(("factor", "context"), [(8.0, 8192), (32.0, 8192), (4.0, 64)])
def test_factors_of_llama3(factor: float, context: int) -> None:
    rope = {"rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": context}
    found = restore_llama3(llama3_factors(rope, 128), 500000.0)
    assert found == {**rope, "rope_type": "llama3"}
    with pytest.raises(ModelError, match="is not of the type llama3"):
        restore_llama3(np.arange(1, 65, dtype=np.float32), 500000.0)


def test_source_arrays(tmp_path: Path) -> None:
    """Rows and shapes of a source are parts of it; narrowed values are equal."""
    file = write_gguf(write_tiny("mixtral", tmp_path), tmp_path / "a.gguf", outtype="q8_0")
    with GGUFFile.open(file) as opened:
        t = opened.tensors["blk.0.ffn_up_exps.weight"]
        for type in (F32, F16, BF16):
            whole = SourceArray.from_tensor(t, type)
            assert whole.shape == t.ne[2::-1]
            part = whole.rows(1, 3).reshape(-1, whole.shape[-1])
            assert isinstance(part, SourceArray)
            expected = whole.read()[1:3].reshape(part.shape)
            assert np.array_equal(part.read(), expected)
            joined = np.concatenate([p.reshape(-1) for p in part.read_parts()])
            assert np.array_equal(joined, expected.reshape(-1))
            assert np.array_equal(whole.rows(2, 5, 1).read(), whole.read()[:, 2:5])
        norm = SourceArray.from_tensor(opened.tensors["output_norm.weight"], F32)
        assert narrow(norm, BF16) is norm
        small = norm.map(lambda x: np.round(x * 4) / 4)
        assert narrow(small, BF16).stored == "BF16" and narrow(small, F16) is small
        back = narrow(small, BF16).read().astype(np.uint32) << 16
        assert np.array_equal(back.view(np.float32), small.read())


@pytest.mark.parametrize(("name", "scale", "n"), GEMMAS)
def test_scales_of_queries(
    name: str, scale: int, n: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """GGUF has no key for Gemma's scale: a warning if config.json has another than llama.cpp, and
    one for an export of a model that Google did not release."""
    folder = write_tiny(name, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "query_pre_attn_scalar": scale}))
    path = write_gguf(folder, tmp_path / "a.gguf")
    warned = [r.getMessage() for r in caplog.records if "query_pre_attn_scalar" in r.getMessage()]
    message = f"query_pre_attn_scalar {scale} is not stored in GGUF, so queries are scaled for 16"
    assert warned == [f"{message} instead"] * n
    caplog.clear()
    export(path, tmp_path / "out")
    assert "GGUF does not store query_pre_attn_scalar" in caplog.text
    stored = json.loads((tmp_path / "out" / "config.json").read_text())
    assert stored["query_pre_attn_scalar"] == 16
