# Every target works from a fresh clone: .venv is made on first use, and again when the pins change. PYTHON=python3.13
# names another Python, which gets an environment of its own beside it.
SHELL := /bin/bash
.DEFAULT_GOAL := help

VENV := .venv$(if $(PYTHON),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/spark.jsa
COMPILED := $(VENV)/.compiled
FUZZ := $(VENV)-fuzz
ATHERIS := $(FUZZ)/atheris
UNIT := tests/client tests/cpo tests/log tests/model tests/plog tests/ports tests/repo tests/stream tests/testing tests/wire \
  tests/test_checksums.py tests/test_connect.py tests/test_dependencies.py tests/test_frames.py tests/test_ports.py tests/test_seeds.py tests/test_tidy.py
QUICK := (not remote or store_protocol) and not crash and not kill and not damage and not protocols \
  and not faults and not full_disk and not power_loss

.PHONY: help setup check test matrix fuzz explore objects servers lint format demo docs peers bench bench-all clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Make .venv with everything in it (PYTHON=python3.13: .venv-python3.13)

$(READY): pyproject.toml constraints.txt tools/setup.sh tests/events/reference/package-lock.json \
  tests/azure/package-lock.json
	@VENV=$(VENV) PYTHON=$(PYTHON) tools/setup.sh

# Where this fails, tests only take longer.
$(CLASSES): $(READY) tools/spark_classes.py
	@echo "setup: making Spark start quicker (half a minute)"
	-@SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=$(CURDIR)/$@ -XX:+UseSerialGC -XX:TieredStopAtLevel=1" \
	  $(BIN)/python tools/spark_classes.py 2>&1 | cat >/dev/null # which waits for Java, too

# Else each process that runs tests would compile all of them.
$(COMPILED): $(READY)
	-@$(BIN)/pytest -q --collect-only >/dev/null && touch $@

check: lint ## Run the checks and the unit tests, while you work on a change
	@$(BIN)/pytest -q -n 4 -k "$(QUICK)" $(UNIT)

test: $(READY) ## Run every check, then every test
	@$(MAKE) --no-print-directory -j3 lint $(CLASSES) $(COMPILED)
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(BIN)/pytest -q -n 4 || { [ $$? = 1 ] && $(BIN)/python tools/again.py; } # four on two cores, too: many tests wait

matrix: $(READY) ## Run quick tests and those of Spark with Python 3.11 to 3.13 and PySpark 4.2 and 4.3 (an hour; MATRIX="--python 3.12")
	@$(BIN)/python tools/matrix.py $(MATRIX)

fuzz: $(ATHERIS) ## Feed every decoder with hostile bytes (until stopped; FUZZ_INPUTS=100000 bounds the inputs of each)
	@PYTHONPATH=$(FUZZ) $(BIN)/python -m tests.fuzz

# It exists for few versions of Python, so it is no part of the environment.
$(ATHERIS): $(READY)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --upgrade --constraint constraints.txt --target $(FUZZ) atheris

explore: $(READY) ## Run every test with every crash point, more examples and thousands of random histories (hours; PENSTOCK_LIVES=100 bounds them)
	@PENSTOCK_EXPLORE=1 $(BIN)/pytest -q -n 2 -o faulthandler_timeout=0
	@$(MAKE) --no-print-directory objects servers

servers: $(READY) ## Run the tests of plogs and logs with plogs on three plog servers
	@PENSTOCK_TEST_PLOGS=servers $(BIN)/pytest -q -n 2 tests/plog/test_plogs.py tests/plog/test_plogs_threads.py tests/log

objects: $(READY) ## Run the tests of plogs, logs, streams and seeds with plogs in object stores: in memory, with faults, S3, Azure
	@for plogs in objects faulty s3 azure; do \
	  PENSTOCK_TEST_PLOGS=$$plogs $(BIN)/pytest -q -n 2 tests/plog tests/log tests/stream tests/seeds/test_seed_[abc].py || exit 1; done

lint: $(READY) ## Run ruff, mypy and import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

demo: $(READY) ## Show what Penstock does
	@$(BIN)/penstock demo

docs: $(READY) ## Make a site of the documentation, in the folder site
	@$(BIN)/sphinx-build -q -W --keep-going -b html docs site
	@echo "open site/index.html"

peers: $(READY) ## Install the peers that Penstock is measured with, where apt can
	-@$(BIN)/python -m bench._peers

bench: peers ## Measure Penstock beside its peers in three minutes; ARGS=--full for longer
	@$(BIN)/penstock bench $(ARGS)

bench-all: $(READY) ## Print the speed of every part next to the bare disk, Kafka, RabbitMQ, FutoIn, git, Breezy and Parquet
	@$(BIN)/python -m bench.plog
	@$(BIN)/python -m bench.object
	@$(BIN)/python -m bench.cpo
	@$(BIN)/python -m bench.streams
	@$(BIN)/python -m bench.large_events
	@$(BIN)/python -m bench.watermarks
	@$(BIN)/python -m bench.aio
	@$(BIN)/python -m bench.growth
	@$(BIN)/python -m bench.copy
	@$(BIN)/python -m bench.backup
	@$(BIN)/python -m bench.server
	@$(BIN)/python -m bench.failover
	@$(BIN)/python -m bench.replication
	@$(BIN)/python -m bench.crowd
	@$(BIN)/python -m bench.futoin
	@$(BIN)/python -m bench.repo
	@$(BIN)/python -m bench.spark
	@$(BIN)/python -m bench.spark_parquet
	@$(BIN)/python -m bench.spark_idle

clean: ## Remove .venv and everything built
	@rm -rf .venv .venv-* dist site bench.html bench.json docs/_generated .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .fuzz .futoin .futoin.new .azurite .azurite.new
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
