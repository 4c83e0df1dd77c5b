"""Models, faults and runs of judge_alarms.py."""
