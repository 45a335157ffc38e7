"""Runs in a folder: the verbs of ``stores/runs.py`` without a database. ``store.py`` says how it is laid out."""
