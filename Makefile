# make lab    makes the environment, installs the project and opens JupyterLab on labs/
# make test   makes the environment, installs the project and runs everything CI runs
# make fuzz   runs 10,000 generated programs, compiled and in Python (make fuzz PROGRAMS=500 FIRST=20000)
# make mutants alters 200 rows of tables, one at a time: do the tests notice? (make mutants MUTANTS=20 FIRST=400)
# make graphs runs 5,000 random graphs of aten operators, compiled and by eager, with gradients (make graphs GRAPHS=500 FIRST=20000)
# make sanitize runs the corpus and random graphs under the address and undefined-behaviour sanitizers of g++ (make sanitize SANITIZED=50)
# Needs Python 3.11 or 3.12 with venv, a C++ compiler and make; another interpreter: make lab PYTHON=/path/to/python

VENV   ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
            $$p -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN    := $(VENV)/bin
JOBS   ?= 2
PROGRAMS ?= 10000
GRAPHS ?= 5000
SANITIZED ?= 500
FIRST  ?= 0
MUTANTS ?= 200
TSC    ?= npx --yes --package typescript@5.9 tsc

.PHONY: lab test env lint types tests notebooks node tsc bench fuzz graphs sanitize mutants golden clean

lab: env
	$(BIN)/jupyter lab labs

test: env lint types node tsc tests notebooks

env: $(VENV)/.installed

# JupyterLab's extension is installed as a copy: a change of it installs again
$(VENV)/.installed: pyproject.toml constraints.txt $(shell find widgets/labextension -type f)
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or 3.12 was found. Install one, or say: make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[lab,test]"
	touch $@

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env
	$(BIN)/pyright --pythonpath $(BIN)/python

tests: env
	$(BIN)/python -m pytest -p no:nbval -n $(JOBS) --dist loadfile tests

notebooks: env
	$(BIN)/python -m pytest --nbval labs solutions --nbval-current-env --nbval-cell-timeout 120 --nbval-sanitize-with labs/sanitize.cfg -n $(JOBS) --dist loadscope

node: env
	@if command -v node >/dev/null; then node --test widgets/; elif [ -n "$$COMPILER_LAB_REQUIRE_ALL" ]; then echo "Node.js is missing"; exit 1; else echo "skipped: the views' script tests need Node.js"; fi

# types of the views' scripts (jsconfig.json). TypeScript comes from npm's own cache or registry, never into this folder; TSC=tsc takes an installed one
tsc:
	@if command -v $(firstword $(TSC)) >/dev/null && $(TSC) --version >/dev/null 2>&1; then $(TSC) -p jsconfig.json; else echo "skipped: types of the views' scripts need Node.js with npx, and TypeScript from npm's registry or its cache"; fi

golden: env
	$(BIN)/python -m pytest tests --update-golden -k golden

bench: env
	$(BIN)/python benchmarks/run.py

# nightly: generated programs, compiled and compared with Python; failing ones are written to fuzz_failures/
fuzz: env
	$(BIN)/python -m tests.fuzz --programs $(PROGRAMS) --first $(FIRST) --jobs $(JOBS)

# nightly: one row of a table altered at a time; the differential tests have to notice each (benchmarks/mutants.md)
mutants: env
	$(BIN)/python -m tests.mutate --mutants $(MUTANTS) --first $(FIRST)

graphs: env
	$(BIN)/python -m tests.fuzz --kind graphs --programs $(GRAPHS) --first $(FIRST) --jobs $(JOBS)

# nightly: what a sanitizer finds ends the process; its report is written to fuzz_failures/ as well
sanitize: env
	$(BIN)/python -m tests.fuzz --kind corpus --backend sanitized --programs 33 --jobs $(JOBS)
	$(BIN)/python -m tests.fuzz --kind graphs --backend sanitized --programs $(SANITIZED) --first $(FIRST) --jobs $(JOBS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache fuzz_failures
