# Every developer's command. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SHIM   := shim/build/libamvgpu.so

.PHONY: help demo demo-cluster test test-fast bench cluster lint types check shim proto format clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

bench: $(VENV) shim ## what things cost, as tables; the last of them needs root
	$(BIN)/python -m bench.shim_cost
	$(BIN)/python -m bench.webhook
	$(BIN)/python -m bench.extender
	$(BIN)/python -m bench.cluster --nodes 1000 --pods 4000 --churn 2000
	$(BIN)/python -m bench.plugin
	$(BIN)/python -m bench.burst

demo: $(VENV) shim ## the whole product in one process, shown in the terminal: no root, no GPU, no cluster
	$(BIN)/python -m demo

demo-cluster: $(VENV) shim ## the same on a real one-machine Kubernetes (root)
	$(BIN)/python -m tests.cluster.demo

test: $(VENV) shim ## all tests; those on a real Kubernetes need root (REQUIRE_CLUSTER=1: fail where they cannot run)
	$(BIN)/python -m pytest

test-fast: $(VENV) shim ## all tests but those on a real Kubernetes
	$(BIN)/python -m pytest -m "not cluster"

cluster: $(VENV) shim ## a real one-machine Kubernetes with the product on it, until Ctrl-C (root)
	$(BIN)/python -m tests.cluster up --product

check: lint types ## everything that needs no running: style, imports, types, the shim's ABI

lint: $(VENV) shim
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(MAKE) -s -C shim check-abi

types: $(VENV)
	$(BIN)/mypy

format: $(VENV) ## lay out the Python code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

shim: ## compile the audit library
	@command -v gcc >/dev/null || { echo "gcc is missing: apt-get install gcc libc6-dev" >&2; exit 1; }
	@$(MAKE) -s -C shim

proto: $(VENV) ## generate the Python of the kubelet's two APIs from their .proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. plugin/v1beta1/api.proto \
	  plugin/podresources_v1/api.proto

# The stamp is newer than pyproject.toml when all that is named there is installed.
$(VENV): $(VENV)/.installed
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name it with PYTHON=" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "no venv: apt-get install python3-venv" >&2; rm -rf $(VENV); exit 1; }
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --editable . --group dev
	@touch $@

clean: ## remove what make made
	rm -rf $(VENV) build *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	$(MAKE) -s -C shim clean
