"""Tools of servers of the Model Context Protocol (MCP), with the `mcp` package.

params.py      options of commands
config.py      the file of --mcp: servers, and their secrets
transport.py   streams of a program or a URL, with limits
connection.py  a connection to one server, and its restart
servers.py     `ToolServers`: the tools of all servers, and their calls
results.py     results of calls as text
"""
