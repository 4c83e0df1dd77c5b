"""Search for an OpenCL for the CPU that pip has installed."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

SYSTEM = Path("/etc/OpenCL/vendors")  # folder of the machine's driver registrations
PACKAGE, LIBRARY = "intel-opencl-rt", "libintelocl.so"
POCL = "pocl-binary-distribution"  # the loader finds this driver


def use_installed() -> None:
    """Let the loader use an installed package's driver if no driver is registered.

    The loader reads OCL_ICD_VENDORS at the first request for platforms; a preset value is kept.
    """
    if "OCL_ICD_VENDORS" in os.environ or any(SYSTEM.glob("*.icd")) or _find_file(POCL):
        return
    library = _find_file(PACKAGE, LIBRARY)
    if library is not None:
        os.environ["OCL_ICD_VENDORS"] = str(library)


def _find_file(package: str, name: str = "") -> Path | None:
    """Return a file of an installed package by its name, "" for any file; None if missing."""
    try:
        found = files(package) or ()
    except PackageNotFoundError:
        return None
    return next((Path(str(p.locate())) for p in found if name in ("", p.name)), None)
