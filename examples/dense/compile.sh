#!/bin/sh
# Assembles sigmoid.ptx, builds the program that runs it without Python, and runs it: compile.sh [TARGET]
# Writes sigmoid.cubin and sigmoid to the current folder.
set -eu
here=$(dirname "$0")
"${CXX:-c++}" -std=c++20 -O2 -o sigmoid "$here/sigmoid.cpp" -ldl
exec "$here/recompile.sh" "$@"
