# Two commands do everything on a fresh Debian 12/13 or Ubuntu 24.04 machine: `make demo` and `make test`.
# Both are idempotent and quick the second time.

SHELL := /bin/bash
JOBS := $(shell nproc)
PYTHON := .venv/bin/python
SOURCES := $(shell git ls-files 'src/*' 'python/bedplate/*' 'include/*' 'cmake/*' CMakeLists.txt pyproject.toml 2>/dev/null)

.PHONY: help
help: ## this text
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 26

.PHONY: setup
setup: ## system packages and .venv with PyTorch; says what it installs
	@tools/setup.sh

PIP_INSTALL := $(PYTHON) -m pip install -q --disable-pip-version-check --no-build-isolation --force-reinstall --no-deps

.venv/bin/bedplate: $(SOURCES) | setup
	@echo "building and installing bedplate into .venv"
	@$(PIP_INSTALL) . 2> >(grep -v '^WARNING: Location' >&2)
	@touch $@

.PHONY: install
install: setup .venv/bin/bedplate ## the `bedplate` command and Python package in .venv

.PHONY: demo
demo: install ## train a real job, see its walls, train the mended job, compare
	@examples/wall/demo.sh

.PHONY: build
build: setup ## everything with tests, warnings are errors, in build/ci
	@cmake --preset ci >build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }; rm -f build-configure.log
	@cmake --build --preset ci -j $(JOBS)

# What is tested is what is installed: one build, in build/ci, with the tests and with warnings as errors.
.PHONY: test
test: setup ## all tests
	@echo "building bedplate with its tests in build/ci, installing it into .venv"
	@$(PIP_INSTALL) --config-settings=build-dir=build/ci --config-settings=cmake.define.BEDPLATE_TESTS=ON \
	  --config-settings=cmake.define.BEDPLATE_WERROR=ON . \
	  2> >(grep -v '^WARNING: Location' >&2)
	@touch .venv/bin/bedplate
	@tools/run_tests.sh

.PHONY: provoke
provoke: install ## real faults, made and mended five times in turn; over an hour on a quiet machine
	@BEDPLATE_PROVOKE=long BEDPLATE=$(CURDIR)/.venv/bin/bedplate $(PYTHON) -m pytest -q tests/provoke

.PHONY: lint
lint: setup ## layers, formatting, headers that compile alone
	@tools/check_layers.py
	@tools/check_headers.sh
	@tools/check_format.sh

.PHONY: format
format: ## clang-format over the C++ sources
	@git ls-files '*.h' '*.cc' | xargs clang-format -i

.PHONY: bench
bench: install ## the doctor's own cost, interleaved with bare runs
	@$(PYTHON) bench/doctor_overhead/run.py

.PHONY: bench-doctor-vs
bench-doctor-vs: install ## the doctor beside traceml-ai and datapath-doctor on every provoked fault
	@BEDPLATE=$(CURDIR)/.venv/bin/bedplate $(PYTHON) bench/doctor_vs/run.py

.PHONY: clean
clean: ## removes build/ and .venv
	@rm -rf build .venv
