# `make demo` and `make test` do all set-up by themselves: an own .venv, the installation, the run.
# Options pass through: make demo ARGS="--artifact lsb", make test ARGS="-k signal".
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# A stamp is newer than pyproject.toml once the installation succeeded; then make has nothing to set up.
INSTALLED := .venv/.installed
INSTALLED_DEV := .venv/.installed-dev
INSTALLED_DOCS := .venv/.installed-docs

.PHONY: help demo test lint docs bench stress clean

help:
	@echo "make demo    train, find, unlearn, prove on embedded images; ends with a table and a report"
	@echo "make test    the tests; those in a browser where Chromium and its driver are found"
	@echo "make lint    ruff, mypy and the import contract"
	@echo "make docs    the site in build/site; runs the notebooks, and warnings are errors"
	@echo "make bench   speed as ratios, all benchmarks; a stopped run resumes"
	@echo "make stress  try to break runs: kills, damaged files, bad input, a full disk; a stopped run resumes"
	@echo "make clean   remove the .venv and the caches; runs stay"

demo: $(INSTALLED)
	$(BIN)/hansfree demo $(ARGS)

# One thread each: small models gain nothing from more, and processes would fight over the cores.
test: $(INSTALLED_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadgroup --no-loadscope-reorder $(ARGS)

lint: $(INSTALLED_DEV)
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

docs: $(INSTALLED_DOCS)
	HANSFREE_DOCS_EXECUTE=true NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.speed $(ARGS)

stress: $(INSTALLED_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.stress $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# $(1) is what to install. The .venv is made anew when a first attempt left it without pip.
define install
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 10) else "hansfree needs Python 3.10 or newer: make PYTHON=python3.12 ...")'
	@echo "Setting up .venv (once; PyTorch is a large download) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PIP) install -e '$(1)'
endef

$(INSTALLED): pyproject.toml
	$(call install,.)
	@touch $@

$(INSTALLED_DEV): pyproject.toml
	$(call install,.[dev])
	@touch $(INSTALLED) $@

$(INSTALLED_DOCS): pyproject.toml
	$(call install,.[docs])
	@touch $(INSTALLED) $@
