"""The engines, a file each.

A file has OPTION, the flag that asks for it and how argparse takes it (None: it always runs);
`started(value)`, for each way to run it a name, the Python, and arguments of Loaded; and Loaded, an
Engine. What it compares with is imported in Loaded, which runs in that Python.
"""
