"""JSON schemas, and the validity of constrained responses."""
