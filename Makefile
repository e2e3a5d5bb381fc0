# Short commands, the same by hand and in CI. Each creates .venv and first names any program that the machine lacks.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Every process of a run imports the same modules: compiled once and kept, also where the environment forbids that.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONTRACT := $(VENV)-contract
PROXY := $(VENV)-proxy
PAIRING := $(VENV)-pairing
SITE := $(VENV)-docs
LOCALSTACK := $(VENV)-localstack
SAM := $(VENV)-sam
EXTRAS := service,persistence,cli,spark,infra,local,dev
RUN_STAMP := $(VENV)/.runs
RUN_EXTRAS := service,persistence,cli,spark,local
# make test ARGS="-k replay"
ARGS ?=
WORKERS ?= 3
# make test THOROUGH=1: also the tests marked `long`, and three times as many generated examples
THOROUGH ?=
SEEDS ?= 500
HISTORIES ?= 5000
SEQUENCES ?= 10000
FILES ?= 0
OPERATION ?= purge
BENCH ?= *
MUTATION ?= none
TEXT ?=
TASKS ?= 500
PROCESSES ?= 40
SECONDS ?= 60
MINUTES ?= 30
SEED ?=
PLANTED ?=

.PHONY: help help-all release venv demo up test check client-check clients-check recorded-calls package wheel regenerate format bench bench-check bench-record crash-matrix oracle hostile simulate drill chaos drain
.PHONY: busy linearizability applier-fuzz upkeep-month expiry-fuzz expiry-oracle orphans-oracle mutants schemathesis canonical histories orphans-histories gateway-rule gateway-kit gateway-matrix gateway-stories gateway-interleavings gateway-clients gateway-pyiceberg
.PHONY: localstack-test sam-check deployment-check pairing-check chart-check docs upgrade-both-ways template-diffs alarms-drill s3-servers-test release-check fixtures clean

# The ten that a contributor needs; `make help-all` lists every target.
EVERYDAY := help-all venv demo up test check format regenerate docs release
define list
	@awk -v width="$${COLUMNS:-$$(tput cols 2> /dev/null || echo 80)}" -v only=" $(1) " -F ':.*## ' '/^[a-z0-9-]+:.*## / { \
	  if (only != "  " && !index(only, " " $$1 " ")) next; \
	  line = sprintf("  make %-17s", $$1); number = split($$2, words, " "); \
	  for (at = 1; at <= number; at++) { \
	    if (length(line) + 1 + length(words[at]) > width) { print line; line = sprintf("%24s", "") } \
	    line = line " " words[at] } \
	  print line }' $(MAKEFILE_LIST)
endef

help:
	$(call list,$(EVERYDAY))

help-all: ## List every target
	$(call list,)

venv: $(STAMP) ## Create .venv with the versions of constraints.txt

# What runs the stack is half of what the checks need, so `demo` and `up` do not wait for the rest.
define install
	@python=$$(.ci/need python); test -x $(BIN)/python || "$$python" -m venv $(VENV)
	@echo "Installing into $(VENV): $(1)"
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt uv
	@# uv takes a third of pip's time. Where it cannot install (an index that only pip's settings name), pip does.
	@$(BIN)/uv pip install --python $(BIN)/python -c constraints.txt -e '.[$(1)]' || \
	  $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt -e '.[$(1)]'
	@touch $@
endef

$(STAMP): pyproject.toml constraints.txt
	$(call install,$(EXTRAS))
	@touch $(RUN_STAMP)

$(RUN_STAMP): pyproject.toml constraints.txt
	$(call install,$(RUN_EXTRAS))

demo: need-java $(RUN_STAMP) ## Purge two real tables and have a policy expire the snapshots of one through every part of the system, on this machine
	@$(BIN)/python -m infra.local.demo $(ARGS)

up: need-java $(RUN_STAMP) ## Keep the whole system running on this machine until Ctrl-C
	@$(BIN)/delegation local up $(ARGS)

test: need-java need-node $(STAMP) ## Run the tests, in WORKERS=3 processes; THOROUGH=1 runs the long ones too
	@# A fresh checkout: one process compiles the tests and all that they import, or each of WORKERS would, at the same time.
	@test -d tests/__pycache__ || $(BIN)/python -m pytest --collect-only -qq > /dev/null 2>&1 || true
	@$(if $(THOROUGH),THOROUGH=1) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	  $(if $(THOROUGH),-m "") $(ARGS)

check: $(STAMP) ## Check lint, formatting, types and import contracts; changes nothing
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

client-check: $(STAMP) ## Install the extra `client` alone into a new environment; print its size, import time and examples
	@PYTHONPATH=. $(BIN)/python -m tests.unit.extras.fresh

clients-check: need-java need-maven need-openssl need-go need-node $(STAMP) ## Generate clients for Java, Go and TypeScript, compile them, and run docs/java against a local stack
	@$(BIN)/python -m pytest -q -m "" tests/clients tests/unit/repository/test_java_page.py $(ARGS)

recorded-calls: need-java $(STAMP) ## Record the AWS calls of every role anew (ten minutes); the roles' permissions are compared with them
	@PYTHONPATH=functions:. $(BIN)/python -m tests.infra.security.record

package: $(STAMP) ## Build dist/*.zip for Lambda and dist/*.tgz for Spark: ARGS="--architecture x86_64"; prints sizes and hashes
	@$(BIN)/python -m infra.package $(ARGS)

wheel: $(STAMP) ## Build dist/polaris_delegation_service-*.whl, to install where no checkout is: pip install 'dist/….whl[cli]'
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist . && ls dist/polaris_delegation_service-*.whl

release: $(STAMP) ## Tag the version of pyproject.toml and write its wheel and notes into dist (docs/releasing.md); ARGS=--dry-run
	@PYTHONPATH=functions:. $(BIN)/python -m infra.release $(ARGS)

regenerate: $(STAMP) ## Write every generated file and recording anew, and name what changed; ARGS=--all those too that need Java or Node, --check, --list
	@PYTHONPATH=functions:. $(BIN)/python -m tests.regenerate $(ARGS)

format: $(STAMP) ## Fix formatting and lint with ruff
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: need-java $(STAMP) ## Run the benchmarks and print their figures; BENCH=spark ARGS="--rounds 1" for one
	@for script in $(wildcard tests/bench/bench_$(BENCH).py tests/bench/*/bench_$(BENCH).py); do echo "== $$script"; PYTHONPATH=functions:. $(BIN)/python "$$script" $(ARGS); done

bench-check: $(STAMP) ## Run the short benchmarks and compare them with their last record; fails beyond the tolerance (five minutes)
	@PYTHONPATH=functions:. $(BIN)/python -m tests.bench.records check $(ARGS)

bench-record: $(STAMP) ## Run the short benchmarks, add their figures to bench/results.json and redraw docs/performance.svg
	@PYTHONPATH=functions:. $(BIN)/python -m tests.bench.records add $(ARGS)

crash-matrix: need-java $(STAMP) ## Kill a purge before and after each of its calls and run it again; OPERATION=expiry or orphans, with ARGS=5 for every fifth point; prints totals as they go
	@PYTHONPATH=functions:. $(BIN)/python -m tests.faults.crashes.$(patsubst purge_%,%,$(patsubst orphans_%,orphan_%,$(OPERATION)_matrix)) $(ARGS)

oracle: need-java $(STAMP) ## Purge every table that Spark wrote, in each way, and compare with what Iceberg reaches; prints totals as they go
	@PYTHONPATH=functions:. $(BIN)/python -m tests.unit.removal.purge.oracle.whole $(ARGS)

hostile: need-java $(STAMP) ## Purge, expire and remove orphan files in a store that is wrong in every way, then in a sound one; prints totals as they go, and a table; ARGS="--size small" for some
	@PYTHONPATH=functions:. $(BIN)/python -m tests.faults.hostile.table $(ARGS)

histories: $(STAMP) ## Purge among tables that borrow files and change names, against a model of who needs what: HISTORIES=5000 SEED=1, or MUTATION=visits|displaced|later|unlisted without one safeguard; prints totals as they go
	@PYTHONPATH=functions:. $(BIN)/python -m tests.faults.histories.run --histories $(HISTORIES) $(if $(SEED),--seed $(SEED)) --mutation $(MUTATION) $(ARGS)

orphans-histories: $(STAMP) ## Sweep a table's orphan files among writers, clones, expiries and purges: HISTORIES=5000 SEED=1, with five hash seeds, or MUTATION=later (or conditions, others, unlisted, relisted, ages, history) without one safeguard; prints totals as they go, and continues a run that was interrupted
	@mkdir -p .cache && PYTHONPATH=functions:. $(BIN)/python -m tests.faults.orphans.run --histories $(HISTORIES) $(if $(SEED),--seed $(SEED)) --mutation $(MUTATION) --out .cache/orphans-histories.jsonl $(ARGS)

busy: $(STAMP) ## Expire and remove orphan files of tables that receive commits before each load: HISTORIES=5000, or FILES=3000 for hours of a virtual clock
	@PYTHONPATH=functions:. $(BIN)/python -m tests.faults.busy.run --histories $(HISTORIES) --files $(FILES) $(ARGS)

# make exits with 2 if a recipe fails, whatever the recipe's status; only with -q does it pass on a 1 (GNU make 4). So -q is on
# for this goal alone, and + runs its recipe nevertheless. With other goals beside it, or with -n, make exits as usual.
ifeq ($(MAKECMDGOALS)$(findstring n,$(firstword -$(MAKEFLAGS))),simulate)
MAKEFLAGS += -q
EVEN_SO := +
endif

simulate: $(if $(EVEN_SO),,$(STAMP)) ## Simulate tasks under faults: SEEDS=10000, or MUTATION=fencing|nonce|drift|jobs|answers|once without one safeguard; STORE=persistence
	$(if $(EVEN_SO),+@MAKEFLAGS= $(MAKE) -s --no-print-directory VENV=$(VENV) venv)
	$(EVEN_SO)@PYTHONPATH=functions:. $(BIN)/python -m tests.faults.simulator.$(or $(STORE),simulate) --seeds $(SEEDS) --mutation $(MUTATION) $(ARGS)

mutants: $(STAMP) ## Remove one safeguard at a time in a copy, and run the tests that must notice; TEXT=child for some
	@PYTHONPATH=functions:. $(BIN)/python -m tests.mutants "$(TEXT)"

applier-fuzz: need-java $(STAMP) ## Compare the applier of Iceberg's updates with Iceberg Java on random commits: SEQUENCES=10000; prints totals as they go
	@PYTHONPATH=functions:. $(BIN)/python -m tests.persistence.applier.fuzz --sequences $(SEQUENCES) $(if $(SEED),--seed $(SEED)) $(ARGS)

canonical: need-node $(STAMP) ## Hash payloads with a package of Node too, and compare; the packages come from npm's registry
	@PYTHONPATH=functions:. $(BIN)/python -m tests.canonical $(ARGS)

drill: need-java $(STAMP) ## Kill workers and the state machine's processes at random: TASKS=500 SECONDS=60; STORE=persistence; prints totals last
	@PYTHONPATH=functions:. $(BIN)/python -m tests.drill --tasks $(TASKS) --seconds $(SECONDS) $(if $(STORE),--store $(STORE)) $(ARGS)

chaos: need-java $(STAMP) ## Load the whole system, kill its parts, throttle, take Polaris down: MINUTES=30 SEED=7; PLANTED=1 must find two planted faults
	@PYTHONPATH=functions:. $(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(PLANTED),--planted) $(ARGS)

upkeep-month: $(STAMP) ## Simulate a month of upkeep of 10,000 tables beside 5,000 drops, and print work, money and waits; ARGS="--bad 1" real passes with 1 % of bad tables of each kind
	@PYTHONPATH=functions:. $(BIN)/python -m tests.unit.upkeep.month $(ARGS)

expiry-fuzz: need-java $(STAMP) ## Compare what an expiry of snapshots removes with Iceberg Java on random metadata: SEQUENCES=10000
	@PYTHONPATH=functions:. $(BIN)/python -m tests.expiry.fuzz --sequences $(SEQUENCES) $(if $(SEED),--seed $(SEED)) $(ARGS)

expiry-oracle: need-java $(STAMP) ## Expire snapshots of every table that Spark wrote, by Iceberg's action on Spark and by the service, and compare: ARGS="--only branches"
	@PYTHONPATH=functions:. $(BIN)/python -m tests.expiry.action $(ARGS)

orphans-oracle: need-java $(STAMP) ## Plant orphan files at every table that Spark wrote, remove them by Iceberg's action on Spark and by the service, and compare: ARGS="--only branches"
	@PYTHONPATH=functions:. $(BIN)/python -m tests.orphans $(ARGS)

linearizability: SECONDS = 90
linearizability: need-java $(STAMP) ## Commit from 40 processes that are killed, with jumping clocks and maintenance: PROCESSES=40 SECONDS=90
	@PYTHONPATH=functions:. $(BIN)/python -m tests.persistence.linearizability.fleet --processes $(PROCESSES) --seconds $(SECONDS) $(ARGS)

drain: TASKS = 20000
drain: need-java $(STAMP) ## Drain a dropped schema on a hand-moved clock: TASKS=20000, ARGS="--slots 100 --dynamodb"
	@PYTHONPATH=functions:. $(BIN)/python -m tests.faults.drain.drain --tasks $(TASKS) $(ARGS)

schemathesis: need-java $(STAMP) $(CONTRACT)/.installed ## Send generated requests to the whole system; prints totals last; ARGS="--ours 60 --seed 2"
	@PYTHONPATH=functions:. $(BIN)/python -m tests.conformance --schemathesis $(CONTRACT)/bin/schemathesis $(ARGS)

$(CONTRACT)/.installed: pyproject.toml constraints.txt
	@python=$$(.ci/need python); test -x $(CONTRACT)/bin/python || "$$python" -m venv $(CONTRACT)
	@$(CONTRACT)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["contract"])')
	@touch $@

gateway-rule: $(STAMP) $(PROXY)/.installed ## Check the rule in front, and 5,000 spellings, with a real Envoy and a real nginx where there is one; NGINX=/path/to/nginx
	@NGINX=$${NGINX:-$$(.ci/nginx $(PROXY)/nginx)} ENVOY=$$(realpath $(PROXY)/bin/envoy) $(BIN)/python -m pytest -q -m "" tests/infra/rule $(ARGS)

$(PROXY)/.installed: pyproject.toml constraints.txt
	@python=$$(.ci/need python); test -x $(PROXY)/bin/python || "$$python" -m venv $(PROXY)
	@$(PROXY)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["proxy"])')
	@touch $@

gateway-kit: need-java $(STAMP) ## Run Iceberg's REST compatibility kit direct and through the gateway; every outcome must be the same; ARGS=--by-rule, ARGS="--on states" on the stand-in in memory and in the persistence
	@PYTHONPATH=functions:. $(BIN)/python -m tests.gateway.kit $(ARGS) || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

gateway-pyiceberg: need-java $(STAMP) ## Run pyiceberg's own tests of catalogs against Iceberg's REST server, direct and through the gateway; ARGS="--on states"
	@PYTHONPATH=functions:. $(BIN)/python -m tests.gateway.behaviors $(ARGS) || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

gateway-interleavings: $(STAMP) ## Interleave two callers with keys, another writer and accidents; no double effect, no wrong answer; SEEDS=10000
	@PYTHONPATH=functions:. $(BIN)/python -m tests.unit.gateway.keys.interleaved --seeds $(SEEDS) $(ARGS)

gateway-stories: $(STAMP) ## Drop, repeat, restore, clone and kill in any order; no live file deleted, no key twice; SEEDS=1000
	@PYTHONPATH=functions:. $(BIN)/python -m tests.unit.gateway.drop.orders.stories --seeds $(SEEDS) $(ARGS)

gateway-matrix: $(STAMP) ## Drop tables with every fault at every call, keyed and not, replaced meanwhile and not; with POLARIS_URL on a real Polaris too; ARGS="--on polaris --part 1/4"
	@PYTHONPATH=functions:. $(BIN)/python -m tests.unit.gateway.drop.matrix $(ARGS)

gateway-clients: need-java $(STAMP) ## Run pyiceberg, Iceberg's Java client and Spark through the gateway of a local stack; lose answers of their commits; CATALOG=persistence for a stack whose catalog is there
	@$(BIN)/python -m pytest -q -m "" tests/gateway $(ARGS)

alarms-drill: need-java need-node $(STAMP) ## Trip five alarms on a local stack by real faults and follow the commands of their pages (three minutes); prints a table
	@PYTHONPATH=functions:. $(BIN)/python -W ignore -m tests.alarms

template-diffs: need-node $(STAMP) ## Say of every change between two choices of settings what deploy-check refuses, and record the table (ten minutes)
	@PYTHONPATH=functions:. $(BIN)/python -W ignore -m tests.infra.deploying.table 2> /dev/null

upgrade-both-ways: need-java $(STAMP) ## Upgrade and go back with tasks in flight, each release by its own code, on one DynamoDB Local (five minutes); prints a table
	@PYTHONPATH=functions:. $(BIN)/python -m tests.golden.upgrade || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

pairing-check: $(STAMP) $(PAIRING)/.installed ## Lint the Dockerfile, the compose file and the Kubernetes manifests of infra/pairing
	@$(PAIRING)/bin/hadolint infra/pairing/Dockerfile
	@$(PAIRING)/bin/check-jsonschema --builtin-schema vendor.compose-spec infra/pairing/compose.yaml
	@$(PAIRING)/bin/kubernetes-validate --strict infra/pairing/worker.yaml
	@$(BIN)/python -m pytest -q tests/infra/pairing

chart-check: $(STAMP) $(PAIRING)/.installed ## Lint and render the Helm chart of the worker profile and compare it with worker.yaml; HELM=/path/to/helm, else Go builds it
	@mkdir -p build; PYTHONPATH=functions:. $(BIN)/python -m tests.infra.pairing.chart > build/chart.yaml || { status=$$?; [ $$status -eq 77 ] && exit 0; exit $$status; }; \
	$(PAIRING)/bin/kubernetes-validate --strict build/chart.yaml && $(BIN)/python -m pytest -q tests/infra/pairing/test_chart.py

$(PAIRING)/.installed: pyproject.toml constraints.txt
	@python=$$(.ci/need python); test -x $(PAIRING)/bin/python || "$$python" -m venv $(PAIRING)
	@$(PAIRING)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["pairing"])')
	@touch $@

s3-servers-test: $(STAMP) ## Test against two real S3 servers, versitygw and rclone, which Go builds the first time (five minutes); skipped without Go
	@PYTHONPATH=functions:. $(BIN)/python -m tests.s3_servers $(ARGS) || { status=$$?; [ $$status -eq 77 ] || exit $$status; }

localstack-test: need-java need-node $(STAMP) $(if $(LOCALSTACK_ENDPOINT),,$(LOCALSTACK)/.installed) ## Deploy the stacks to LocalStack and purge; LOCALSTACK_ENDPOINT=http://127.0.0.1:4566 for one that runs
	@PYTHONPATH=functions:. $(BIN)/python -m tests.localstack --environment $(LOCALSTACK) $(ARGS)

# Two environments: LocalStack's own, and that of the functions, with AWS' runtime client alone beside their bundle.
$(LOCALSTACK)/.installed: tests/localstack/constraints.txt tests/localstack/executor/pyproject.toml \
		tests/localstack/executor/localstack_process_executor.py
	@python=$$(.ci/need python3.13); for folder in $(LOCALSTACK) $(LOCALSTACK)/runtime; do \
	  test -x $$folder/bin/python || "$$python" -m venv $$folder; done
	@echo "Installing LocalStack into $(LOCALSTACK) (a minute the first time)"
	@$(LOCALSTACK)/runtime/bin/python -m pip install --quiet --disable-pip-version-check -c tests/localstack/constraints.txt awslambdaric
	@cp -R tests/localstack/executor $(LOCALSTACK)/executor.build
	@$(LOCALSTACK)/bin/python -m pip install --quiet --disable-pip-version-check -c tests/localstack/constraints.txt \
	  'localstack-core[runtime]' service-identity $(LOCALSTACK)/executor.build
	@rm -rf $(LOCALSTACK)/executor.build
	@touch $@

sam-check: need-node $(STAMP) $(SAM)/.installed ## Check samplconfig.toml with the SAM command: sam validate --lint, and what sam local invoke finds
	@PYTHONPATH=functions:. $(BIN)/python -m tests.sam --environment $(SAM)

$(SAM)/.installed: tests/sam/constraints.txt
	@python=$$(.ci/need python); test -x $(SAM)/bin/python || "$$python" -m venv $(SAM)
	@$(SAM)/bin/python -m pip install --quiet --disable-pip-version-check -c tests/sam/constraints.txt aws-sam-cli
	@touch $@

docs: need-node $(STAMP) $(SITE)/.installed ## Build the documentation as a site, build/site/index.html: links are strict; ARGS="--site-dir FOLDER" for another place
	@rm -rf build/site-sources
	@PYTHONPATH=functions:. $(BIN)/python -m infra.site.sources build/site-sources
	@mkdir -p build/site-sources/assets; cp $(SITE)/scripts/*.js build/site-sources/assets
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --quiet --clean $(ARGS)
	@echo "build/site/index.html"

# Two scripts of npm's registry are part of the site: one draws diagrams, one lets it search when it is opened from disk.
$(SITE)/.installed: pyproject.toml constraints.txt
	@python=$$(.ci/need python); test -x $(SITE)/bin/python || "$$python" -m venv $(SITE)
	@$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt \
	  $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@mkdir -p $(SITE)/scripts; cd $(SITE)/scripts; \
	  tar -xzf "$$(npm pack --silent mermaid@11.17.2)" --strip-components=2 package/dist/mermaid.min.js; \
	  tar -xzf "$$(npm pack --silent iframe-worker@1.0.4)" --strip-components=2 package/shim/index.js; \
	  mv index.js iframe-worker.js; rm -f ./*.tgz
	@touch $@

deployment-check: need-node $(STAMP) ## Follow docs/deployment.md in a copy of the checkout, up to cdk synth and cdk diff; ARGS="--wheels FOLDER" for wheels you have
	@PYTHONPATH=functions:. $(BIN)/python -m tests.deployment $(ARGS)

release-check: $(STAMP) ## Run the long targets, each below its bound, and print a table; ARGS="docs drill" for some, --list, --due as CI does
	@PYTHONPATH=functions:. $(BIN)/python -m tests.release_check $(ARGS)

fixtures: need-java $(STAMP) ## Rewrite tests/fixtures with Spark and Iceberg; ARGS="codecs odd" for some
	@PYTHONPATH=functions:. $(BIN)/python -m tests.fixtures.write $(ARGS)

clean: ## Remove .venv, .local, build output and caches
	@rm -rf $(VENV) $(CONTRACT) $(PROXY) $(LOCALSTACK) $(SAM) $(PAIRING) $(SITE) .local build dist cdk.out *.egg-info functions/*.egg-info .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache

.PHONY: need-%
need-%:
	@.ci/need $* > /dev/null
