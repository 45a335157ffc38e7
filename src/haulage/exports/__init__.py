"""The export flow. Read life.py first, then request.py, plan.py, build.py, expire.py; access.py says who may."""
