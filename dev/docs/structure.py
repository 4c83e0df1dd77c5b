#!/usr/bin/env python3
"""Figures about the structure of a checkout: rooms, arrows, sizes of files, names of classes.

    python -m dev.docs.structure [TREE]       # a table as Markdown; TREE: another checkout

A room is a folder, or a loose file, directly in a package. An arrow is one room that imports
another; lazy imports count also. A floor is 1 + the highest floor of the imported rooms (rooms in a
circle are on one floor). Shipped: files in the wheel.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

SHIPPED = (
    "ggml_py", "llama_py", "ggml_cpu", "ggml_ref", "ggml_opencl", "ggml_mpi", "llama_py_tools",
    "llama_py_server",
)  # fmt: skip
PARENTS = (".", "backends", "apps", "tools")
DRAWN = ("ggml_py", "llama_py", "llama_py_server", "llama_py_tools")


@dataclass(frozen=True)
class Module:
    """A source file; name: its dotted name."""

    name: str
    text: str

    @property
    def n_lines(self) -> int:
        return self.text.count("\n")

    @property
    def room(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""


def modules(tree: Path, package: str) -> list[Module]:
    """Return the files of a package that git tracks."""
    for parent in PARENTS:
        if (tree / parent / package).is_dir():
            base = tree / parent
            break
    else:
        raise FileNotFoundError(f"{tree} has no package {package}; give a checkout of llama-py")
    listed = subprocess.check_output(["git", "ls-files", f"{package}/**.py"], cwd=base, text=True)
    found = []
    for line in listed.split():
        parts = Path(line).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name, (base / line).read_text(encoding="utf-8")))
    return found


def imports(module: Module, known: Iterable[str]) -> Iterator[str]:
    """Yield modules of the same package that a module imports anywhere."""
    package = module.name.partition(".")[0]
    for node in ast.walk(ast.parse(module.text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] == package:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    yield full if full in known else node.module
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] == package)


def arrows(of: list[Module]) -> Mapping[str, set[str]]:
    """Return the rooms that each room imports."""
    rooms = {m.name: m.room for m in of}
    found: dict[str, set[str]] = defaultdict(set)
    for m in of:
        found[m.room] |= {rooms[t] for t in imports(m, rooms) if t in rooms} - {m.room}
    return found


def floors(below: Mapping[str, set[str]]) -> tuple[int, int]:
    """Return the number of floors, and the number of arrows in circles."""
    reach = {room: set(direct) for room, direct in below.items()}
    for middle in reach:
        for room in reach:
            if middle in reach[room]:
                reach[room] |= reach[middle]
    circles = sum(room in reach.get(to, ()) for room in below for to in below[room])
    known: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in known:
            known[room] = 1  # placeholder for cycles
            lower = [x for x in below.get(room, ()) if room not in reach.get(x, ())]
            known[room] = 1 + max(map(floor, lower), default=0)
        return known[room]

    return max(map(floor, below), default=0), circles


def class_names(of: list[Module]) -> Counter[str]:
    """Count the classes with each name."""
    return Counter(
        node.name
        for m in of
        for node in ast.walk(ast.parse(m.text))
        if isinstance(node, ast.ClassDef)
    )


def rows(tree: Path) -> Iterator[tuple[str, object]]:
    by_package = {name: modules(tree, name) for name in SHIPPED}
    shipped = [m for of in by_package.values() for m in of]
    sizes = [m.n_lines for m in shipped]
    for name in DRAWN:
        of = by_package[name]
        below = arrows(of)
        n_floors, circles = floors(below)
        loose = {m.room for m in of if m.room} - {
            m.name.split(".")[1] for m in of if m.name.count(".") > 1
        }
        yield f"`{name}`: rooms, floors", f"{len({*below} - {''})}, {n_floors}"
        yield f"`{name}`: arrows, in circles", f"{sum(map(len, below.values()))}, {circles}"
        yield f"`{name}`: loose modules", len(loose)
    yield "files shipped", len(shipped)
    yield "lines shipped", f"{sum(sizes):,}"
    yield "lines of a file: median, p90", f"{median(sizes):.0f}, {quantiles(sizes, n=10)[-1]:.0f}"
    yield "files under 30 lines", sum(n < 30 for n in sizes)
    lines = [line for m in shipped for line in m.text.splitlines()]
    yield "lines that mention interrupts", sum("interrupt" in x.lower() for x in lines)
    names = class_names(shipped)
    several = sum(n > 1 for n in names.values())
    yield "class names, of two meanings or more", f"{len(names)}, {several}"
    yield "`# fmt: skip`", sum("# fmt: skip" in x for x in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).parents[2])
    tree = parser.parse_args().tree
    print("| | |\n|---|---|")
    for name, value in rows(tree):
        print(f"| {name} | {value} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
