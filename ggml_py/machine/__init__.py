"""Access to the machine of a process: cores and memory, files, signals, digests, settings."""
