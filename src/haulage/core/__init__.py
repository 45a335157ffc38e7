"""The pure core: lives, leases, limits, errors, what is declared and who asks.

It imports nothing of ours and does no I/O. Read lifecycle.py first, then lease.py, then ports.py.
"""
