# Two commands do their own set-up on a machine that has Python 3.11 or newer and PyPI: make demo, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.set-up-done
# Tests run in this many processes, each with one thread; idle ones take over what is left of another's share.
WORKERS ?= 2
# Seed of the long Hypothesis profile; another seed is another set of examples.
SEED ?= 0
# The tokenizer that benchmarks of a vocabulary read.
TOKENIZER ?= $(HOME)/.cache/structgen/models/smollm2-135m-instruct

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint pytest bench docs format clean

help: ## say what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The stamp is newer than pyproject.toml exactly when .venv holds what pyproject.toml asks for.
# torch comes first and by exact version, so that no later range fetches another build of it.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "structgen needs Python 3.11 or newer, and '$(PYTHON)' was not found." \
	  "Install it, or name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "structgen needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	  "Name a newer one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@echo "Setting up $(VENV): torch, transformers and the rest. Once, some minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## a real local model fills a typed object
	@$(BIN)/structgen demo

test: lint ## lint, types, imports, then the tests, docs and examples (minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

# A thousand examples take longer than the time limit of make test, where Lark reads each text for comparison.
test-full: lint ## everything, long suites and long Hypothesis runs included
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --hypothesis-profile=long --hypothesis-seed=$(SEED) --timeout=1800

lint: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy --strict structgen
	$(BIN)/lint-imports --no-logo

bench: $(STAMP) ## every benchmark that needs no peers or other models, each prints its table
	$(BIN)/structgen fetch-model
	@set -e; for script in $$(grep -l __main__ $$(grep -L "PEERS\|MODELS\|MACHINES" benchmarks/*.py)); do \
	  echo "== $$script"; \
	  if grep -q FOLDER $$script; then $(BIN)/python $$script $(TOKENIZER); else $(BIN)/python $$script; fi; done

docs: $(STAMP) ## write the generated parts of docs/
	$(BIN)/python scripts/build_docs.py

format: $(STAMP) ## sort imports and format everything
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and all caches of this folder (the model stays in the user's cache)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
