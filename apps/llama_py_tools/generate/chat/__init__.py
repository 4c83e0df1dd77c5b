"""Interactive chat in a terminal, or line by line from stdin.

talk.py      `Talk`: runs typed commands and messages, and shows responses
lines.py     sources of messages; a message may have several lines
terminal.py  lines from a terminal: history, completion (prompt_toolkit)
history.py   file that keeps typed lines between runs
commands.py  `/help`, `/regen`, ...: one function each
settings.py  `/set`: sampling options by their names
tool_calls.py  calls of MCP tools: approval, results, the loop
saved.py     `/save` and `/load`: conversations as JSON
"""

from llama_py_tools.generate.chat.talk import Talk

__all__ = ["Talk"]
