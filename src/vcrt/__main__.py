"""Run the command line as ``python -m vcrt``, for where the ``vcrt`` script is not on the path."""

from vcrt.cli import main

if __name__ == "__main__":
    main()
