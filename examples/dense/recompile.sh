#!/bin/sh
# After an edit of sigmoid.ptx: assembles it again and runs it with the program of compile.sh: recompile.sh [TARGET]
set -eu
here=$(dirname "$0")
"${PYTHON:-python}" "$here/ptx.py" recompile --target "${1:-sm_90}" --out sigmoid.cubin
exec ./sigmoid sigmoid.cubin
