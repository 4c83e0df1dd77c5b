#!/usr/bin/env python3
"""Compare logits and greedy text with OpenVINO and ONNX Runtime on the same weights.

Writes docs/peers.md. Needs one environment with all libraries, and the converter of llama.cpp's
source tree:

    pip install -e . torch==2.13.0 transformers==5.23.0 accelerate gguf onnx onnxscript
    pip install openvino-genai==2026.4.1.0 onnxruntime==1.32.0
    python -m dev.compare.judge_peers LLAMA_CPP --real FILE.gguf --encoder FOLDER
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import llama_py
from dev.compare import transformers_side as side
from dev.compare.compare_real import PROMPTS
from dev.compare.judge_transformers import cell
from dev.record.golden.fixture import nmse
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.write import content, encode
from llama_py.support.whole_file import replace_file

ROOT = Path(__file__).resolve().parents[2]
PAGE, HEADING = ROOT / "docs" / "peers.md", "## Conformance\n"
NAMES = ("llama", "qwen2", "qwen3", "gemma2")
UNREAD = "gemma2"  # architecture that OpenVINO's GGUF reader lacks
TYPES = ("F32", "F16", "Q8_0", "Q4_0", "Q4_1", "Q4_K_S")
BITS = {"Q8_0": 8, "Q4_0": 4}  # types that ONNX Runtime's MatMulNBits supports
SIZE = {"hidden_size": 256, "intermediate_size": 512}  # multiples of the block size, 256 values
EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}
N_PREDICT, N_CTX = 32, 512
Floats = NDArray[np.float32]

FLOATS = "| model | transformers | ONNX Runtime | OpenVINO | OpenVINO, default |"
WEIGHTS = "| model | weights | llama-py | OpenVINO | OpenVINO, default | ONNX Runtime | level 4 |"
TEXTS = "| weights | ONNX Runtime | OpenVINO |"


def main() -> int:
    """Return 0 if the F32 logits of all decoders agree."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("llama_cpp", help="folder of llama.cpp's source")
    p.add_argument("--real", type=Path, metavar="GGUF", help="Llama model with real weights")
    p.add_argument("--encoder", type=Path, metavar="DIR", help="BERT encoder, safetensors")
    args = p.parse_args()
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    sys.path[:0] = [args.llama_cpp, f"{args.llama_cpp}/gguf-py"]
    side.SIZES.update(SIZE)
    side.MODELS["qwen3"][1]["head_dim"] = 128  # transformers does not read it from a GGUF file
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        models = [tiny(name, out) for name in NAMES]
        texts: list[str] = []
        if args.real:
            models.append(out / f"{args.real.stem.split('.')[0]}.gguf")
            quantize(args.real, models[-1], "F32")
        floats = [float_row(path, tokens(path)) for path in models]
        right = not any("**" in row.rsplit("|", 2)[0] for row in floats)
        if args.encoder:
            floats.append(encoder_row(args.encoder, args.llama_cpp, out))
        weights = [row for path in models if path.stem != UNREAD for row in typed_rows(path)]
        if args.real:
            texts = [text_row(models[-1], kind) for kind in TYPES]
    parts = ((FLOATS, floats), (WEIGHTS, weights), (TEXTS, texts))
    made = "\n".join(table(head, found) for head, found in parts if found)
    before = PAGE.read_text(encoding="utf-8").split(HEADING)[0]
    PAGE.write_text(f"{before}{HEADING}\n{made}", encoding="utf-8")
    print(made)
    return int(not right)


def table(head: str, rows: Sequence[str]) -> str:
    return "\n".join([head, "|---" * head[1:].count("|") + "|", *rows, ""])


def line(*cells: str) -> str:
    print(*cells, flush=True)
    return f"| {' | '.join(cells)} |"


def tiny(name: str, out: Path) -> Path:
    """Write a random model with a vocabulary, which OpenVINO GenAI requires."""
    bare, path = out / f"{name}-bare.gguf", out / f"{name}.gguf"
    side.convert(side.make(name, out), bare)
    names = [chr(33 + i) for i in range(94)] + [f"<{i}>" for i in range(94, side.N_VOCAB - 1)]
    keys = {
        "model": encode("str", "gpt2"), "pre": encode("str", "llama-bpe"),
        "tokens": encode("arr[str]", [*names, "ab"]), "merges": encode("arr[str]", ["a b"]),
        "token_type": encode("arr[i32]", [1] * 94 + [3] * (side.N_VOCAB - 95) + [1]),
        "bos_token_id": encode("u32", 1), "eos_token_id": encode("u32", 2),
    }  # fmt: skip
    with GGUFFile.open(bare) as file:
        more = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
        replace_file(path, content(file.metadata.stored_values | more, file.tensors.values()))
    return path


def quantize(path: Path, to: Path, kind: str) -> Path:
    """Quantize a file with the command llama-py-gguf quantize."""
    command = Path(sys.executable).with_name("llama-py-gguf")
    how = ["--pure", "--allow-requantize", "--force"]
    subprocess.run([command, "quantize", *how, path, to, kind], check=True, capture_output=True)
    return to


def tokens(path: Path) -> list[int]:
    """Return the prompt's tokens: random for a random model, text for a real model."""
    stored = path.with_suffix(".npz")
    if stored.exists():
        return np.load(stored)["ids"].tolist()
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    return [*llama_py.load(path, "null").tokenizer.tokenize(text)]


def ours(path: Path, ids: Sequence[int], device: str) -> Floats:
    """Return llama-py's logits, computed with an F32 KV cache."""
    ctx = llama_py.load(path, device).context(
        N_CTX, n_ubatch=N_CTX, type_k="f32", type_v="f32", flash_attn="off"
    )
    return ctx.decode([*ids], logits="all")


def read(path: Path, auto: str = "AutoModelForCausalLM") -> Any:
    """Load a GGUF file or a model folder as a float PyTorch module."""
    torch, hub = import_module("torch"), import_module("transformers")
    how = {"attn_implementation": "eager", "dtype": torch.float32}
    if not path.is_dir():
        path, how["gguf_file"] = path.parent, path.name
    return getattr(hub, auto).from_pretrained(path, **how).eval()


def export(module: Any, path: Path) -> Path:
    """Export a module as an ONNX model with token ids as the single input."""
    torch = import_module("torch")

    def forward(ids: Any) -> Any:
        return module(input_ids=ids, **more)[0]

    more = {"use_cache": False} if module.config.model_type != "bert" else {}
    wrapped = torch.nn.Module()
    wrapped.inner, wrapped.forward = module, forward
    shape = {"ids": {1: torch.export.Dim("n", min=2, max=N_CTX)}}
    torch.onnx.export(
        wrapped,
        (torch.ones(1, 8, dtype=torch.long),),
        path,
        dynamo=True,
        external_data=True,
        input_names=["ids"],
        output_names=["out"],
        dynamic_shapes=shape,
        verbose=False,
    )
    return path


def session(path: Path) -> Any:
    ort = import_module("onnxruntime")
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def run(path: Path, ids: Sequence[int]) -> Floats:
    """Return the output of a model in ONNX Runtime."""
    return np.asarray(session(path).run(None, {"ids": np.array([ids], np.int64)})[0][0])


def infer(path: Path, ids: Sequence[int], how: dict[str, str]) -> Floats:
    """Return the output of a model in OpenVINO."""
    model = import_module("openvino").Core().compile_model(path, "CPU", how)
    n = len(ids)
    known = {
        "input_ids": np.array([ids], np.int64),
        "attention_mask": np.ones((1, n), np.int64),
        "position_ids": np.arange(n)[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    feed = known if len(model.inputs) > 1 else {"ids": known["input_ids"]}
    return np.array(model.create_infer_request().infer(feed)[0][0])


def float_row(path: Path, ids: Sequence[int]) -> str:
    """Return a table row that compares the logits of an F32 model."""
    folder = path.with_suffix("")
    module, found = read(folder if folder.is_dir() else path), ours(path, ids, "cpu")
    peers = outputs(module, path.with_suffix(".onnx"), ids)
    return line(path.stem, *(cell(nmse(logits, found)) for logits in peers))


def outputs(module: Any, onnx: Path, ids: Sequence[int]) -> Iterator[Floats]:
    """Yield a module's output from each library, in the order of the columns."""
    torch = import_module("torch")
    with torch.no_grad():
        yield module(input_ids=torch.tensor([ids]))[0][0].numpy()
    export(module, onnx)
    yield run(onnx, ids)
    yield infer(onnx, ids, EXACT)
    yield infer(onnx, ids, {})


def encoder_row(folder: Path, llama_cpp: str, out: Path) -> str:
    """Return a table row that compares an encoder's normalized mean embedding."""
    path, text = out / "encoder.gguf", (ROOT / "LICENSE").read_text(encoding="utf-8")[:600]
    script = [sys.executable, f"{llama_cpp}/convert_hf_to_gguf.py", folder, "--outtype", "f32"]
    subprocess.run([*map(str, script), "--outfile", path], check=True, capture_output=True)
    model, module = llama_py.load(path, "cpu"), read(folder, "AutoModel")
    found = model.embed(text, pooling="mean").reshape(-1)
    peers = outputs(module, out / "encoder.onnx", [*model.tokenizer.tokenize(text)])
    means = (states.mean(0) for states in peers)
    return line(folder.name, *(cell(nmse(m / np.linalg.norm(m), found)) for m in means))


def typed_rows(path: Path) -> Iterator[str]:
    """Yield a table row per weight type, compared with the float64 result of the same file."""
    ids = tokens(path)
    for kind in TYPES:
        file = quantize(path, folder_of(path, kind) / "model.gguf", kind)
        exact = ours(file, ids, "ref")
        row = [f"{nmse(exact, ours(file, ids, 'cpu')):.1e}"]
        try:
            saved = pipeline(file, save=True).parent / "openvino_model.xml"
            row += [f"{nmse(exact, infer(saved, ids, how)):.1e}" for how in (EXACT, {})]
        except RuntimeError as e:
            row += [str(e).strip().splitlines()[-1], ""]
        if kind in BITS:
            onnx = export(read(file), file.with_suffix(".onnx"))
            packed = (pack(onnx, BITS[kind], level) for level in (1, 4))
            row += [f"{nmse(exact, run(path, ids)):.1e}" for path in packed]
        yield line(path.stem, kind, *row, *[""] * (5 - len(row)))


def folder_of(path: Path, kind: str) -> Path:
    folder = path.parent / f"{path.stem}-{kind}"
    folder.mkdir(exist_ok=True)
    return folder


def pack(path: Path, bits: int, level: int) -> Path:
    """Replace a model's matrices with MatMulNBits nodes, quantized in blocks of 32."""
    packer = import_module("onnxruntime.quantization.matmul_nbits_quantizer")
    made = packer.MatMulNBitsQuantizer(
        import_module("onnx").load(path),
        bits=bits,
        block_size=32,
        is_symmetric=True,
        accuracy_level=level,
    )
    made.process()
    to = path.with_name(f"packed-{level}.onnx")
    made.model.save_model_to_file(str(to), use_external_data_format=True)
    return to


def pipeline(path: Path, save: bool = False) -> Any:
    """Open a GGUF file in OpenVINO GenAI; with `save`, write the model and return its path."""
    genai = import_module("openvino_genai")
    made = genai.LLMPipeline(str(path), "CPU", **EXACT, enable_save_ov_model=save)
    return path if save else made


def text_row(path: Path, kind: str) -> str:
    """Return a table row that compares the greedy text of a real model."""
    file = folder_of(path, kind) / "model.gguf"
    model = llama_py.load(file, "cpu")
    texts = [model.generate(prompt, max_tokens=N_PREDICT, temp=0) for prompt in PROMPTS]
    row = [kind, ""]
    if kind == "F32":
        peer = session(path.with_suffix(".onnx"))
        row[1] = share(texts, [continued(peer, model, prompt) for prompt in PROMPTS])
    try:
        pipe, config = pipeline(file), import_module("openvino_genai").GenerationConfig()
        config.max_new_tokens, config.apply_chat_template = N_PREDICT, False
        row.append(share(texts, [str(pipe.generate(prompt, config)) for prompt in PROMPTS]))
    except RuntimeError as e:
        row.append(str(e).strip().splitlines()[-1])
    return line(*row)


def continued(peer: Any, model: Any, prompt: str) -> str:
    """Continue a prompt greedily in ONNX Runtime, without a KV cache."""
    ids = [*model.tokenizer.tokenize(prompt)]
    n = len(ids)
    while len(ids) < n + N_PREDICT:
        logits = peer.run(None, {"ids": np.array([ids], np.int64)})[0]
        ids.append(int(logits[0, -1].argmax()))
    return str(model.tokenizer.detokenize(ids[n:]))


def share(texts: Sequence[str], theirs: Sequence[str]) -> str:
    return f"{sum(map(str.__eq__, texts, theirs))} of {len(texts)}"


if __name__ == "__main__":
    sys.exit(main())
