# `make demo` and `make test` set up everything themselves, in .venv, from a fresh clone.
#
#   PYTHON=python3.12 make test      another interpreter (3.10 or newer)
#   TORCH=torch==2.14.1 make test    another torch

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
CACHE := $(CURDIR)/$(VENV)/cache

# Without a system compiler, pip's ziglang serves.
CXX_EXTRA := $(if $(shell command -v c++ || command -v g++ || command -v clang++),,cxx)

.PHONY: demo test test-cuda-torch bench lint clean

demo: $(VENV)/.installed-demo
	$(VENV)/bin/anyaccel demo

test: $(VENV)/.installed-test
	ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/python -m pytest

# A CUDA build of torch on a host without a GPU: about 5 GB of disk, hence not part of `make test`.
test-cuda-torch:
	$(MAKE) test VENV=.venv-cuda TORCH=torch==2.14.1

bench: $(VENV)/.installed-test
	$(VENV)/bin/python benchmarks/run_all.py

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i $$(git ls-files 'csrc/*.h' 'csrc/*.cpp')

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "anyaccel needs Python 3.10 or newer. Fix: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv "$(VENV)" || \
	  { rm -rf "$(VENV)"; echo "making $(VENV) failed. Fix: apt-get install python3-venv"; exit 1; }

$(VENV)/.torch: $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --upgrade "pip>=24"
	$(VENV)/bin/python -m pip install --quiet "$(TORCH)" numpy
	@touch $@

$(VENV)/.installed-%: $(VENV)/.torch pyproject.toml
	$(VENV)/bin/python -m pip install --quiet --editable ".[$*$(addprefix $(comma),$(CXX_EXTRA))]"
	@touch $@

comma := ,

clean:
	rm -rf .venv .venv-cuda build dist demo_out *.egg-info
