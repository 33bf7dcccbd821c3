# All paths are relative: the project works in a directory with a space in its name.
ORDERS ?= 100000
PIPELINE ?= orders
ROUNDS ?= 100
# Integration tests often wait for brokers and Spark: one process more than there are cores, each with brokers of its own,
# keeps the cores busy. Each takes up to 3.5 GB, so a machine with little memory gets fewer of them.
WORKERS ?= $(shell awk -v most="$$(($$(nproc) + 1))" '/^MemTotal/ {n = int($$2 / 4500000); print (n > most ? most : n < 1 ? 1 : n)}' /proc/meminfo)
PARALLEL = -n $(WORKERS) --no-loadscope-reorder
PYTHON := .venv/bin/python
# Any of these can run bootstrap.py, which then looks for a fit one itself.
BOOTSTRAP = $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11) bootstrap.py

export PYTHONPATH := plugins
# Also where the shell has the AIRFLOW_HOME of another Airflow, in which everything would be kept otherwise.
export STREAMPLAN_HOME ?= $(CURDIR)/.streamplan

.DEFAULT_GOAL := help
.PHONY: help setup demo unit test quick archive soak fuzz chaos bench lint docs wheel down status clean lock

help: ## what can be made
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup: ## the environment, Java and the jars; the others call it
	@$(BOOTSTRAP)

demo: export STREAMPLAN_PIPELINES ?= streamplan.pipelines.$(PIPELINE)
demo: setup ## deploy and verify PIPELINE (orders) with ORDERS (100000) more records; SECURE=1 secures it; leaves it running
	@$(PYTHON) -m streamplan demo $(PIPELINE) --records $(ORDERS) $(if $(SECURE),--secure)
	@$(PYTHON) -m streamplan.spark.class_archive

unit: setup ## the tests that need no brokers, no Spark and no Airflow, in half a minute
	$(PYTHON) -m pytest tests/unit

test: ## every check of code and pages, and every quick test: lint, docs, unit, dags, integration
	@$(BOOTSTRAP) --oracle
	@$(MAKE) --no-print-directory --jobs 3 lint quick archive docs
	$(PYTHON) -m pytest $(PARALLEL) --durations 40 --durations-min 20 tests/integration

quick: setup
	$(PYTHON) -m pytest -n 2 tests/unit tests/dags

# Spark starts some seconds sooner with it. It takes most of a minute once, so that nothing waits for it but the bench.
archive: setup
	@$(PYTHON) -m streamplan.spark.class_archive

# Celery 5.7 has no celery.backends.database.retry, which the provider of Celery imports.
soak: export CASES ?= 25
soak: export SEED ?= $(shell date +%j%H%M)
soak: ## the tests that prove by length: hours. CASES (25) of each are tried, which SEED chooses; CASES=0 tries all, for days
	@$(BOOTSTRAP) --oracle
	@$(PYTHON) -m pip install --quiet --constraint requirements.txt apache-airflow-providers-celery==3.26.0 celery==5.6.3
	$(PYTHON) -m pytest $(PARALLEL) -m soak
	@$(MAKE) --no-print-directory fuzz SECONDS=1800

fuzz: setup ## changed bytes and generated values for every serde, SECONDS (60) each; SEED makes the cases
	PYTHONPATH=plugins:. $(PYTHON) -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(FUZZ)

chaos: setup ## break the running system ROUNDS (100) times, by the schedule of SEED, and compare every record
	PYTHONPATH=plugins:. $(PYTHON) -m tests.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(CHAOS)

bench: archive ## race with Kafka Streams over ORDERS (6000000), ROUNDS (5) of each, and more options in BENCH
	@$(BOOTSTRAP) --oracle
	@mkdir -p .streamplan
	PYTHONPATH=plugins:benchmarks $(PYTHON) benchmarks/bench.py --json .streamplan/bench.json --png .streamplan/bench.png \
		$(if $(filter command,$(firstword $(origin ORDERS))),--orders $(ORDERS)) \
		$(if $(filter command,$(firstword $(origin ROUNDS))),--rounds $(ROUNDS)) $(BENCH)

lint: setup ## ruff, mypy in strict mode, import contracts
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports

DOCS = .streamplan/docs-venv

# MkDocs has an environment of its own: its packages are not among those that Streamplan is tested with.
$(DOCS)/installed: requirements-docs.txt
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --requirement requirements-docs.txt
	@touch $@

docs: setup ## the pages of docs/ and the reference as a site, in .streamplan/site; a wrong link is an error
	@$(MAKE) --no-print-directory $(DOCS)/installed
	@$(PYTHON) -m website .streamplan/reference
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --quiet --strict
	@$(PYTHON) -m website.foreign_hosts .streamplan/site
	@echo "Read it: $(PYTHON) -m http.server --bind 127.0.0.1 --directory .streamplan/site 8000, then http://127.0.0.1:8000/"

status: setup ## what runs, where, and whether it is well
	@$(PYTHON) -m streamplan status

down: ## stop everything that was started
	@if [ -x $(PYTHON) ]; then $(PYTHON) -m streamplan down; fi

clean: down ## stop everything and remove what was made here (the jars shared among clones stay)
	rm -rf .streamplan .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

# It needs the build backend alone: that of the environment where there is one, else an environment of two packages.
wheel: ## the package as a wheel, in dist/; without an environment it takes some seconds and needs the network
	@if $(PYTHON) -c 'import hatchling' 2>/dev/null; then \
		$(PYTHON) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .; \
	else \
		$(firstword $(BOOTSTRAP)) -m venv .streamplan/wheel && \
		.streamplan/wheel/bin/python -m pip wheel --quiet --no-deps --ignore-requires-python --wheel-dir dist .; \
	fi
	@ls dist/*.whl

lock: setup ## resolve pyproject.toml and requirements*.in anew
	$(PYTHON) -m uv pip compile --universal --python-version 3.11 -U pyproject.toml requirements.in --extra airflow --extra protobuf -o requirements.txt
	$(PYTHON) -m uv pip compile --universal --python-version 3.11 -U requirements-dev.in -o requirements-dev.txt
	$(PYTHON) -m uv pip compile --universal --python-version 3.11 -U requirements-docs.in -o requirements-docs.txt
