# Two commands on a fresh machine: make serve, make test. pip's own configuration is honoured.
PYTHON ?= python3
PORT ?= $(or $(CERBERANK_PORT),8000)
SERVE := .venv
DEV := .venv-dev

.PHONY: help serve test test-all test-clients test-tools check site image-check fuzz soak bench bench-gpu gpu-kit train-mini dist lock clean

help: ## show the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# glibc returns freed memory to the system with these (docs/reliability.md, Memory); other C libraries ignore them.
ALLOCATOR := MALLOC_MMAP_THRESHOLD_=1048576 MALLOC_TRIM_THRESHOLD_=4194304 MALLOC_ARENA_MAX=2

serve: $(SERVE)/.installed ## install what serving needs (no torch) and serve the bundled checkpoint on PORT
	$(ALLOCATOR) CERBERANK_PORT=$(PORT) $(SERVE)/bin/cerberank serve

# Networks of a few weights: several threads only wait for each other, for minutes when the machine is busy.
# A worker for each usable processor (tests/conftest.py); WORKERS=0 runs everything in one process. Files come in the order
# of their names, which begins with the dearest; by default those with one test, such as a real process, would come last.
WORKERS ?= auto
# SlipCover is imported before pytest could rewrite its assertions. Ray, which pickles autoscaling.py by value, cannot read
# SlipCover's probes. Kept exports (--cache-clear) would leave lines out.
SLIPCOVER = -m slipcover --json --out .coverage.json --omit '*/ray_serve/autoscaling.py' \
	--source cerberank,models/cerberank_models,service/cerberank_service,training/cerberank_training,training/cerberank_papers,training/cerberank_benchmarks
# Bytecode is written even where the environment forbids it: both workers, and each process of a test, would compile anew.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(DEV)/bin/python $(if $(COVERAGE),$(SLIPCOVER)) -m pytest --numprocesses=$(WORKERS) \
	--dist=loadfile --no-loadscope-reorder $(if $(COVERAGE),--cache-clear -W ignore::pytest.PytestAssertRewriteWarning)

test: $(DEV)/.installed ## run the tests that guard everyday changes, two to four minutes on two cores
	$(PYTEST) -m "not slow"

test-all: $(DEV)/.installed ## what make test runs, and the slow tests; COVERAGE=yes compares line coverage with tests/coverage.json
	$(PYTEST)
	$(if $(COVERAGE),$(DEV)/bin/python -m tools.coverage)

test-clients: $(DEV)/.installed ## unmodified client packages from PyPI and npm: make test-clients [CLIENTS="cohere litellm"]
	$(DEV)/bin/python -m tests.clients.run $(CLIENTS)

test-tools: $(DEV)/.installed ## install the programs without which some tests are skipped, where apt and npm work
	./tests/tools.sh

check: $(DEV)/.installed ## lint, format, types, import direction, spelling
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports
	$(DEV)/bin/typos

site: $(DEV)/.installed ## build the documentation into site/, and fail on a broken link
	$(DEV)/bin/zensical build --clean --strict

image-check: $(DEV)/.installed ## build both images and serve from them, without Docker (as root on Linux)
	$(DEV)/bin/python -m tools.image_check cpu
	$(DEV)/bin/python -m tools.image_check gpu

fuzz: $(DEV)/.installed ## thousands of requests that the OpenAPI document allows or forbids, to both ports
	$(DEV)/bin/python -m tools.fuzz --cases 5000

soak: $(DEV)/.installed ## pushes for five minutes, then faults for ten, on a machine that does nothing else: make soak [CHAOS="--seed 1"]
	$(ALLOCATOR) $(DEV)/bin/python -m tools.pushes
	$(ALLOCATOR) $(DEV)/bin/python -m tools.chaos $(CHAOS)

bench: $(DEV)/.installed ## all benchmarks, half an hour: make bench [BENCH="--quick"] [DATA=../shared/data] [INFINITY=python]
	$(DEV)/bin/python -m cerberank_benchmarks $(BENCH) $(if $(DATA),--data squad-as2-article:$(DATA)/squad-as2/test.jsonl.gz) \
		$(if $(INFINITY),--infinity $(INFINITY))

bench-gpu: $(DEV)/.installed ## what one GPU gives: make bench-gpu [BENCH="--minutes 9"]
	$(DEV)/bin/python -m cerberank_benchmarks gpu $(BENCH)

gpu-kit: $(DEV)/.installed ## wheels for make bench-gpu without a network: make gpu-kit [GPU_PYTHON=3.12] [GPU_PACKAGES=FILE]
	$(DEV)/bin/python requirements/gpu_kit.py gpu-kit $(if $(GPU_PYTHON),--python $(GPU_PYTHON)) \
		$(if $(GPU_PACKAGES),--packages $(GPU_PACKAGES))

train-mini: $(DEV)/.installed ## train cerberank-mini: make train-mini DATA=../shared/data BASE=<MiniLM folder or hub id>
	$(DEV)/bin/cerberank train distil --recipe mini-hard --base $(or $(BASE),$(error set BASE to all-MiniLM-L6-v2, a folder or a hub id)) \
		--train squad-as2:$(or $(DATA),$(error set DATA to the data folder))/squad-as2/train.jsonl.gz \
		--dev squad-as2:$(DATA)/squad-as2/dev.jsonl.gz --out runs/mini --name cerberank-mini

dist: ## wheel and sdist with their metadata checked, bill of materials, licences and checksums, in dist/
	rm -rf dist .venv-release .venv-sbom
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet build twine cyclonedx-bom pip-licenses
	.venv-release/bin/python -m build
	.venv-release/bin/twine check --strict dist/*
	$(PYTHON) -m venv .venv-sbom # what the release installs, without the tools of the release
	.venv-sbom/bin/pip install --quiet --requirement requirements/serve.txt
	.venv-sbom/bin/pip install --quiet --no-deps dist/*.whl
	.venv-release/bin/cyclonedx-py environment .venv-sbom --pyproject pyproject.toml --output-file dist/sbom.cdx.json
	.venv-release/bin/pip-licenses --python .venv-sbom/bin/python --format markdown --with-urls --output-file dist/licences.md
	cd dist && sha256sum * > SHA256SUMS

lock: ## make requirements/*.txt anew from pyproject.toml
	./requirements/lock.sh

clean: ## remove the environments
	rm -rf $(SERVE) $(DEV) .venv-clients .venv-release .venv-sbom

# A stamp is younger than its lock: the second call installs nothing.
$(SERVE)/.installed: requirements/serve.txt pyproject.toml
	$(PYTHON) -m venv $(SERVE)
	$(SERVE)/bin/pip install --quiet --requirement requirements/serve.txt
	$(SERVE)/bin/pip install --quiet --no-deps --editable .
	touch $@

$(DEV)/.installed: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/pip install --quiet --requirement requirements/dev.txt
	$(DEV)/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@
