"""Contents of the wheel and of the sdist: shipped packages and data, no developers' files."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest
from setuptools import Distribution
from setuptools.command.egg_info import FileList, manifest_maker

from tests.support.commands import ROOT

PACKAGES = {
    "ggml_cpu", "ggml_mpi", "ggml_opencl", "ggml_py", "ggml_ref", "llama_py", "llama_py_server",
    "llama_py_tools",
}  # fmt: skip
OF_PROJECT = (
    "CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "SECURITY.md", "pyproject.toml"
)  # fmt: skip
DATA = {".cl", ".css", ".gguf", ".html", ".js", ".md", ".txt", ".typed"}


@pytest.fixture
def distribution(monkeypatch: pytest.MonkeyPatch) -> Distribution:
    monkeypatch.chdir(ROOT)
    found = Distribution({"script_name": "setup.py"})
    found.parse_config_files(["pyproject.toml"])
    found.include_package_data = False  # its search for files writes
    return found


@pytest.fixture
def files(distribution: Distribution) -> dict[PurePath, Path]:
    """Paths in the wheel, each with the file that setuptools copies there."""
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    found = {}
    for package, module, path in build.find_all_modules():
        found[PurePath(*package.split("."), f"{module}.py")] = ROOT / path
    for package, source, _, names in build.data_files:
        found |= {PurePath(*package.split("."), name): ROOT / source / name for name in names}
    return found


def test_the_wheel_has_shipped_packages_only(files: dict[PurePath, Path]) -> None:
    assert {path.parts[0] for path in files} == PACKAGES
    assert all(source.is_file() for source in files.values())
    of_developers = [p for p in files if {"tests", "dev", "tiny", "docs", "examples"} & {*p.parts}]
    assert not of_developers


def test_the_wheel_has_every_module_of_a_shipped_package(files: dict[PurePath, Path]) -> None:
    homes = [home / name for home in (ROOT, ROOT / "backends", ROOT / "apps") for name in PACKAGES]
    tree = {path for home in homes for path in home.rglob("*.py")}
    assert {source for source in files.values() if source.suffix == ".py"} == tree


def test_data_of_the_wheel(files: dict[PurePath, Path]) -> None:
    """Pages, kernels, tables and the demo model, by suffix; no recording, no picture."""
    data = {path for path in files if path.suffix != ".py"}
    assert {path.suffix for path in data} == DATA
    assert {PurePath("llama_py/data/demo.gguf")} == {p for p in data if p.suffix == ".gguf"}
    typed = {path.parts[0] for path in data if path.name == "py.typed"}
    assert typed == {"ggml_py", "llama_py"}


def test_the_sdist_has_the_files_of_the_wheel(
    distribution: Distribution, files: dict[PurePath, Path]
) -> None:
    """The files that the wheel needs, each class of them, and the project's; no others."""
    maker = manifest_maker(distribution)
    maker.filelist, maker.manifest = FileList(), "SOURCES.txt"  # not written
    maker.add_defaults()
    maker.read_template()
    maker.add_license_files()
    found = {Path(name) for name in maker.filelist.files if ".egg-info" not in name}
    expected = {source.relative_to(ROOT) for source in files.values()}
    assert found == expected | {Path(name) for name in OF_PROJECT}
    assert {path.suffix for path in found} == DATA | {"", ".in", ".py", ".toml"}
    assert not {path.parts[0] for path in found} & {"dev", "docs", "examples", "findings", "tests"}
