# `make help` lists the commands. Everything runs in .venv, installed with pip from constraints.txt.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
export SCIPY_ARRAY_API := 1
export OMP_NUM_THREADS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo test docs soak integrations lint types unit browser wheel clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-13s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "provnet needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing. On Debian or Ubuntu: apt-get install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])') (or python3-venv)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -c constraints.txt hatchling editables
	$(PY) -m pip install -q --no-build-isolation -c constraints.txt -e '.[dev,plots,app]'
	@touch $(STAMP)

setup: $(STAMP) ## create .venv and install provnet with its development tools

demo: $(STAMP) ## train, evaluate and explain on the embedded digits; leaves a report to open
	$(PY) -m provnet demo --out runs/demo

test: lint types unit wheel ## ruff, mypy, pytest, and the wheel built and installed once

docs: $(VENV)/.docs ## the documentation site in build/docs, warnings are errors
	OMP_NUM_THREADS=1 $(PY) -m sphinx -E -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

$(VENV)/.docs: $(STAMP)
	$(PY) -m pip install -q --no-build-isolation -c constraints.txt -e '.[docs]'
	@touch $@

lint: $(STAMP) ## ruff: style and formatting
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(VENV)/bin/mypy

unit: $(STAMP) browser ## pytest on two workers, one torch thread each
	OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist worksteal -m "not soak and not gpu"

browser: $(STAMP) ## a browser for the tests of the page, where none is there
	@tools/browser.sh $(PY)

soak: $(STAMP) ## the long counts: kills, bit flips, random data changes (about an hour)
	PROVNET_SOAK=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q -m "soak"

INTEGRATIONS := build/integrations
integrations: ## the tests that need transformers, peft, lightning and others, in a venv apart
	@test -x $(INTEGRATIONS)/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install -q -c constraints.txt hatchling editables
	$(INTEGRATIONS)/bin/python -m pip install -q --no-build-isolation -c constraints.txt -e '.[integrations]' pytest hypothesis
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/bin/python -m pytest -q -o addopts= -W default tests/integrations

wheel: $(STAMP) ## build the wheel, install it apart from the source tree, use it once
	rm -rf build/wheel build/installed
	$(PY) -m pip wheel -q --no-deps --no-build-isolation -w build/wheel .
	$(PY) -m pip install -q --no-deps --target build/installed build/wheel/provnet-*.whl
	cd build && PYTHONPATH=installed ../$(PY) -c 'import provnet, pathlib; assert "installed" in provnet.__file__, provnet.__file__; assert len(provnet.open_data("embedded")) == 4000'
	cd build && PYTHONPATH=installed ../$(PY) -m provnet --help > /dev/null

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
