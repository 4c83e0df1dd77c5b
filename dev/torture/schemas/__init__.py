"""JSON schemas, and whether answers that are held to them are valid."""
