# Every target does its own set-up: a virtual environment with the locked dependencies.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# The environment of the demo alone, which `make test` and the others complete.
SHOWN  := $(VENV)/.demo
PYTEST := $(BIN)/python -m pytest
TIMES  := --durations=0 --durations-min=0.05
# Links that show the rooms as rebal.*, as an installed rebal does: for mypy, pyright and editors.
LINKS  := build/typing/rebal

.PHONY: help demo pictures screens search test test-live test-fast test-full mutants hostile coverage lint types schemas bench lock clean

help:
	@echo "make demo       the main job in four chapters, on captured groups (no Kafka, no Java)"
	@echo "make test       all pure tests, and a live story of each path (Java 17): 12 minutes"
	@echo "make test-live  the other live tests: versions, failovers, stores, clusters, the wheel"
	@echo "make test-fast  the tests without Java, under a minute"
	@echo "make test-full  every path and version, long stories included: two to three hours"
	@echo "make mutants    120 mutants, drawn at random, against the pure planner tests"
	@echo "make hostile    2,000 runs with hostile options, files and broker answers"
	@echo "make search     200,000 generated roll-outs, as rebal advises them (three hours)"
	@echo "make coverage   the share of the statements that the fast tests run"
	@echo "make schemas    the JSON Schemas of the documents, anew from their records"
	@echo "make pictures   the pictures of docs/ and the pages of the rules, as rebal prints them now"
	@echo "make screens    the kept screens of the tests anew: read the difference"
	@echo "make lint types bench lock clean"

$(READY): pyproject.toml requirements.lock | $(LINKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rebal needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes \
		-r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(LINKS):
	@mkdir -p $@
	@for room in cli groups inspectors planner; do ln -sfn ../../../$$room $@/$$room; done

# Only what the demo needs, in the locked versions: no Spark, no tests' and lint tools.
$(SHOWN): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rebal needs Python 3.11 or newer: make PYTHON=python3.11 ..." >&2; exit 2; }
	@mkdir -p build
	@grep -oE '^[A-Za-z0-9._-]+==[^ ;]+' requirements.lock >build/locked.txt
	@echo "1/3  a virtual environment"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/3  rebal and what it needs"
	@$(BIN)/python -m pip install --disable-pip-version-check --constraint build/locked.txt -e . | \
		grep -E '^(Collecting|Installing|Successfully)' || { echo "pip failed" >&2; exit 1; }
	@echo "3/3  the demo"
	@touch $@

demo: $(if $(wildcard $(READY)),$(READY),$(SHOWN))
	@$(BIN)/rebal demo

# What the live tests need is fetched while the pure ones run; the stories share a broker a worker.
test: $(READY)
	@mkdir -p build
	@$(BIN)/python -m tests.kafka.fetch >build/fetch.log 2>&1 & fetching=$$!; \
	$(PYTEST) -n auto --dist worksteal -m "not live and not package" $(TIMES); pure=$$?; \
	wait $$fetching; \
	$(PYTEST) -n 2 --dist worksteal -m story $(TIMES) && exit $$pure

# Two workers, each with brokers of its own: with a third one, Spark outlasts its time limits.
test-live: $(READY)
	$(PYTEST) -n 2 --dist loadfile -m "(live or package) and not story" $(TIMES)

test-fast: $(READY)
	HYPOTHESIS_PROFILE=quick $(PYTEST) -n auto -m "not live and not package and not slow"

test-full: $(READY)
	REBAL_FULL=1 $(PYTEST) $(TIMES); tested=$$?; \
	$(MAKE) hostile mutants && exit $$tested

# The survivors are printed as diffs; SEED=7 draws the mutants of another run again.
mutants: $(READY)
	$(BIN)/python -m tests.mutants --sample 120 $(if $(SEED),--seed $(SEED))

# Each kind of fault is printed once, with the seed of its run.
hostile: $(READY)
	$(BIN)/python -m tests.hostile --runs 2000 \
		--seed $(or $(SEED),$$($(BIN)/python -c 'import secrets; print(secrets.randbelow(10**9))'))

# Generated histories in which rebal's advice is carried out; counter-examples are printed.
search: $(READY)
	@drawn=$$($(BIN)/python -c 'import secrets; print(secrets.randbelow(10**12))'); \
	for part in 1 2; do \
		$(BIN)/python -m tests.search --histories 200000 --random $$drawn --shard $$part/2 & \
		parts="$$parts $$!"; \
	done; failed=0; for part in $$parts; do wait $$part || failed=1; done; exit $$failed

coverage: $(READY)
	rm -rf build/coverage
	HYPOTHESIS_PROFILE=quick $(BIN)/coverage run -m pytest -n auto -q \
		-m "not live and not package and not slow"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Both at once, each on a core of its own; pyright only resolves the imports, as an editor does.
types: $(READY)
	@$(BIN)/basedpyright >build/pyright.log 2>&1 & resolving=$$!; \
	MYPYPATH=build/typing $(BIN)/mypy --strict --explicit-package-bases -p rebal -p tests.search; typed=$$?; \
	wait $$resolving; resolved=$$?; cat build/pyright.log; \
	test $$typed = 0 && test $$resolved = 0

bench: $(READY)
	$(BIN)/python -m bench

# Refuses to change what a reader of the same major version relies on.
schemas: $(READY)
	$(BIN)/python -m bench.schemas cli/data/schemas

pictures: $(READY)
	$(BIN)/python -m bench.pictures docs
	$(BIN)/python -m bench.rule_pages docs

# Each kept screen and answer (tests/data/screens, tests/data/standings) as it is now.
screens: $(READY)
	REBAL_SCREENS=renew $(PYTEST) -q tests/cli/test_screens.py tests/planner/test_standings.py \
		tests/fleet/test_truth.py tests/fleet/test_report_kept.py

lock: $(READY)
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	build/lock/bin/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-header \
		--upgrade-package 'pyspark==4.0.0' --extra fleet --extra test --extra lint --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) build dist rebal.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
