# `make demo` and `make test` need only Python 3.11 or newer; everything else is set up into .venv.
PYTHON ?= python3
KAFKA_PORT ?= 9092
CLICKHOUSE_PORT ?= 9000
VENV := .venv
# Whatever the environment says, byte code is kept: each role is a process of its own and would compile all anew.
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test faults fuzz check format bench kafka clickhouse preload lock setup clean

help: ## list the commands
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: setup ## a simulated 64-GPU job with two faults, through the whole pipeline in one process
	$(BIN)/offbeat demo

# One process more than processors, since some wait for others to start or to give up; all share a ClickHouse server.
# A file's tests share what it sets up. One that dies ends the run: the rest of its file would be waited for without
# end. More threads than processors would wait for each other.
PROCESSES = $(shell $(BIN)/python -c "import os; print(min((os.cpu_count() or 1) + 1, 4))")
test: setup ## every test, those with a real Kafka and a real ClickHouse included
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0

faults: setup ## everything that may befall the deployed pipeline, on a real Kafka and ClickHouse: over half an hour
	$(BIN)/python -m tests.faults --json

check: setup ## ruff, mypy --strict and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## throughput through a real Kafka and ClickHouse, accuracy on simulated runs, what an append costs
	$(BIN)/offbeat bench pipeline --json
	$(BIN)/offbeat bench accuracy --system operator_graph --json
	$(BIN)/offbeat bench accuracy --system pulse --noise default --json
	$(BIN)/offbeat bench sensitivity --runs 7 --healthy 1 --json
	$(BIN)/offbeat bench localization --json
	$(BIN)/offbeat bench detection --json
	$(BIN)/offbeat bench log_append --json
	$(BIN)/offbeat bench sizing --json
	$(BIN)/offbeat bench soak --minutes 10 --rss-grows 0.1 --json
	$(BIN)/offbeat bench segmentation --json
	$(BIN)/offbeat bench traffic_latency --json
	$(BIN)/offbeat bench boundaries --json
	$(BIN)/offbeat bench granularity --json
	$(BIN)/offbeat bench parallelism --json
	$(BIN)/offbeat bench namespaces --json

fuzz: setup ## a million damaged inputs against every decoder and importer, which takes half an hour
	$(BIN)/python -m tests.fuzz --inputs 1000000 --json

kafka: setup ## a local Kafka broker in the foreground; Ctrl-C stops it
	$(BIN)/python -m local.kafka --port $(KAFKA_PORT)

clickhouse: setup ## a local ClickHouse server in the foreground; Ctrl-C stops it
	$(BIN)/python -m local.clickhouse --port $(CLICKHOUSE_PORT) --password-file $(VENV)/clickhouse-password

preload: setup ## the library that tells what a training process calls (docs/collectors.md); needs a C compiler
	mkdir -p build
	$(BIN)/offbeat preload build

lock: setup ## resolve the dependencies anew into requirements.lock
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --upgrade \
		--generate-hashes --no-header --no-annotate --quiet --output-file requirements.lock

setup: $(INSTALLED) ## install what is needed into .venv; every other command does it first

# Hashes are checked at every step. Byte code is compiled now: the first import of scikit-learn takes
# seven times as long without it.
$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Offbeat needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(VENV)/uv.lock
	$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode requirements.lock
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean: ## remove what the set-up and the tools have made
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
