"""Ways to draft, one file each; its name is that of `--spec-type` with `_` for `-`."""
