"""Loading of models from files."""
