# make run    a node, its pipeline and a few devices: examples/quickstart
# make test   everything: lint, types, contracts, tests
# Both make the virtual environment themselves. `make help` lists the rest.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
VENV := .venv/.installed
FOREIGN := $(if $(wildcard tests/foreign/package.json),tests/foreign/node_modules/.installed)
ARCHIVE := .venv/spark.jsa
PYTEST_ARGS ?=
# Tests wait more than they compute: three processes keep two cores busy.
WORKERS ?= 3

# Without compiled modules each of the processes that tests start would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
test test-compiled test-quick soak: export PYTHONPYCACHEPREFIX := $(CURDIR)/.stamps/pycache

# Rooms whose tests start no process, or few.
QUICK := wire routing session scope monitor predicate policy gate keys config flow explain simulate authentication \
  audit client seeds net sockets test_topics.py test_bounded.py

# With TIDEGATE_COMPILE=1 `run` and `bench` compile first, and `test` ends with `test-compiled`.
COMPILED := $(if $(filter-out 0,$(TIDEGATE_COMPILE)),rooms)
# What a difference between the source and the compiled rooms would break first.
DECISIVE := wire routing session test_topics.py gate/test_decisions.py conformance reliability/test_fuzz.py \
  sockets/test_matrix.py sockets/test_monitors_matrix.py sockets/test_guard_matrix.py

say = @printf '\033[1m==> %s\033[0m\n' "$(1)"

.PHONY: help run test test-compiled test-quick bytecode rooms lint format bench soak reference venv java servers foreign clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

run: $(VENV) java $(COMPILED) ## run the quick start: a node, its pipeline, a few devices (Ctrl-C stops it)
	@$(BIN)/python examples/quickstart/run.py

test: bytecode lint java servers foreign $(ARCHIVE) ## lint, types, contracts and all tests but the long ones
	$(call say,tests)
	@TIDEGATE_PURE=1 $(BIN)/pytest -m "not soak" -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)
	$(if $(COMPILED),$(if $(PYTEST_ARGS),,@$(MAKE) --no-print-directory test-compiled))

test-compiled: $(VENV) ## the decisive tests on compiled rooms
	$(call say,decisive tests on compiled rooms)
	@if $(BIN)/python scripts/compile_rooms.py --must; then \
	  ROOMS=compiled $(BIN)/pytest -m "not soak" -n $(WORKERS) --dist loadfile $(addprefix tests/,$(DECISIVE)); \
	else test "$${CI:-}" != true; fi

# In a fresh clone each test process would compile all tests by itself; lint leaves a core free meanwhile.
bytecode: $(VENV)
	@$(BIN)/pytest --collect-only -qqq -p no:cacheprovider >/dev/null 2>&1 &

test-quick: $(VENV) ## tests without Spark, examples and commands, in three minutes
	$(call say,quick tests)
	@TIDEGATE_PURE=1 $(BIN)/pytest -m "not soak" -n $(WORKERS) --dist loadfile $(addprefix tests/,$(QUICK)) $(PYTEST_ARGS)

rooms: $(VENV) ## compile what is on the way of a message, if the source has changed; TIDEGATE_PURE=1 says no
	@$(BIN)/python scripts/compile_rooms.py

lint: $(VENV) ## ruff, mypy and the import contracts
	$(call say,lint)
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --check --quiet . || { echo 'run `make format`'; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@contracts=$$($(BIN)/lint-imports --no-cache 2>&1) || { echo "$$contracts"; exit 1; }

format: $(VENV) ## format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV) servers $(COMPILED) ## measure against Mosquitto; results in bench/results/
	@$(BIN)/tidegate bench broker
	@$(BIN)/tidegate bench gate

soak: $(VENV) java servers foreign $(ARCHIVE) ## the long crash, fuzz and load tests; reports in docs/reliability/
	$(call say,soak)
	@mkdir -p docs/reliability
	@$(BIN)/pytest -m soak --timeout=14400 $(PYTEST_ARGS)
	@TIDEGATE_EXAMPLES=long $(BIN)/pytest -m "hypothesis and not soak" --timeout=14400 $(PYTEST_ARGS)

reference: $(VENV) ## write docs/reference/ again from the schema
	@mkdir -p docs/reference
	@$(BIN)/tidegate schema > docs/reference/tidegate.schema.json
	@$(BIN)/tidegate schema --markdown > docs/reference/configuration.md
	@PYTHONPATH=. $(BIN)/python tests/docs/cli_reference.py --update
	@$(BIN)/python tests/docs/http_reference.py --update
	@$(BIN)/python tests/docs/pipeline_reference.py --update
	@$(BIN)/tidegate check examples/doorlock/tidegate.yaml --show-automata --format svg --monitor a1 > docs/monitors/a1.svg

venv: $(VENV) ## the virtual environment only

$(VENV): pyproject.toml scripts/venv.sh
	@scripts/venv.sh
	@touch $@

# What Java has loaded and checked once need not be loaded and checked by each of the Sparks that tests start.
$(ARCHIVE): $(VENV) scripts/spark_archive.py | java
	@rm -f $@
	@SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit=$@ -Xlog:disable" \
	  $(BIN)/python scripts/spark_archive.py >/dev/null 2>&1 || true
	@touch $@ # empty where there is no Java

java: ## a Java runtime for the pipeline, from the system's packages if there is none
	@scripts/java.sh >/dev/null

servers: ## what the tests need from the system's packages
	@scripts/servers.sh

foreign: $(FOREIGN)

tests/foreign/node_modules/.installed: scripts/foreign.sh tests/foreign/package.json \
  $(wildcard tests/foreign/package-lock.json) | servers $(VENV)
	@PIP="$(CURDIR)/$(BIN)/python -m pip" scripts/foreign.sh tests/foreign

clean: ## remove everything that was made
	@rm -rf .venv .stamps dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf tests/foreign/node_modules tests/foreign/.paho-mqtt examples/*/var
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
