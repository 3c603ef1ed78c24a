# Everything a newcomer needs: `make demo`, `make test`. Everything a developer needs: `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/data/locomo-dev.json
PYTEST_WORKERS ?= auto

.DEFAULT_GOAL := help
.PHONY: help setup demo test sim check format features bench bench-quality clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1|/' | column -t -s '|'

# The stamp makes the environment once and again whenever the dependencies change.
$(VENV)/.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("memrelay needs Python 3.11 or newer; this is %d.%d. Set PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

setup: $(VENV)/.stamp ## Make .venv with everything installed

demo: setup ## Run the main job for real: relayer, plugin, two agents, kill and restart
	$(BIN)/python -m gateway_plugin.demo $(DEMO_ARGS)

test: setup ## Run all tests
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal tests

sim: setup ## Simulate replicas over a faulty store; SEEDS=n schedules
	$(BIN)/python -m pytest tests/simulation --seeds $(or $(SEEDS),2000)

check: setup ## Format, lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/features.py --check

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

features: setup ## Write docs/features.md from the tests' markers
	$(BIN)/python tests/features.py --write

bench: setup ## Measure speed as ratios, side by side, and recall quality
	$(BIN)/python -m bench.run --data $(DATA)

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/out
