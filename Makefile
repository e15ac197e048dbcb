# The verbs of this house; `make help` explains them.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo fast test deep chaos record lint checked compiled bench lock clean

help: ## say what each verb does
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: .venv/.ready ## make .venv with everything pinned, and dr-ctl in it

.venv/.ready: requirements.lock requirements-dev.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 or later is needed"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup ## the main job on two real brokers: swapover, failover and failback under load, judged by a ledger
	$(BIN)/dr-ctl demo

# Which tier runs what, and why: docs/testing.md. Two workers a core: one has all tests of Artemis, one those of Spark, one
# the stories of Classic, and these wait for what they have started.
WORKERS := $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))
PYTEST := $(BIN)/python -m pytest -q --numprocesses $(WORKERS) --maxprocesses 8 --dist loadgroup --durations=10

# Hundreds of tests start a process of dr-ctl: without compiled modules each compiles all of it anew.
unexport PYTHONDONTWRITEBYTECODE

# A test that hangs says where, and fails. No worker is ended for that: without one pytest-xdist may wait for ever.
HANGS := --timeout=600
HANGS_DEEP := --timeout=3600

fast: checked ## lint, types and the tests that start nothing: no site, no Java, no Spark
	$(PYTEST) $(HANGS) -m "not broker and not spark and not deep and not chaos" --ignore tests/twin --ignore tests/stories

test: checked ## what a change has to pass: fast, the twin, a part of Spark's, and one story on real brokers for each topology
	$(PYTEST) $(HANGS) -m "not deep and not chaos"

deep: checked ## every test but the longest, before a release or at night: all matrices, all on real brokers
	$(PYTEST) $(HANGS_DEEP) -m "not chaos"

chaos: setup .venv/connect/.ready ## the longest tests, whole: hours
	DR_CTL_CONNECT=$(CURDIR)/.venv/connect $(PYTEST) -m chaos

record: setup ## what every operation calls and how it ends, calm and under faults, written anew into tests/record/files
	$(PYTEST) $(HANGS_DEEP) tests/record -k whole --accept

# What only a client of Spark Connect needs, beside the environment and not in it: it would cost every process start and memory.
.venv/connect/.ready: requirements-connect.lock .venv/.ready
	rm -rf .venv/connect
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --target .venv/connect -r requirements-connect.lock
	@touch $@

lint: setup ## format, lint rules and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Types take one core, so the tests' modules are compiled on another: workers that start together each compile them all.
checked: setup
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint compiled

compiled: setup
	@$(BIN)/python -m pytest --quiet --collect-only >/dev/null || true  # what is wrong with them the tests say

bench: setup ## the figures in docs/measured.md, measured again
	$(BIN)/python -m bench

# The first lock is what dr-ctl itself needs, the second that without PySpark, for hosts that only move, the third what is
# needed to work on it too. tzdata is pinned for one platform only there, and needed on all by the last.
lock: setup ## write the locks anew (needs uv on the PATH)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --constraint requirements.lock --no-annotate --no-emit-package pyspark --no-emit-package py4j \
	  pyproject.toml -o requirements-move.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --constraint requirements.lock --extra dev --extra lab --extra bench --extra postgresql --extra mariadb --extra opentelemetry \
	  pyproject.toml -o requirements-dev.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --extra connect --constraint requirements-dev.lock --no-annotate \
	  $$(sed -nE '/^tzdata==/d; s/^([A-Za-z0-9._-]+)==.*/--no-emit-package \1/p' requirements-dev.lock | sort -u) \
	  pyproject.toml -o requirements-connect.lock

clean: ## remove what setup and the tests made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist
