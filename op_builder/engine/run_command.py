"""Runs one command of ``commands.json`` without a shell; ninja starts this file as a program, once a command.

ninja hands every command to ``/bin/sh``. What it hands over here is this file and a number, never a name that a user chose.
"""

import json
import os
import signal
import sys


def main() -> int:
    """Run the command with the given number, and return its exit status."""
    with open("commands.json", encoding="utf-8") as file:
        command = json.load(file)[int(sys.argv[1])]
    print("command:", json.dumps(command), flush=True)
    status = os.spawnv(os.P_WAIT, command[0], command)
    if status < 0:
        name = signal.Signals(-status).name
        print(f"error: {command[0]} was ended by {name}; where memory is short, ANYACCEL_BUILD_JOBS=1 helps")
    elif status == 127:
        print(f"error: {command[0]} cannot be run")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
