"""Doing the work. Read supervisor.py first, then lanes.py (one run from claim to settle), heartbeat.py, child.py."""
