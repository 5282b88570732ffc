# Needs Python 3.11 or 3.12 and make, nothing else. Everything goes into .venv; running again is quick.

VENV := .venv
BIN := $(VENV)/bin
# Inside .venv: what was installed goes when it goes.
STAMPS := $(VENV)/stamps
PIP_VERSION := 26.3
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# A wish for one Python, here or in the environment: make PYTHON=/path/to/python3.12 ...
PYTHON ?=

.PHONY: demo test test-vllm check coverage bench clean wished

demo: $(STAMPS)/runtime
	@$(BIN)/rejoinder demo

test: $(STAMPS)/dev
	@$(BIN)/python -m pytest -q

# Against a vLLM that runs, see CONTRIBUTING.md.
test-vllm: export REJOINDER_TEST_VLLM_URL ?= http://127.0.0.1:8000
test-vllm: $(STAMPS)/dev
	@$(BIN)/python -m pytest -q -s tests/real

check: $(STAMPS)/dev
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q

# Of the pure modules, by lines and branches.
coverage: $(STAMPS)/dev
	@$(BIN)/python tests/pure_coverage.py

bench: $(STAMPS)/dev
	@set -e; for script in bench/*.py; do \
	  [ -e "$$script" ] || { echo "bench/ holds no scripts"; break; }; \
	  echo "== $$script"; $(BIN)/python "$$script"; \
	done

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first Python that really runs and is new enough: a shim may stand for one that is not there.
SUITS := import sys; raise SystemExit(sys.version_info[:2] not in ((3, 11), (3, 12)))

ORIGIN := import os, sys; print(sys.version.split()[0] + " of " + os.path.realpath(getattr(sys, "base_prefix", "?")))

# A wish is met or refused, every time.
wished:
	@refuse() { echo "PYTHON=$(PYTHON) $$1" >&2; exit 2; }; \
	origin=$$("$(PYTHON)" -c '$(ORIGIN)' 2>/dev/null) || refuse "does not run: name a Python 3.11 or 3.12"; \
	"$(PYTHON)" -c '$(SUITS)' || refuse "is Python $$origin: 3.11 or 3.12 is needed"; \
	"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null \
	  || refuse "has no venv: install it (Debian, Ubuntu: apt-get install python3-venv)"; \
	there=$$($(BIN)/python -c '$(ORIGIN)' 2>/dev/null) || exit 0; \
	[ "$$there" = "$$origin" ] || refuse "is Python $$origin, but $(VENV) holds $$there: make clean first"

ifneq ($(PYTHON),)
$(STAMPS)/venv: | wished
endif

$(STAMPS)/venv:
	@set -e; \
	if ! $(BIN)/python -c '$(SUITS)' 2>/dev/null; then \
	  for python in $(if $(PYTHON),"$(PYTHON)",python3.12 python3.11 python3); do \
	    "$$python" -c '$(SUITS)' 2>/dev/null || continue; \
	    if "$$python" -c 'import ensurepip, venv' 2>/dev/null; then found=$$python; break; fi; \
	    lacking=$$python; \
	  done; \
	  if [ -z "$$found" ] && [ -n "$$lacking" ]; then \
	    echo "$$lacking has no venv: install it (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; \
	  elif [ -z "$$found" ]; then \
	    echo "no Python 3.11 or 3.12 found: install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 2; \
	  fi; \
	  echo "setting up $(VENV) with $$found"; \
	  "$$found" -m venv --clear $(VENV); \
	fi; \
	$(PIP) install pip==$(PIP_VERSION); \
	mkdir -p $(STAMPS); touch $@

$(STAMPS)/runtime: $(STAMPS)/venv pyproject.toml constraints.txt
	@echo "installing what it runs on"
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/runtime
	@echo "installing what tests it"
	@$(PIP) install --constraint constraints.txt --group dev
	@touch $@
