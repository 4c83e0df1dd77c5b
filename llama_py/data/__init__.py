"""Data files of the package: the demonstration model (README.md beside this file)."""
