# make setup | demo | test | test-all | test-wheel | check | format | docs | build | bench | bench-peers     Everything lives in .venv; only Python 3.10+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
INSTALLED := $(VENV)/.installed
PEERS := .venv-peers
PEERS_PYTHON ?= python3.12

.PHONY: setup demo test test-all test-wheel check format docs build bench bench-peers clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/setup
	scripts/setup $(PYTHON) $(VENV) dev
	@touch $(STAMP) $(INSTALLED)

# What users get: robostream and what it imports, no development tools.
$(INSTALLED): pyproject.toml constraints.txt scripts/setup
	scripts/setup $(PYTHON) $(VENV)
	@touch $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/robostream demo

# What to run while editing: every stage and every promise, in a few minutes.
test: setup
	scripts/test $(BIN) -m "not long" --hypothesis-profile=short

# The same, then the rest: tests marked long, and property tests with all their examples.
test-all: test
	scripts/test $(BIN) -m "long or hypothesis"

# The same tests as `make test` on the built wheel, from outside the repository.
test-wheel: setup
	scripts/test_wheel $(BIN) -q

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The site, in site/. A broken link or a public name without its place in the reference is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

build: setup
	$(BIN)/python -m build --no-isolation

bench: setup
	$(BIN)/robostream bench suite --repo .

bench-peers: $(PEERS)/.ready
	HF_HUB_OFFLINE=1 $(PEERS)/bin/robostream bench peers --repo .

$(PEERS)/.ready: pyproject.toml scripts/setup_peers
	scripts/setup_peers $(PEERS_PYTHON) $(PEERS)
	@touch $@

clean:
	rm -rf $(VENV) $(PEERS) build dist site .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
