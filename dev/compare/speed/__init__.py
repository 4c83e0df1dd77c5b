"""Parts of compare_speed.py: tests, the engines in their workers, and the tables."""
