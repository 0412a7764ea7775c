# Each target sets up .venv by itself, from requirements.lock, with uv when it is there and plain pip otherwise.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
AGAIN  ?=
STAMP  := $(VENV)/.installed
EXTRAS := $(VENV)/.extras
UV     := $(shell command -v uv 2>/dev/null)

.PHONY: openapi demo test test-slow test-docker test-model lint types bench clean lock venv
.DEFAULT_GOAL := venv

venv: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Custody needs Python 3.11 or newer; set PYTHON=python3.12 or the like")'
ifneq ($(UV),)
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --python $(BIN)/python requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
else
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif
	@touch $(STAMP)

# Optional libraries whose use is tested: parquet and S3. Nothing else needs them.
$(EXTRAS): $(STAMP) requirements-extras.lock
ifneq ($(UV),)
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-extras.lock
else
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-extras.lock
endif
	@touch $(EXTRAS)

demo: $(STAMP)
	@$(BIN)/custody demo

test: $(EXTRAS)
	$(BIN)/python -m pytest $(AGAIN)

# The crash matrix and its like: a real process is killed at every named point.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow $(AGAIN)

# Over runc and gVisor, with the engine that DOCKER_HOST names or one of its own.
test-docker: $(STAMP)
	.ci/engine run $(BIN)/python -m pytest -m docker $(AGAIN)

test-model: $(STAMP)
	$(BIN)/python -m pytest -m model --timeout 1200 -rs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

# The contract of the HTTP API, checked in; a test says when it is not current.
openapi: $(STAMP)
	$(BIN)/python -m controlplane.api.document docs/openapi.json

bench: $(STAMP)
	$(BIN)/python -m bench

lock: $(STAMP)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--group dev --extra build pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
		--group pyproject.toml:extras -c requirements.lock -o requirements-extras.lock

clean:
	rm -rf $(VENV) .custody .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
