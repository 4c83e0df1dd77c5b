"""Run the notebooks of docs/ and store their output; needs nbclient and ipykernel.

python -m dev.docs.notebooks [NAME ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=600, coalesce_streams=True).execute()
        for cell in notebook.cells:
            cell.metadata = {}
            if cell.cell_type == "code":
                cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        path.write_text(nbformat.writes(notebook) + "\n", "utf-8")
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
