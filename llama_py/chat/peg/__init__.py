"""Grammars of answers, written as expressions: they parse an answer as it comes, and say as Lark
what a model may write.

found.py      what an expression finds in a text
nodes.py      the expressions, and how they parse; leaves.py: of letters; named.py: with names
values.py     expressions for JSON's and Python's values
lark.py       an expression as a grammar for llguidance
derive.py     what is left of an expression behind a text
"""
