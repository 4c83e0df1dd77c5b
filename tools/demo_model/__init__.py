"""The recipe of the bundled demonstration model; not part of the installed package."""
