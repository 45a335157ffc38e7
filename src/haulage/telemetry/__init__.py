"""Turning what the product observes into lines; the product itself only names what happened (core/events.py)."""
