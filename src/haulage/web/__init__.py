"""HTTP: the only room that imports the web framework. Read app.py first."""
