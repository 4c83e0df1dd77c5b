"""llama-py-bench --predict: how fast a model would be on several machines.

work.py     bytes and operations of each layer, from a file's metadata
cost.py     formulas: seconds from that work, a machine's speed and a link
command.py  the options, and the table
"""
