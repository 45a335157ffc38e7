"""The command line: the same services as behind HTTP, for a person at a terminal and for scripts.

Read main.py first (the table of commands, exit codes), then exports.py, which tells the whole story of one
export. terminal.py says how things are said.
"""
