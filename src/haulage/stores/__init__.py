"""Keeping runs. Read tables.py, then runs.py; open.py turns a URL into a store. The only room with SQLAlchemy."""
