"""Write a GGUF file of realistic shape with random weights, for benchmarks.

    python -m dev.compare.make_bench_model --arch ARCH --type Q4_K_M --out FILE.gguf

The same arguments write the same bytes. The model generates noise; its speed, memory and mix of
types equal a real model's. --vocab copies the tokenizer of another GGUF file.

--hole writes a sparse file: GGUF header and file size equal the model's, but weights take no space.

--nextn 0.8 adds a NextN layer; about 80% of its draft tokens are accepted (bench_model/nextn.py).

--routing makes routers prefer some experts, and choose the same experts for consecutive tokens.
It needs greedy sampling, or a text that repeats the model's cycle of tokens (bench_model/nextn.py).
"""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
import zlib
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType
from numpy.typing import NDArray

from dev.compare import bench_model
from dev.compare.bench_model import vocabulary
from dev.compare.bench_model.blocks import RandomMatrix
from dev.compare.bench_model.mix import BASE, Mix
from dev.compare.bench_model.nextn import Cycle, RouterBias
from dev.compare.bench_model.spec import Architecture, TensorSpec, Value
from dev.compare.bench_model.vocabulary import Vocabulary

ALIGNMENT = gguf.GGUF_DEFAULT_ALIGNMENT
N_VOCAB = 248320  # vocabulary size of models with the synthetic vocabulary's pre-tokenizer


def known() -> dict[str, Mapping[str, Architecture]]:
    """Return the sizes of all architectures in bench_model, by name."""
    names = (f"{bench_model.__name__}.{m.name}" for m in pkgutil.iter_modules(bench_model.__path__))
    found = (vars(import_module(name)).get("SIZES", {}) for name in names)
    return {next(iter(sizes.values())).name: sizes for sizes in found if sizes}


SIZES = known()


def write(
    path: Path,
    arch: Architecture,
    kind: str,
    vocab: Vocabulary,
    seed: int,
    cycle: Cycle | None = None,
    hole: bool = False,
) -> None:
    """Write a GGUF file of `arch` with matrices in the mix `kind`.

    cycle  cycle of tokens that the model generates
    hole   True to write a sparse file without weights
    """
    tensors = list(arch.tensors(len(vocab.tokens)))
    mix = Mix(kind, tensors, arch.n_layer, arch.n_gqa)
    writer = gguf.GGUFWriter(str(path), arch.name)
    writer.add_name(f"random {arch.name}")
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    prefixed = {f"{arch.name}.{key}": value for key, value in arch.keys().items()}
    for key, value in {**prefixed, **vocab.keys()}.items():
        add_key(writer, key, value)
    contents = []
    for t in tensors:
        dtype = mix.type_of(t)
        data = content(t, dtype, seed)
        contents.append(cycle.content(t, dtype, data) if cycle else data)
        shape = t.ne[::-1]
        writer.add_tensor_info(t.name, shape, np.dtype("f4"), contents[-1].nbytes, dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for data in () if hole else contents:
        writer.write_tensor_data(data)
    writer.close()
    if hole:
        aligned = [-(-n // ALIGNMENT) * ALIGNMENT for n in (path.stat().st_size, *sizes(contents))]
        os.truncate(path, sum(aligned))


def sizes(contents: Iterable[NDArray[np.float32] | RandomMatrix]) -> list[int]:
    return [data.nbytes for data in contents]


def content(
    t: TensorSpec, dtype: GGMLQuantizationType, seed: int
) -> NDArray[np.float32] | RandomMatrix:
    """Return reproducible data of one tensor; matrices are computed when they are written."""
    rng = np.random.default_rng([seed, zlib.crc32(t.name.encode())])
    if t.values:
        return t.values(rng, t.n_elements).astype(np.float32)
    return RandomMatrix(dtype, t.n_elements, t.std, rng)


def add_key(writer: gguf.GGUFWriter, key: str, value: Value) -> None:
    """Add a metadata value; plain integers are unsigned in model files."""
    kind = GGUFValueType.get_type(value)
    writer.add_key_value(key, value, GGUFValueType.UINT32 if kind is GGUFValueType.INT32 else kind)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = "; ".join(f"{arch}: {', '.join(named)}" for arch, named in SIZES.items())
    parser.add_argument("--arch", required=True, choices=SIZES)
    parser.add_argument("--size", help=f"default: the first of {sizes}")
    parser.add_argument("--type", required=True, choices=BASE)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--vocab", type=Path, help="GGUF file to copy the tokenizer from")
    parser.add_argument("--n-vocab", type=int, default=N_VOCAB, help="default: %(default)s")
    parser.add_argument(
        "--nextn", type=float, metavar="RATE", help="add a NextN layer with this acceptance rate"
    )
    parser.add_argument("--routing", action="store_true", help="let routers prefer some experts")
    parser.add_argument("--hole", action="store_true", help="write a file without weights")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    args.size = args.size or next(iter(SIZES[args.arch]))
    if args.size not in SIZES[args.arch]:
        parser.error(f"unknown size {args.size}; known: {sizes}")
    return args


def main() -> int:
    args = parse()
    arch = SIZES[args.arch][args.size]
    try:
        if args.vocab:
            vocab = vocabulary.copied(args.vocab, args.n_vocab)
        else:
            vocab = vocabulary.synthetic(args.n_vocab)
        cycle = None
        if args.nextn is not None:
            arch = arch.with_nextn()
        if args.nextn is not None or args.routing:
            rate, routing = args.nextn or 0.0, RouterBias() if args.routing else None
            cycle = Cycle(vocab, arch.n_embd, rate, args.seed, routing)
        write(args.out, arch, args.type, vocab, args.seed, cycle, args.hole)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.out}: {args.out.stat().st_size / 2**20:.0f} MiB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
