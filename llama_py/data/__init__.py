"""Data files of the package: the demonstration model (README.md in this folder)."""
