"""What a coarser quantization costs: logits and nodes of two models with the same weights.

python examples/compare_two_quantizations.py                       # the demo model, its q4_0
python examples/compare_two_quantizations.py -t q4_1 model.gguf    # a file, its q4_1
python examples/compare_two_quantizations.py a.gguf b.gguf         # two files
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import llama_py
from ggml_py.backend import get_tensor
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME
from ggml_ref.quants import dequantizer, quantizer
from llama_py.gguf.file import GGUFFile
from llama_py.loading.model import DEMO

F64 = NDArray[np.float64]
TEXT = "ROMEO:\nBut soft, what light through yonder window breaks?\nIt is the east."


def quantized(file: GGUFFile, name: str) -> GGUFFile:
    """The file with its quantized weights in another type."""
    type = BY_NAME[name]
    for info in list(file.tensors.values()):
        read, write = dequantizer(info.type), quantizer(type)
        if info.type.is_quantized and read and write and info.ne[0] % type.block_size == 0:
            values = read(info.data.reshape(-1, info.type.type_size))
            data = np.frombuffer(write(values.reshape(-1)), np.uint8)
            file.tensors[info.name] = replace(info, type=type, nbytes=data.size, data=data)
    return file


def run(file: GGUFFile, device: str, ids: Sequence[int]) -> tuple[F64, dict[str, F64]]:
    """Logits [n_tokens, n_vocab], and the last value of each node of a layer."""
    nodes: dict[str, F64] = {}

    def keep(node: Tensor) -> None:
        if re.search(r"-\d+$", node.name) and node.type.name == "f32" and not node.is_view():
            nodes[node.name] = get_tensor(node).astype(np.float64)

    with llama_py.Model(file, device) as model, model.context(n_ctx=len(ids), watch=keep) as ctx:
        return ctx.decode(ids, logits="all").astype(np.float64), nodes


def log_softmax(x: F64) -> F64:
    x = x - x.max(-1, keepdims=True)
    total: F64 = np.exp(x).sum(-1, keepdims=True)
    return x - np.log(total)


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", help="one or two GGUF files (default: the demo model)")
    parser.add_argument("-t", "--type", default="q4_0", help="of the second, if there is one file")
    parser.add_argument("-d", "--device", default="cpu")
    p = parser.parse_args(args)
    a = GGUFFile.open(p.files[0] if p.files else DEMO)
    b = GGUFFile.open(p.files[1]) if len(p.files) > 1 else quantized(GGUFFile.open(a.path), p.type)
    ids = llama_py.Tokenizer.from_metadata(a.metadata).tokenize(TEXT)
    (x, nodes), (y, others) = run(a, p.device, ids), run(b, p.device, ids)
    px, py = log_softmax(x), log_softmax(y)
    kl = (np.exp(px) * (px - py)).sum(-1)
    print(f"KL divergence: mean {kl.mean():.4f}, largest {kl.max():.4f} of {len(ids)} tokens")
    print(f"same most likely token: {(x.argmax(-1) == y.argmax(-1)).mean():.1%}")
    norms = {n: np.square(value).sum() for n, value in nodes.items() if value.any()}
    error = {n: np.square(nodes[n] - others[n]).sum() / norm for n, norm in norms.items()}
    for name in sorted(error, key=lambda n: -error[n])[:3]:
        print(f"normalised error of {name}: {error[name]:.4f}")


if __name__ == "__main__":
    main()
