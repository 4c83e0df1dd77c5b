"""HTTP without models: sockets, keys, limits, bodies, errors, server-sent events."""
