# Every target sets up what it needs from a bare python3 (>= 3.11): the .venv here, servers for the
# tests in the user's cache directory.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test test-long servers lint bench venv requirements clean

help: ## show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

venv: $(STAMP) ## make .venv with pinned, hashed requirements and the project itself

$(STAMP): requirements/runtime.txt requirements/test.txt requirements/build.txt pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt -r requirements/test.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	touch $@

demo: $(STAMP) ## the main job, embedded: cluster, log, decisions, binds, usage report, replay check
	$(BIN)/kai-es demo

lint: $(STAMP) ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

servers: $(STAMP) ## build etcd and kube-apiserver for the tests; once per version, takes minutes
	$(PY) -m tools.kubernetes

test: $(STAMP) servers ## everything a change must pass; real Kafka, PostgreSQL and kube-apiserver included
	$(PY) -m pytest -n $(PYTEST_WORKERS) --dist loadgroup

test-long: $(STAMP) servers ## fault runs, large seeds
	$(PY) -m pytest -m long --session-timeout=86400
	$(PY) -m pytest tests/property --hypothesis-profile=search

bench: $(STAMP) ## all benchmark shapes, one JSON object per line
	$(PY) -m benchmarks all

requirements: ## pin requirements anew (needs uv)
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/runtime.txt pyproject.toml
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -c requirements/runtime.txt --extra test -o requirements/test.txt pyproject.toml
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -o requirements/build.txt requirements/build.in

clean: ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
