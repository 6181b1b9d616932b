# Everything runs from a bare clone with Python 3.11+, make and a package index.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Some CPUs advertise AMX that the machine cannot use; bf16 then dies with SIGILL. Harmless elsewhere.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16
export TOKENIZERS_PARALLELISM ?= true

.PHONY: setup quickstart lint test test-fast test-all test-gpu programs bench docs clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt tools/install_torch.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/install_torch.py 2.13.0 --constraints constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	touch $@

$(VENV)/.ray: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[ray]"
	touch $@

quickstart: setup
	$(BIN)/seqloom quickstart --out runs/quickstart --overwrite

# scripts are checked for names and arguments that are no longer there: most of them are run seldom, and on a lent GPU
SCRIPTS := benchmarks/*.py benchmarks/*/*.py tools/*.py
LOOSE   := arg-type assignment list-item misc no-untyped-def operator return-value union-attr unused-ignore var-annotated

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy --cache-dir .mypy_cache/scripts $(addprefix --disable-error-code=,$(LOOSE)) $(SCRIPTS)

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long and not gpu"

test-fast: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long and not gpu and not slow"

test-all: lint programs $(VENV)/.docs $(VENV)/.ray
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not gpu"

# what the long tests need beside Python, on Debian: a browser for pages, LaTeX for tables; without them those tests fail
programs:
	-command -v chromium >/dev/null && command -v pdflatex >/dev/null || { apt-get update -q && \
	  apt-get install -q -y --no-install-recommends chromium texlive-latex-recommended; }

test-gpu:
	python3 -m pytest -m gpu

bench: setup
	$(BIN)/python benchmarks/train_cpu.py
	$(BIN)/python benchmarks/sample_cpu.py

# the site, in build/docs/html: every warning is an error, and nothing is fetched but packages at the first time
docs: $(VENV)/.docs
	$(BIN)/python tools/docs.py

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
