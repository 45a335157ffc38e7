"""``python -m haulage`` is the command line."""

from haulage.cli.main import main

if __name__ == "__main__":
    main()
