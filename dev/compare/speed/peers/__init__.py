"""The engines, one file per engine.

A file has OPTION, the flag that selects it with its argparse arguments (None: it always runs);
`started(value)`, which returns a name, the Python, and arguments of Loaded for each variant; and
Loaded, an Engine. Loaded imports the compared library, since it runs in that Python.
"""
