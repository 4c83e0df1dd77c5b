"""From the events of the engine to the bytes of a response."""
