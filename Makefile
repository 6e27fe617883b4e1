# Everything from a bare clone: `make run` shows the package at work, `make test` checks it. `make help` lists the rest.

PYTHON ?= python3
# The interpreters that `make versions` tries, and with which versions of packages: tested, oldest, newest.
PYTHONS ?= python3
SETS ?= tested
# A GPU's number, or -1 for the CPU: `make run GPU=0`.
GPU ?= -1
# Where `make bench` finds CORPUS/{train,dev,test}.spacy, keeps its models and finished runs, and how often it trains.
DATA ?= project/corpus
WORK ?= project/training/bench
SEEDS ?= 1,2,3

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
RUN_ENV := $(VENV)/.installed
DEV_ENV := $(VENV)/.installed-dev
LABEL_STUDIO := .venv-label-studio
PACKAGING := pyproject.toml constraints.txt spacy_tener/about.py

# A test that hangs shows where, and counts as failed.
BOUNDED := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
SUITE := OMP_NUM_THREADS=1 $(PY) -m pytest --numprocesses auto --dist worksteal $(BOUNDED)

export PYTHONUNBUFFERED = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help run test test-integration browser readers test-slow test-gpu test-corpora lint format reference docs pictures dist pipelines versions bench sample clean clean-project

help: ## list these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

run: $(RUN_ENV) ## convert the bundled sample corpus, train, score, and explain errors in HTML pages
	$(PY) -m spacy project run all . --vars.gpu $(GPU)
	@echo "With nothing trained, lac finds:"
	@$(PY) -c "import spacy; nlp = spacy.blank('zh'); nlp.add_pipe('lac'); \
	print([(ent.text, ent.label_) for ent in nlp('张三在北京市工作，2019年5月加入中国银行。').ents])"
	@echo "Trained on the sample, scores and errors: file://$(CURDIR)/project/pages/sample-lac.html"
	@echo "Some of the errors, explained: file://$(CURDIR)/project/pages/sample-lac-why.html"

test: lint ## ruff, mypy and the test suite, on all cores
	$(SUITE)

test-integration: $(DEV_ENV) browser readers ## browsers, Node, services, exports, transformers, emulated GPUs, blocks of the pages, research
	$(SUITE) -m "integration and not slow and not gpu and not corpora"

# Pages are tested in a real browser. Root on a Debian machine, as in CI, gets it here; others are told what to install.
browser: ## Chromium and its driver, where they are missing
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && { apt-get update -qq; apt-get install -qq --yes chromium chromium-driver; } >/dev/null; } || \
	{ echo "The tests of pages need Chromium and its driver: apt-get install chromium chromium-driver" >&2; exit 1; }

readers: readers/js/node_modules/.installed ## Node and ONNX Runtime for JavaScript, in which readers of exported models are tested

# Their install scripts would fetch what only GPUs need.
readers/js/node_modules/.installed: readers/js/package-lock.json
	@command -v node >/dev/null && command -v npm >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && { apt-get update -qq; apt-get install -qq --yes nodejs npm; } >/dev/null; } || \
	{ echo "The tests of readers need Node 18 or later and npm: apt-get install nodejs npm" >&2; exit 1; }
	cd readers/js && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Some of them run the lines for Spark and Ray Data of docs/archives.md, and some work in Label Studio.
test-slow: $(DEV_ENV) browser readers $(LABEL_STUDIO)/.installed ## the tests that train for minutes, with Java for Spark, and Label Studio
	@command -v java >/dev/null || { [ "$$(id -u)" = 0 ] && apt-get install -qq --yes default-jre-headless >/dev/null; } || \
	{ echo "The test of Spark needs Java: apt-get install default-jre-headless" >&2; exit 1; }
	$(PY) -m pip install --constraint constraints.txt pyspark 'ray[data]'
	$(PY) -m pytest -m slow

# In an environment of its own (1 GB): it pins versions of what this package uses.
$(LABEL_STUDIO)/.installed:
	$(PYTHON) -m venv $(LABEL_STUDIO)
	$(LABEL_STUDIO)/bin/python -m pip install label-studio==1.23.2
	@touch $@

test-gpu: $(DEV_ENV) ## the tests that need a CUDA device
	$(PY) -m pytest -m gpu

test-corpora: $(DEV_ENV) ## the tests on the public corpora, once `spacy project assets` has fetched them
	$(PY) -m pytest -m corpora

lint: $(DEV_ENV) ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict

format: $(DEV_ENV) ## let ruff put the code in order
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

reference: $(DEV_ENV) ## write signatures and docstrings into the pages of docs/
	$(PY) scripts/make_reference.py

docs: $(DEV_ENV) ## the documentation, as a site in site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "Documentation: file://$(CURDIR)/site/index.html"

pictures: $(DEV_ENV) browser readers ## take the screenshots in docs/images again: make pictures NAMES=errors
	OMP_NUM_THREADS=1 $(PY) scripts/make_pictures.py $(NAMES)

dist: $(DEV_ENV) ## sdist and wheel of the last commit in dist/, checked
	$(PY) scripts/make_dist.py
	$(PY) -m twine check --strict dist/*
	$(PY) -m check_wheel_contents dist/*.whl

pipelines: $(DEV_ENV) ## train on corpora whose terms allow it, and make wheels in project/packages/: make pipelines NAMES=weibo
	$(PY) scripts/make_pipelines.py $(NAMES)

versions: $(PY) ## the test suite with other versions: make versions PYTHONS="python3.12 python3.13" SETS=tested,newest
	$(PY) -m pip install --quiet uv
	$(PY) scripts/try_versions.py $(PYTHONS) --sets $(SETS)

bench: $(DEV_ENV) ## accuracy on Weibo and Resume beside spaCy's ner, written to research/results
	$(PY) -m spacy project run convert-weibo
	$(PY) -m spacy project run convert-resume
	$(PY) -m research grid $(WORK) --corpora weibo,resume --systems ner,tener --seeds $(SEEDS) --data $(DATA)
	$(PY) research/benchmarks/runs.py $(WORK) --title "TENER beside spaCy's ner" --out research/results/bench.md \
		--baseline ner --named-nominal

sample: $(RUN_ENV) ## write assets/sample again from its lists and patterns
	$(PY) scripts/make_sample.py

clean: ## remove the environment, builds and caches
	rm -rf $(VENV) $(LABEL_STUDIO) readers/js/node_modules site build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-project: ## remove what the project made: project/ and vectors/
	rm -rf project vectors project.lock

$(PY):
	$(PYTHON) -m venv $(VENV)

# Torch first: asked for by its exact version, pip takes whatever build of it the machine offers.
# The metadata that setuptools leaves in the source tree goes: `python` run there would find its entry points before the
# installed ones, also when they are those of an earlier pyproject.toml.
$(RUN_ENV): $(PACKAGING) | $(PY)
	$(PY) -m pip install --constraint constraints.txt torch
	$(PY) -m pip install --constraint constraints.txt --editable ".[train,lac]"
	@rm -rf *.egg-info && touch $@

$(DEV_ENV): $(RUN_ENV)
	$(PY) -m pip install --constraint constraints.txt --editable ".[dev]"
	@rm -rf *.egg-info && touch $@
