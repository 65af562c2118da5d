# Two commands do all the set-up on a machine with Python 3.11, gcc and make: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Further options for pip.
PIP_ARGS ?=
BIN := .venv/bin
PYTEST := ANDANTE_TEST_RUN=build/test/run $(BIN)/python -m pytest
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo picture test check format clean

demo: .venv/.installed
	$(BIN)/python bench/demo.py

picture: runs/demo/demo.json
	$(BIN)/python bench/picture.py

runs/demo/demo.json:
	$(MAKE) demo

# Two workers for what is not in real time, then one test at a time for what is; all share one trained run.
# The runtime's tests have processes without torch: each of their loops locks and searches all memory first.
test: check .venv-ros/.installed
	rm -rf build/test
	$(PYTEST) $(WORKERS) -m "not realtime" tests/test_runtime_*.py
	$(PYTEST) $(WORKERS) -m "not realtime" --ignore-glob="tests/test_runtime_*.py"
	$(PYTEST) -m realtime

check: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	touch $@

.venv-ros/.installed: pyproject.toml ros_nodes/setup.py ros_nodes/requirements-test.txt
	$(PYTHON) -m venv .venv-ros
	.venv-ros/bin/pip install --quiet --disable-pip-version-check -r ros_nodes/requirements-test.txt
	.venv-ros/bin/pip install --quiet --disable-pip-version-check --no-deps -e . -e ros_nodes
	touch $@

clean:
	rm -rf .venv .venv-ros build dist runs .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
