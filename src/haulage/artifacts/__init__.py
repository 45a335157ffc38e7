"""Keeping bytes. One room per technology; local.py keeps them in a folder."""
