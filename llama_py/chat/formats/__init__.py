"""How models write answers, family by family: thoughts, what is said, calls of tools.

form.py       what is asked of an answer, and the form that it has
known.py      formats of their own, told by marks in their templates
marks.py      formats that differ in marks only; json_calls.py: calls as JSON objects
analysis/     those marks, found in what a template makes of small conversations
schema.py     the parameters of a tool
generic.py    tools for templates that take no calls

The others are formats of their own: an expression (`llama_py.chat.peg`) each.
"""
