# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.installed
CLUSTERS := $(VENV)/.installed-clusters
BENCH := $(VENV)/.installed-bench
INTEGRATIONS := $(VENV)/.installed-integrations

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-integrations test-example bench-certify bench-update bench-gpu bench-coverage lint format types clean

help:
	@echo "make demo       certify, train and report with the embedded defaults"
	@echo "make test       the test suite"
	@echo "make test-slow  the tests that take long"
	@echo "make test-integrations  the tests with TRL, datasets, verifiers and trackers, which it installs"
	@echo "make bench-certify  orders per second of every schema, as JSON in benchmarks/results"
	@echo "make bench-update  an update of VCRT beside one of TRL's GRPOTrainer, as JSON in benchmarks/results"
	@echo "make bench-gpu  an update of the paper's two models on a GPU, beside its floor, as JSON in benchmarks/results"
	@echo "make bench-coverage  how often the intervals hold a known difference, for benchmarks/results and the report"
	@echo "make test-example  the tests of the example package"
	@echo "make lint       ruff, lint and format"
	@echo "make types      mypy, strict"
	@echo "make format     let ruff mend what it can"
	@echo "make clean      remove the environment and the caches"

setup: $(DONE)

# PyTorch first and pinned, so that nothing later asks for another build. Which build of it comes (CPU or CUDA) is
# the package index's choice: to have the small CPU one, point PIP_EXTRA_INDEX_URL at PyTorch's CPU index.
# dm-clrs without its dependencies, which include TensorFlow and JAX; vcrt needs neither.
$(DONE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps dm-clrs==2.0.3
	@touch $@

# Ray and Dask, for the tests of certification on a cluster.
$(CLUSTERS): $(DONE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ray,dask]'
	@touch $@

# TRL, to be compared with.
$(BENCH): $(DONE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

# TRL, datasets, verifiers and trackers, for the tests of the bridges to them; `make test` skips those without.
$(INTEGRATIONS): $(DONE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,trl,verifiers,tracking]'
	@touch $@

demo: $(DONE)
	$(BIN)/vcrt demo

test: $(DONE)
	$(BIN)/python -m pytest -m "not slow" -n 2

test-slow: $(CLUSTERS)
	$(BIN)/python -m pytest -m slow

test-integrations: $(INTEGRATIONS)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/test_integrations_*.py

# Apart from the environment of everything else, so that it is not registered there.
test-example: $(DONE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/examples examples/sqlite_changes
	PYTHONPATH=build/examples $(BIN)/python -m pytest examples/sqlite_changes

bench-certify: $(DONE)
	$(BIN)/python benchmarks/certify.py --output benchmarks/results/certify.json

bench-update: $(BENCH)
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/update.py --output benchmarks/results/update.json

# On a lent GPU, where a command has a time limit: one model a command, see the script.
bench-gpu: $(BENCH)
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/gpu_update.py --model qwen3.5-2b --output benchmarks/results/gpu_update.json
	HF_HUB_OFFLINE=1 $(BIN)/python benchmarks/gpu_update.py --model granite-4.1-3b --output benchmarks/results/gpu_update.json

# The report quotes the results, so they are part of the package too.
bench-coverage: $(DONE)
	$(BIN)/python benchmarks/coverage.py --output benchmarks/results/coverage.json
	cp benchmarks/results/coverage.json src/vcrt/report/coverage.json

lint: $(DONE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DONE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DONE)
	$(BIN)/mypy
	MYPYPATH=src:examples/sqlite_changes $(BIN)/mypy examples/sqlite_changes/vcrt_sqlite

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
