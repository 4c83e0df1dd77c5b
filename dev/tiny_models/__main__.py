"""Write the tiny model of an architecture, with random weights, into the current folder.

`python -m dev.tiny_models` lists architectures and variants;
`python -m dev.tiny_models llama dense` writes llama-dense.gguf.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dev.tiny_models import every, write


def main() -> None:
    if len(sys.argv) == 3:
        print(write(sys.argv[1], sys.argv[2], Path()).name)
    else:
        print("\n".join(f"{arch} {variant}" for arch, variant in every()))


if __name__ == "__main__":
    main()
