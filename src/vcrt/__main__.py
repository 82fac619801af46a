"""``python -m vcrt``: the command line, for where the ``vcrt`` script is not on the path."""

from vcrt.cli import main

if __name__ == "__main__":
    main()
