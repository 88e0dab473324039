#!/bin/sh
# After an edit to sigmoid.ptx, assembles it again and runs it with the program from compile.sh: recompile.sh [TARGET]
set -eu
here=$(dirname "$0")
"${PYTHON:-python}" "$here/ptx.py" recompile --target "${1:-sm_90}" --out sigmoid.cubin
exec ./sigmoid sigmoid.cubin
