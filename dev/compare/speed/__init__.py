"""compare_speed.py: what is measured, the engines in their workers, and the tables."""
