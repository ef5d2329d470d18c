# make setup | demo | test | check | bench     Everything lives in .venv; only Python 3.10+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test check format bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/setup
	scripts/setup $(PYTHON) $(VENV)
	@touch $(STAMP)

demo: setup
	$(BIN)/robostream demo

test: setup
	scripts/test $(BIN)

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/robostream bench suite --repo .

clean:
	rm -rf $(VENV) .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
