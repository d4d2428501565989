# Everything a contributor runs. `make` alone lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
PYTHON ?= python3
ARGS ?=
REMEDIATIONS := tests/integration/healing/test_remediations.py
SIDE_BY_SIDE ?= 2
SIMULATE ?= full

.PHONY: help setup demo test test-engine test-operated .test-alone .test-live test-cluster chaos remediations lint bench bench-scale simulate generate check cluster-up cluster-down constraints

help:  ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## ?/\1\t/' | sort | expand -t 16

setup: .venv/installed  ## The virtualenv .venv with everything the other targets need

.venv/installed: pyproject.toml constraints.txt
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv \
		|| { echo "Python's venv module is missing (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup  ## A fleet that heals itself, on a Kubernetes of its own; writes build/demo.json
	$(BIN)/python -m tests.demo $(ARGS)

test: setup  ## Every test but the slow ones, on a real cluster where this machine can hold one
	@echo 'Two groups of tests run side by side; what each says is shown once it is done.'
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target .test-alone .test-live

# The clock of a cluster does not wait for a busy machine: what needs none yields to it. Exit code 5 says that ARGS
# chose no test of this group.
.test-alone .test-live: MAYBE_NONE = $(if $(ARGS),|| test $$? = 5)
.test-alone:
	nice -n 10 $(BIN)/pytest -m 'not slow and not cluster' -n $(SIDE_BY_SIDE) --dist worksteal $(ARGS) $(MAYBE_NONE)

.test-live:
	$(BIN)/pytest -m 'not slow and cluster' $(ARGS) $(MAYBE_NONE)

test-engine: setup  ## A real vLLM on the CPU, installed for it (5 GB, once): telemetry, its cost, the parser
	KINTSUGI_ENGINE_PYTHON=$$($(BIN)/python -m tests.engine.install) $(BIN)/pytest -s -m 'not slow' tests/engine $(ARGS)

test-operated: setup  ## The operator and real vLLM engines that hang, die and leak, on the local cluster
	KINTSUGI_ENGINE_PYTHON=$$($(BIN)/python -m tests.engine.install) $(BIN)/pytest -s -m slow tests/engine/operated $(ARGS)

test-cluster: setup  ## The slow scenarios on real clusters, two side by side (SIDE_BY_SIDE), but for the two suites below
	$(BIN)/pytest -m slow -n $(SIDE_BY_SIDE) --dist loadfile tests/integration --ignore=$(REMEDIATIONS) $(ARGS)

chaos: setup  ## Operators killed, frozen, deaf; nodes, metrics, API server gone: side by side; writes build/chaos.json
	$(BIN)/pytest -m slow -rN tests/chaos $(ARGS)

remediations: setup  ## Twenty remediations under streams, no request may fail; writes build/remediations.json
	$(BIN)/pytest -m slow $(REMEDIATIONS) $(ARGS)

lint: setup  ## Style, types, layers, module length
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/lengths.py 400

bench: setup  ## Benchmarks, each with the bar it must meet; writes build/bench.json
	$(BIN)/pytest -s tests/bench -o python_files='bench_*.py' $(ARGS)

bench-scale: setup  ## A thousand instances read and judged for five minutes; writes build/bench-scale.json
	$(BIN)/python -m tests.bench.bench_scale $(ARGS)

simulate: setup  ## Years of healthy engines and thousands of faults; SIMULATE=ci for a fifth; writes build/simulate.json
	$(BIN)/python -m tests.simulation --size $(SIMULATE) $(ARGS)

generate: setup  ## Everything made from something else: CRDs, the chart's copies and tables
	$(BIN)/kintsugi crds --helm helm/kintsugi/templates/crds.yaml
	$(BIN)/python -m tests.unit.chart.readme
	$(BIN)/python -m tests.unit.preflight.rules_page
	$(BIN)/python -m tests.unit.core.detectors_page
	$(BIN)/python -m tests.unit.core.decision.remediation_page
	$(BIN)/python -m tests.unit.command.write_golden
	$(BIN)/python -m tests.unit.pod.write_golden

check: generate  ## Fails where a generated file is not what its source says
	@git diff --exit-code -- crds helm docs \
		|| { echo 'make generate changed files: commit them' >&2; exit 1; }
	@test -z "$$(git ls-files --others --exclude-standard -- crds helm docs)" \
		|| { echo 'make generate made files that are not committed' >&2; exit 1; }

cluster-up: setup  ## A three-node Kubernetes to play with; prints how to reach it
	$(BIN)/python -m tests.cluster up $(ARGS)

cluster-down: setup  ## Takes it down, leaving nothing
	$(BIN)/python -m tests.cluster down $(ARGS)

constraints: setup  ## Write constraints.txt anew from what is installed
	$(BIN)/pip freeze --exclude-editable | grep -viE '^(pip|uv|setuptools|wheel)==' > constraints.new
	mv constraints.new constraints.txt
