"""``python -m hansfree``: the command line, where the environment's scripts are not on the path."""

from hansfree.cli import main

if __name__ == "__main__":
    main()
