"""Grammars of responses as expressions: they parse a streamed response, and generate Lark grammars
of allowed responses.

found.py      matches of an expression in a text
nodes.py      expressions and their parsers; leaves.py: characters; named.py: with a name
values.py     expressions for JSON's and Python's values
lark.py       an expression as a grammar for llguidance
derive.py     rest of an expression after a text
"""
