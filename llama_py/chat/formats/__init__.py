"""Formats of responses by family: reasoning, content, tool calls.

form.py       requirements for a response, and its form
known.py      special formats, recognized by marks in their templates
marks.py      formats that differ in marks only; json_calls.py: calls as JSON objects
analysis/     detection of marks by rendering small conversations
schema.py     the parameters of a tool
generic.py    tools for templates without tool calls

The others are special formats: an expression (`llama_py.chat.peg`) each.
"""
