"""llama-py-bench --predict: how fast a model would be on several machines.

work.py     what each layer reads and computes, out of a file's metadata
cost.py     from that, a machine's speed and a link to seconds: the formulas
command.py  the options, and the table
"""
