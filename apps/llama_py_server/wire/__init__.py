"""HTTP: sockets, keys, limits, bodies, errors, server-sent events. Knows nothing of models."""
