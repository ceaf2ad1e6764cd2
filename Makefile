# Everything a person runs here. The environment is made once in .venv/ and remade when the lock or the project changes.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo ui check test test-slow cluster-test golden bench

PYTHON ?= python3
BIN := .venv/bin
export CASEBITS_HOME := $(abspath $(or $(CASEBITS_HOME),.casebits))
export DAGSTER_HOME := $(CASEBITS_HOME)/dagster
PROVEN := casebits_dagster/records/*,casebits_dagster/frontier.py,casebits_dagster/admission/*

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: .venv/ready ## build the whole sample corpus through Dagster and say what came out
	@$(BIN)/casebits demo

ui: .venv/ready ## open Dagster on the instance that `make demo` uses
	@$(BIN)/python -m casebits_dagster.orchestration.instance >/dev/null
	@echo "Dagster starts on http://localhost:3000 (stop it with Ctrl-C); its instance is $(DAGSTER_HOME)"
	@exec $(BIN)/dagster dev --workspace workspace.yaml

check: .venv/ready ## format, lint, types, import contracts
	@$(BIN)/ruff format --check --quiet . || { $(BIN)/ruff format --check .; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict --no-error-summary
	@$(BIN)/lint-imports --no-cache pyproject.toml | grep -E 'KEPT|BROKEN|->|Contracts:'
	@echo "check: format, lint, types and import contracts are fine"

test: .venv/ready ## run the tests; the rooms that prove things must be covered branch by branch
	@$(BIN)/pytest --quiet --numprocesses auto --maxprocesses 4 --dist loadfile --cov --cov-report=
	@$(BIN)/coverage report --include='$(PROVEN)' --fail-under=100

test-slow: .venv/training ## run the slow tests: kills, daemons, a real browser, PyTorch, what reads exports
	@OMP_NUM_THREADS=1 $(BIN)/pytest --quiet -m slow --ignore tests/cluster

cluster-test: .venv/cluster ## a cluster of real servers, with kills, and every command of the operator's guide
	@$(BIN)/pytest --quiet -m slow -s tests/cluster

golden: .venv/ready ## rewrite tests/golden; look at the difference before you commit it
	@$(BIN)/python -m tests.golden.rebuild

bench: .venv/ready ## run every benchmark
	@for file in benchmarks/[a-z]*.py; do echo "$$file"; $(BIN)/python -m "benchmarks.$$(basename $$file .py)"; done

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo >&2 \
	  "Python 3.11 or newer is needed, and $(PYTHON) is $$($(PYTHON) --version 2>&1); name another one: make PYTHON=python3.12 ..."; \
	  exit 1; }
	@echo "setting up .venv/ (once, a minute or two) ..."
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.venv/cluster: requirements-cluster.lock .venv/ready
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock -r requirements-cluster.lock
	@touch $@

.venv/training: requirements-training.lock .venv/ready
	@echo "adding PyTorch and the readers of exports to .venv/ (once) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r requirements.lock -r requirements-training.lock
	@touch $@
