"""``python -m anyaccel``: the command line, with the Python that runs it."""

from .cli import program

if __name__ == "__main__":
    program()
