"""Draft methods, one file each, named like `--spec-type` with `_` for `-`."""
