"""Schema changes, up and down, run by Alembic and packaged in the wheel. run.py drives them."""
