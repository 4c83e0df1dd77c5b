"""The command line: options, logs, streams, exit codes, ranks."""
