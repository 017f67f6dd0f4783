# One word each; every target makes what it needs. The environment lives in .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint type bench docs crash fencing envelopes members clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP) ## run the demonstration: a dozen slices in a throwaway repository
	@$(BIN)/python -m dispatch demo

test: $(STAMP) ## run every test
	@$(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal

lint: $(STAMP) ## formatting, lint rules and the import floors
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

type: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

bench: $(STAMP) ## the benchmarks, at sizes that end in a few minutes
	@$(BIN)/python -m dispatch bench scale
	@$(BIN)/python -m benchmarks.durable
	@$(BIN)/python -m benchmarks.fleet

crash: $(STAMP) ## the long crash campaign: kill -9 a real run, restart it, check from outside; over an hour
	@$(BIN)/python -m benchmarks.crash --store both --kills 1000

fencing: $(STAMP) ## the long fencing campaign: trouble the workers of a fleet of each kind; under an hour
	@$(BIN)/python -m benchmarks.fencing --turns 1000

envelopes: $(STAMP) ## put ten thousand strays into the queue of each kind of fleet; a few minutes
	@$(BIN)/python -m benchmarks.envelopes

members: $(STAMP) ## let workers on Kafka come and go, lose acknowledgements, kill whoever takes a turn; twenty minutes
	@$(BIN)/python -m benchmarks.members

docs: $(STAMP) ## make the pictures under docs/ anew
	@$(BIN)/python -m dispatch.demo.pictures docs/images

clean: ## remove the environment and every cache
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
