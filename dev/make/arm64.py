"""Run the project on an emulated ARM machine, with Debian's Python and the wheels for aarch64.

    sudo apt-get install qemu-user-static debootstrap
    sudo python -m dev.make.arm64 FOLDER [--cpu cortex-a76] [--no-install] [--compile-here NAME]
        [-- COMMAND ...]

A new folder gets Debian's files (`root`), an environment (`env`) and the compiled kernels
(`cache`). Without a command, the emulator generates some tokens with the demo model, then tests
ops. COMMAND is a script of the environment: `-- test-backend-ops -b cpu -o MUL_MAT`. Compilation is
many times slower in the emulator. Every finished part is stored, so an interrupted run can be
continued. On two cores the text takes 2 minutes, mostly to compile, and the ops take 2 minutes.

--compile-here neon-dotprod: this Python compiles the kernels outside of the emulator, for that CPU
of `ggml_cpu/targets.py`. The compiler is the same, so its output is the same; this does not test
that the compiler runs on ARM.

The kernel needs no registration of the emulator: `env/bin/python` is a script that starts it, and
processes that Python starts use the same script.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

PROJECT = Path(__file__).parents[2]
PACKAGES = "python3,python3-venv,ca-certificates"
NEEDED = ("qemu-aarch64-static", "debootstrap", "dpkg")
COMPILE = (
    "import sys; sys.path[:0] = {paths!r};"
    "from tests.support.foreign import become; become({name!r}); "
    "from ggml_cpu.serve import serve; serve()"
)
OPS = "ADD,RMS_NORM,SOFT_MAX,SSM_CONV,GATED_DELTA_NET"
# Fields of /proc/cpuinfo that LLVM reads: implementer, part, and the names of features.
CPUS = {
    "cortex-a72": ("0x41", "0xd08", "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"),
    "cortex-a76": (
        "0x41",
        "0xd0b",
        "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid"
        " asimdrdm lrcpc dcpop asimddp",
    ),
    "neoverse-n1": (
        "0x41",
        "0xd0c",
        "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid"
        " asimdrdm lrcpc dcpop asimddp",
    ),
}


def root(folder: Path) -> Path:
    """Return Debian's files; packages are only unpacked, not set up."""
    there = folder / "root"
    if not (there / "usr/bin/python3").exists():
        script = ["debootstrap", "--foreign", "--arch=arm64", "--variant=minbase"]
        run([*script, f"--include={PACKAGES}", "bookworm", str(there)])
        for package in sorted((there / "var/cache/apt/archives").glob("*.deb")):
            run(["dpkg", "-x", str(package), str(there)])
    return there


def environment(folder: Path, there: Path, cpu: str, compile_as: str = "") -> Path:
    """Create the environment's Python, with pip, and return it. Python finds its library next to
    the program of its given name, and its packages by pyvenv.cfg.

    compile_as  if not empty: this Python compiles kernels outside the emulator, for that CPU
    """
    env, program = folder / "env", (there / "usr/bin/python3").resolve()
    (env / "bin").mkdir(parents=True, exist_ok=True)
    home = f"home = {program.parent}\ninclude-system-site-packages = false\n"
    (env / "pyvenv.cfg").write_text(home, "utf-8")
    python = env / "bin/python"
    words = f'qemu-aarch64-static -cpu "{cpu}" -L "{there}" -0 "$0" "{program}" "$@"'
    lines = ["#!/bin/sh", f"exec {words}", ""]
    if compile_as:
        serving = COMPILE.format(paths=[str(PROJECT), str(PROJECT / "backends")], name=compile_as)
        lines[1:1] = [
            f"case $2 in *ggml_cpu.serve*) exec {quote(sys.executable)} -c {quote(serving)};; esac"
        ]
    python.write_text("\n".join(lines), "utf-8")
    python.chmod(0o755)
    implementer, part, features = CPUS[cpu]
    (there / "proc/cpuinfo").write_text(
        f"processor\t: 0\nBogoMIPS\t: 100.00\nFeatures\t: {features}\n"
        f"CPU implementer\t: {implementer}\nCPU architecture: 8\nCPU variant\t: 0x0\n"
        f"CPU part\t: {part}\nCPU revision\t: 0\n\n",
        "utf-8",
    )
    if not any(env.glob("lib/python3*/site-packages/pip")):
        run([str(python), "-m", "ensurepip"])
    return python


def install(python: Path) -> None:
    """Install the current project and its requirements by pip."""
    done = any(python.parents[1].glob("lib/python3*/site-packages/numba"))
    wheels = "--only-binary=numba,llvmlite,numpy,tokenizers"
    again = ["--no-deps", "--force-reinstall"] if done else []
    run([str(python), "-m", "pip", "install", "-q", wheels, *again, str(PROJECT)])


def run(command: Sequence[str], **variables: str) -> None:
    """Run a command, and print it with its time; end the script if it fails."""
    print(f"+ {' '.join(command)}", file=sys.stderr, flush=True)
    start = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **variables}, check=False)
    print(f"  {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    if done.returncode:
        raise SystemExit(done.returncode)


def main(argv: Sequence[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("folder", type=lambda text: Path(text).resolve(), help="folder of all files")
    p.add_argument("--cpu", choices=CPUS, default="cortex-a76", help="emulated CPU")
    p.add_argument(
        "--compile-here",
        metavar="NAME",
        default="",
        help="compile outside of the emulator, for the CPU NAME",
    )
    p.add_argument("--no-install", action="store_true", help="use the installed project")
    given = list(sys.argv[1:] if argv is None else argv)
    end = given.index("--") if "--" in given else len(given)
    args, chosen = p.parse_args(given[:end]), given[end + 1 :]
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        p.error(f"{', '.join(missing)}: not found; apt-get install qemu-user-static debootstrap")
    there = root(args.folder)
    python = environment(args.folder, there, args.cpu, args.compile_here)
    if not args.no_install:
        install(python)
    own = ["llama-py-cli", "-p", "ROMEO:", "-n", "4", "--temp", "0", "-c", "64", "-t", "2"]
    ops = ["test-backend-ops", "-b", "cpu", "-j", "2", "-o", OPS]
    variables = {"LLAMA_PY_CACHE": str(args.folder / "cache")}
    if args.compile_here:
        variables["LLAMA_PY_CPU"] = args.compile_here
    for command in [chosen] if chosen else [own, ops]:
        program = str(python.parent / command[0])
        run([program, *command[1:]], **variables)


if __name__ == "__main__":
    main()
