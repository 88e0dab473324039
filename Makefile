# `make demo` and `make test` set up everything themselves, in .venv, from a fresh clone.
#
#   PYTHON=python3.12 make test      another interpreter (3.10 or newer)
#   TORCH=torch==2.14.1 make test    another torch

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
CACHE := $(CURDIR)/$(VENV)/cache

# Without a system compiler, use pip's ziglang.
CXX_EXTRA := $(if $(shell command -v c++ || command -v g++ || command -v clang++),,cxx)

.PHONY: demo dist docs site test test-all test-cuda-torch test-ecosystem test-old-torch test-torches test-triton test-deepspeed test-wheel test-sycl test-emulator test-sanitizers fuzz test-soak test-distributed-torch test-arm test-wheel-arm test-sass test-gpu gpu-day gpu-day-wheels gpu-day-rehearsal bench lint clean

demo: $(VENV)/.installed-demo
	@$(VENV)/bin/anyaccel demo

# Python keeps its bytecode, also where the environment says that it should not: a test run starts a thousand processes.
unexport PYTHONDONTWRITEBYTECODE

# Every op is built first, on all cores: several tests need all of them. Three workers for two cores: tests wait for processes, locks and
# limits a third of the time; 1 490 s where two workers took 1 740 to 1 760 (2 cores).
# Files run in the order of tests/conftest.py: sorted by their number of tests, the default, files with a few long tests would run last.
PYTEST_IN_WORKERS := -n 3 --dist loadfile --no-loadscope-reorder --durations=25
# More threads than cores: OpenMP's must not spin while they wait, which took more than half of the time of tests/ops.
test test-all test-torches test-emulator: export OMP_WAIT_POLICY := passive
test: $(VENV)/.installed-test
	ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/anyaccel build --all --target native --target sm_90
	ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/python -m pytest $(PYTEST_IN_WORKERS)

# Also the slow cases, which check no behaviour that `make test` does not check.
test-all: $(VENV)/.installed-test
	ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/anyaccel build --all
	ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/python -m pytest $(PYTEST_IN_WORKERS) -m "slow or not slow"

# A CUDA build of torch on a host without a GPU: about 5 GB of disk, so it is not part of `make test`.
test-cuda-torch:
	$(MAKE) test VENV=.venv-cuda TORCH=torch==2.14.1 EXTRAS=nvcc

# One wheel with prebuilt ops, under several Pythons and torches, without a compiler; WHEEL names one that `make dist` built:
#   make test-wheel ON="python3.10:torch==2.13.0 python3.13:torch==2.14.1" WHEEL=dist/anyaccel-0.2.0-py3-none-manylinux_2_28_x86_64.whl
# Each has a .venv-wheel-* of its own, which is removed when it passes: PyPI's torches take 5 GB. All are tried; one that fails fails the target.
ON ?= $(PYTHON):$(TORCH)
WHEEL ?=
test-wheel: $(if $(WHEEL),,$(VENV)/.installed-test)
	$(if $(WHEEL),,rm -rf dist; BUILD_EXT=1 $(VENV)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .)
	@failed=; for on in $(ON); do \
	  venv=".venv-wheel-$$(echo "$$on" | tr -c 'a-z0-9.\n' -)"; \
	  { "$${on%%:*}" -m venv "$$venv" && \
	    "$$venv/bin/python" -m pip install --quiet "$${on#*:}" numpy $(if $(WHEEL),"$(WHEEL)",dist/*.whl) && \
	    (cd / && PATH=/nowhere CXX=no-such-compiler "$(CURDIR)/$$venv/bin/python" "$(CURDIR)/tests/prebuilt_ops.py") && \
	    rm -rf "$$venv"; } || failed="$$failed $$on"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# The release files, in DIST: the sdist, a wheel without ops, and a wheel with prebuilt ops for each platform, built from that source by
# ziglang with a cache of their own, about 10 minutes each; then what tests/release finds wrong with them, which also runs the demo from the
# sdist alone. To see that two builds agree:
#   make dist && make dist DIST=again && .venv/bin/python -m tests.release dist again
# W004 is about libraries that Python cannot import; prebuilt ops are such, and the same Python files are checked in the wheel without them.
PLATFORMS ?= manylinux_2_28_x86_64 manylinux_2_28_aarch64
DIST ?= dist
dist: $(VENV)/.installed-release
	rm -rf "$(DIST)"
	@set -e; export SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" ANYACCEL_CACHE_DIR="$(CURDIR)/$(DIST)/cache" ZIG_GLOBAL_CACHE_DIR="$(CACHE)/zig"; \
	$(VENV)/bin/python -m build --quiet --no-isolation --outdir "$(DIST)"; \
	for platform in $(PLATFORMS); do \
	  echo "building the ops for $$platform"; \
	  BUILD_EXT=1 ANYACCEL_PLATFORM="$$platform" $(VENV)/bin/python -m pip wheel --quiet --no-deps --no-build-isolation \
	    --wheel-dir "$(DIST)" "$(DIST)"/anyaccel-*.tar.gz; \
	done; \
	rm -rf "$(DIST)/cache"; \
	$(VENV)/bin/python -m twine check --strict "$(DIST)"/*; \
	for wheel in "$(DIST)"/*.whl; do \
	  case "$$wheel" in *-any.whl) prebuilt= ;; *) prebuilt="--ignore W004" ;; esac; \
	  $(VENV)/bin/check-wheel-contents $$prebuilt "$$wheel"; \
	done; \
	$(VENV)/bin/python -m tests.release "$(DIST)"; \
	rm -rf "$(DIST)/cache"

# Every SYCL kernel, run on the CPU by each runtime that torch's XPU wheels pin, each in its own .venv-sycl-*.
SYCL ?= 2025.3.3 2026.2.0
test-sycl:
	@set -e; for version in $(SYCL); do \
	  $(MAKE) ".venv-sycl-$$version/.installed-test" VENV=".venv-sycl-$$version"; \
	  python=".venv-sycl-$$version/bin/python"; \
	  "$$python" -m pip install --quiet "dpcpp-cpp-rt==$$version" "intel-opencl-rt==$$version"; \
	  ANYACCEL_CACHE_DIR="$(CURDIR)/.venv-sycl-$$version/cache" "$$python" -m pytest -k sycl tests/ops tests/op_builder; \
	  ANYACCEL_CACHE_DIR="$(CURDIR)/.venv-sycl-$$version/cache" "$$python" -m pytest -m "slow or not slow" tests/op_builder/test_xpu_runtime.py; \
	done

# CUDA's kernels on the CPU, in every case of tests/ops, and under ThreadSanitizer.
test-emulator: $(VENV)/.installed-test
	ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/python -m pytest -m "slow or not slow" tests/emulator

# deepspeed, accelerate, transformers, Fabric, kernels and safetensors, the real packages, in .venv-ecosystem. Stock deepspeed
# first compiles five of its own ops, which takes most of the time.
test-ecosystem:
	$(MAKE) .venv-ecosystem/.installed-test-ecosystem VENV=.venv-ecosystem
	.venv-ecosystem/bin/python -m pip install --quiet --upgrade --no-deps --target .venv-ecosystem/transformers-4 \
	  transformers==4.57.6 tokenizers==0.22.1 huggingface_hub==0.36.0 kernels==0.10.3
	PATH="$(CURDIR)/.venv-ecosystem/bin:$$PATH" TORCH_EXTENSIONS_DIR="$(CURDIR)/.venv-ecosystem/extensions" \
	  ANYACCEL_CACHE_DIR="$(CURDIR)/.venv-ecosystem/cache" .venv-ecosystem/bin/python -m pytest tests/ecosystem

# deepspeed on the integration where torch is too old for our ops, in .venv-old-torch (PyPI's torch 2.8 brings CUDA: 7 GB of disk).
OLD_TORCH ?= torch==2.8.0
test-old-torch:
	$(MAKE) .venv-old-torch/.torch VENV=.venv-old-torch TORCH="$(OLD_TORCH)"
	.venv-old-torch/bin/python -m pip install --quiet "$(OLD_TORCH)" deepspeed==0.19.8 ninja pytest==9.2.0 pytest-timeout==2.4.0 --editable .
	PATH="$(CURDIR)/.venv-old-torch/bin:$$PATH" TORCH_EXTENSIONS_DIR="$(CURDIR)/.venv-old-torch/extensions" \
	  ANYACCEL_CACHE_DIR="$(CURDIR)/.venv-old-torch/cache" .venv-old-torch/bin/python -m pytest tests/old_torch

# The whole suite under several torches, each in a .venv-torch-* of its own (PyPI's bring CUDA: 5 GB of disk each).
TORCHES ?= torch==2.10.0 torch==2.14.1 torch==2.15.0
test-torches:
	@set -e; for torch in $(TORCHES); do \
	  venv=".venv-torch-$${torch##*=}"; \
	  $(MAKE) "$$venv/.installed-test-without-cuda" VENV="$$venv" TORCH="$$torch"; \
	  export ANYACCEL_CACHE_DIR="$(CURDIR)/$$venv/cache"; \
	  "$$venv/bin/anyaccel" build --all --target native --target sm_90; \
	  "$$venv/bin/python" -m pytest $(PYTEST_IN_WORKERS); \
	done

# The Triton kernels in Triton's interpreter, on the CPU; only GPU builds of torch bring Triton (700 MB unpacked, in .venv-triton).
test-triton: $(VENV)/.installed-test
	$(VENV)/bin/python -m pip install --quiet --no-deps --target .venv-triton --upgrade triton==3.9.0
	PYTHONPATH="$(CURDIR)/.venv-triton" ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/python -m pytest tests/ops/test_triton.py

# deepspeed's own tests, with stock deepspeed and with every process on anyaccel, from a clone of its repository at the tag v0.19.8;
# lists the tests that pass with stock deepspeed only, and fails if there are any, or if a file did not run to its end:
#   make test-deepspeed DEEPSPEED=../DeepSpeed
#   make test-deepspeed DEEPSPEED=../DeepSpeed DEEPSPEED_TESTS="unit/ops/aio unit/checkpoint" DEEPSPEED_OPTIONS="--limit 600 --resume"
# Those that need a GPU fail or are skipped on both sides. Each file has a process, a time limit, a log and a report of its own;
# --resume goes on after an interrupted run. Not beside `make test-ecosystem`: both build stock deepspeed's ops in one folder.
DEEPSPEED_TESTS ?= unit/accelerator unit/ops/adam unit/ops/adagrad unit/ops/lion unit/ops/lamb unit/ops/aio unit/ops/quantizer \
  unit/ops/fp_quantizer unit/ops/spatial unit/utils/test_pin_memory.py unit/utils/test_pin_memory_tracker.py unit/comm/test_dist.py \
  unit/runtime/half_precision unit/runtime/comm/test_coalesced_collectives.py unit/runtime/test_data_efficiency.py unit/checkpoint \
  unit/runtime/zero unit/runtime/zenflow unit/v1/zero unit/v1/pin_memory unit/v1/nvme
OUTCOMES := $(CURDIR)/.venv-ecosystem/outcomes
test-deepspeed:
	@test -d "$(DEEPSPEED)/tests/unit" || { echo "set DEEPSPEED to a clone of deepspeed's repository"; exit 1; }
	$(MAKE) .venv-ecosystem/.installed-test-ecosystem VENV=.venv-ecosystem
	PATH="$(CURDIR)/.venv-ecosystem/bin:$$PATH" TORCH_EXTENSIONS_DIR="$(CURDIR)/.venv-ecosystem/extensions" \
	  ANYACCEL_CACHE_DIR="$(CURDIR)/.venv-ecosystem/cache" .venv-ecosystem/bin/python tests/ecosystem/own_tests.py \
	  "$(DEEPSPEED)" "$(OUTCOMES)" $(DEEPSPEED_OPTIONS) $(DEEPSPEED_TESTS)
	.venv-ecosystem/bin/python tests/ecosystem/outcomes.py "$(OUTCOMES)/stock" "$(OUTCOMES)/ours"

# The CPU's code under AddressSanitizer and UndefinedBehaviorSanitizer; any finding ends the run.
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
test-sanitizers: $(VENV)/.installed-test
	ANYACCEL_CACHE_DIR="$(CURDIR)/$(VENV)/cache-sanitizers" CXX="g++ $(SANITIZE)" ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" \
	  $(VENV)/bin/python -m pytest -p no:cacheprovider -k "not sycl and not compile and not triton" \
	  --deselect tests/ops/test_device_kernel.py tests/ops

# CALLS random calls of every op, and a tenth as many of every public function, under the same sanitizers, in memory between guard
# pages; see tests/fuzz. Your own ops are included if they are in the table of builders.
CALLS ?= 20000
SEED ?= 0
fuzz: $(VENV)/.installed-test
	ANYACCEL_CACHE_DIR="$(CURDIR)/$(VENV)/cache-fuzz" CXX="$(CURDIR)/tests/fuzz/sanitized-g++" \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048 \
	  LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" \
	  $(VENV)/bin/python -m tests.fuzz --calls $(CALLS) --seed $(SEED)

# 10 000 random operations of four ranks on shm against gloo, 20 000 of 2 to 8 ranks on its C++ core under each sanitizer, and 300 programs of 2
# to 5 ranks through torch.
test-soak: $(VENV)/.installed-test
	$(VENV)/bin/python -W ignore -m tests.distributed.soak --operations 10000 --ranks 4 --seed $(SEED)
	ANYACCEL_FUZZ="2-8 20000 $(SEED)" $(VENV)/bin/python -m pytest -s -k sanitizers tests/distributed
	ANYACCEL_CACHE_DIR="$(CACHE)" ANYACCEL_FUZZ_TORCH="$(SEED) 300" $(VENV)/bin/python -m pytest tests/distributed/test_random_programs.py

# torch's own DistributedTest on shm, with 2 and 4 ranks: the tests for gloo on CPUs, and those of all_to_all, which torch writes for MPI.
test-distributed-torch: $(VENV)/.installed-test
	@set -e; for ranks in 2 4; do for of in gloo "mpi all_to_all"; do \
	  ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/python -W ignore -m tests.distributed.torchs_tests --ranks $$ranks --of $$of; \
	done; done

# The CPU's loops, built for Arm, run in qemu, and compared with this machine's results.
test-arm: $(VENV)/.installed-test
	$(VENV)/bin/python tests/arm/compare.py

# The ops of a wheel for Arm in qemu, with Debian's Python for Arm (`apt-get install mmdebstrap qemu-user-static`):
#   make test-wheel-arm WHEEL=dist/anyaccel-0.2.0-py3-none-manylinux_2_28_aarch64.whl
test-wheel-arm:
	$(PYTHON) tests/arm/wheel.py "$(WHEEL)"

# Figures of every kernel's machine code, compared with the target and with tests/sass; needs no GPU:
#   make test-sass              for sm_90, which `make test` checks too
#   make test-sass ALL=1        for every architecture of a wheel
#   make test-sass WRITE=1      stores the current figures, also in docs/benchmarks.md
test-sass: $(VENV)/.installed-test
	ANYACCEL_CACHE_DIR="$(CACHE)" $(VENV)/bin/python -m tests.sass $(if $(ALL),--all) $(if $(WRITE),--write)
	$(if $(WRITE),$(VENV)/bin/python -m tests.docs.generated --write)

# For a machine with a GPU, in an environment with a GPU build of torch; downloads nothing.
test-gpu:
	$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(PYTHON) -m pytest tests/ops tests/accelerator
	@command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed: memcheck and racecheck were not run"; exit 0; }; \
	for tool in memcheck racecheck; do \
	  compute-sanitizer --tool "$$tool" --error-exitcode 1 $(PYTHON) -m pytest tests/ops -k "cuda and not compile" || exit 1; \
	done

# The same tests, compute-sanitizer on some of them, and the benchmarks, in 20 minutes; results are written as it runs:
#   make gpu-day-wheels         collects missing packages in wheels/; then, on the machine without network:
#   make gpu-day OUT=day
#   make gpu-day OUT=rehearsal DEVICE=cpu
OUT ?= gpu-day
DEVICE ?= cuda
WHEELS ?= wheels
gpu-day:
	$(if $(wildcard $(WHEELS)),$(PYTHON) -m pip install --quiet --no-index --no-deps $(wildcard $(WHEELS)/*.whl))
	$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(PYTHON) -m tests.gpu_day --out "$(OUT)" --device $(DEVICE)

ON_GPU ?= 3.12
gpu-day-wheels: $(VENV)/.installed-test
	$(VENV)/bin/python -m tests.gpu_day.wheels "$(WHEELS)" "$(ON_GPU)"

# The day with a CUDA build of torch on a machine without a GPU, in .venv-gpu-day (6 GB of disk): all but the kernels runs, MINUTES at
# most; see tests/gpu_day/rehearsal.py. The project and its packages come from the wheels alone.
MINUTES ?= 60
gpu-day-rehearsal: PYTHON_OF_DAY := .venv-gpu-day/bin/python
gpu-day-rehearsal:
	$(MAKE) .venv-gpu-day/.torch VENV=.venv-gpu-day TORCH=torch==2.11.0
	$(PYTHON_OF_DAY) -m pip install --quiet "nvidia-cuda-cccl==13.0.*" "nvidia-cuda-crt==13.0.*" setuptools
	$(MAKE) gpu-day-wheels WHEELS=.venv-gpu-day/wheels ON_GPU="$$($(PYTHON_OF_DAY) -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
	$(PYTHON_OF_DAY) -m pip install --quiet --no-index --no-deps .venv-gpu-day/wheels/*.whl
	$(PYTHON_OF_DAY) -m pip install --quiet --no-index --no-deps --no-build-isolation --editable .
	ANYACCEL_CACHE_DIR="$(CURDIR)/.venv-gpu-day/cache" $(PYTHON_OF_DAY) -m tests.gpu_day.rehearsal "$(OUT)" "$(MINUTES)"

# The pages of docs/, in build/html; warnings are errors, and `make test` runs the examples. With DOCS_SOURCES, an
# address such as https://host/owner/anyaccel/blob/main/docs/{filename}, every page links to its source, to read and edit it.
docs: $(VENV)/.installed-test
	$(VENV)/bin/python -m sphinx -n -W --keep-going -q -b html docs build/html
	@echo "build/html/index.html"

# The pages as one version of a site with several, in SITE, a folder for a static host; older versions there stay.
SITE ?= build/site
site: docs
	$(VENV)/bin/python docs/publish.py build/html "$(SITE)"

bench: $(VENV)/.installed-test
	$(VENV)/bin/anyaccel bench --results benchmarks/results

lint: $(VENV)/.installed-test
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i $$(git ls-files '*.h' '*.cpp' '*.cu' '*.hip')

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "anyaccel needs Python 3.10 or newer. Fix: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv "$(VENV)" || \
	  { rm -rf "$(VENV)"; echo "making $(VENV) failed. Fix: apt-get install python3-venv"; exit 1; }

comma := ,
LOG := $(VENV)/install.log

# $(call install,what,arguments of pip): pip's output goes to a file, whose end is shown if pip fails. Python compiles what is imported, when it
# is: pip would take half a minute to compile everything, on one core.
install = @echo "installing $(1)"; $(VENV)/bin/python -m pip install --quiet --no-compile $(2) >>"$(LOG)" 2>&1 || \
  { tail -n 30 "$(LOG)"; echo "installing $(1) failed; everything that pip said is in $(LOG)"; exit 1; }

$(VENV)/.torch: $(VENV)/bin/python
	$(call install,pip,--upgrade "pip>=24")
	$(call install,$(TORCH) and numpy,"$(TORCH)" numpy)
	@touch $@

$(VENV)/.installed-%: $(VENV)/.torch pyproject.toml
	$(call install,anyaccel[$*] into $(VENV),"$(TORCH)" --editable ".[$*$(addprefix $(comma),$(CXX_EXTRA) $(EXTRAS))]")
	@touch $@

clean:
	rm -rf .venv .venv-cuda .venv-ecosystem .venv-gpu-day .venv-old-torch .venv-torch-* .venv-triton .venv-sycl-* .venv-wheel-* build dist demo_out *.egg-info
