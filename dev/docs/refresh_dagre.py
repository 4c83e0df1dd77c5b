"""Download @dagrejs/dagre, the graph layout library of the llama-py-graph view page.

    python -m dev.docs.refresh_dagre VERSION

npm downloads `dagre.min.js` and its license from the npm registry and verifies them. They are
package data: installing the package and opening the page download no files.
"""

from __future__ import annotations

import argparse
import subprocess
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@dagrejs/dagre"
FOLDER = Path(__file__).parent / "llama_py_tools" / "graph" / "page"
FILES = {"package/dist/dagre.min.js": "dagre.min.js", "package/LICENSE": "dagre.LICENSE.txt"}
SOURCE_MAP = "//# sourceMappingURL="


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="such as 3.1.3")
    version = parser.parse_args().version
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            ["npm", "pack", "--silent", f"{PACKAGE}@{version}"],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        with tarfile.open(Path(folder) / done.stdout.split()[-1]) as archive:
            for member, name in FILES.items():
                content = archive.extractfile(member)
                assert content is not None
                text = content.read().decode()
                lines = [line for line in text.splitlines() if not line.startswith(SOURCE_MAP)]
                (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
                print(f"{FOLDER / name}: {PACKAGE} {version}")


if __name__ == "__main__":
    main()
