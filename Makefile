# make demo        simulate a scan, reconstruct it, print a table, write pictures to demo/
# make test        the fast tests (a few minutes on two cores)
# make test-all    all tests, also those marked slow
# make lint        formatting, lint rules and types
# Each target makes .venv by itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Two processes of tests share the cores: one thread each, and none that spins while it waits.
test test-all: export OMP_NUM_THREADS ?= 1
test test-all: export OMP_WAIT_POLICY ?= PASSIVE
# Measured data for tests, where there is some; tests that need it say so when they skip.
ifneq ($(wildcard ../shared/data),)
export GADGETRON_EBM_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test test-all lint

demo: $(READY)
	$(BIN)/gadgetron-ebm demo demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(READY)
	$(BIN)/python -m pytest -n 2

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
