# The two commands of the README are `make train` and `make test`; `make` alone prints the targets.
# Everything lives in .venv beside this file, made when first needed and brought up to date when a
# pyproject.toml has changed. Only make and Python 3.11 or newer, with venv and pip, must be there.

# What `make train` runs, and the packages it needs.
TRAIN := run examples/arithmetic.toml
TRAIN_PACKAGES := plugins/backends/local plugins/benchmarks/arithmetic

# Where torch comes from when pip's own index has only CUDA builds: an index URL or a folder.
TORCH_INDEX :=
# How many processes share the default tests, a file to each at a time.
WORKERS := 2
# More arguments for pytest: make test ARGS="-k gateway -x"
ARGS :=

MODULES := rllm rllm_core $(notdir $(wildcard plugins/*/*/rllm_*))
PLUGIN_PATH := $(subst $() ,:,$(wildcard plugins/*/*))
MANIFESTS := $(wildcard pyproject.toml plugins/*/*/pyproject.toml)
INSTALL = python=$$($(FIND_PYTHON)) && "$$python" scripts/install.py \
    --torch-index "$(TORCH_INDEX)" --stamp $@

define FIND_PYTHON
for python in $(PYTHON) python3.11 python3; do \
    "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
        && echo "$$python" && exit; \
done; \
echo "Python 3.11 or newer, with its venv and ensurepip modules, is needed and was not found:" \
    "install it, or name one with make PYTHON=/path/to/python" >&2; exit 1
endef

.PHONY: help train test test-slow test-all lint format environment wheels clean

help:  ## print this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/make \1#\2/p' Makefile | \
	    while IFS='#' read -r target about; do printf '  %-17s %s\n' "$$target" "$$about"; done

train: .venv/.train  ## evaluate a small model, train it with GRPO on the CPU, evaluate it again
	.venv/bin/rllm $(TRAIN)

test: .venv/.test  ## run the default tests of the core and of every plugin
	.venv/bin/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile $(ARGS)

test-slow: .venv/.test  ## run the tests that drive real models, sandboxes and agents
	.venv/bin/python -m pytest -m slow $(ARGS)

test-all: .venv/.test  ## run every test
	.venv/bin/python -m pytest $(ARGS)

lint: .venv/.lint  ## check style, format and types
	@status=0; set -x; \
	.venv/bin/python -m ruff check . || status=1; \
	.venv/bin/python -m ruff format --check . || status=1; \
	MYPYPATH=$(PLUGIN_PATH) .venv/bin/python -m mypy $(addprefix -p ,$(MODULES)) || status=1; \
	exit $$status

format: .venv/.lint  ## put the code into its form
	.venv/bin/python -m ruff check --fix .
	.venv/bin/python -m ruff format .

environment: .venv/.lint  ## make what the tests and checks need, and run none

wheels: .venv/.test  ## write a wheel of the core and of every plugin to dist/
	@rm -rf dist
	@for package in . plugins/*/*/; do \
	    [ ! -e "$$package/pyproject.toml" ] || \
	    .venv/bin/python -m uv build --quiet --wheel --out-dir dist "$$package" || exit; \
	done
	@ls dist

clean:  ## remove .venv, dist and caches
	rm -rf .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment, which grows: each stamp says what has been installed into it.
.venv/.train: $(MANIFESTS) scripts/install.py
	@$(INSTALL) --extras tokens $(TRAIN_PACKAGES)

.venv/.test: $(MANIFESTS) scripts/install.py
	@$(INSTALL) --extras test,tokens,data,math --workspace
	@touch .venv/.train

.venv/.lint: .venv/.test
	@$(INSTALL) --extras lint
