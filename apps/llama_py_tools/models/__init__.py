"""Model files of commands: their sources and loading."""
