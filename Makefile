# Everything runs in .venv, made by bin/prepare. `make check` is for every change, `make test` before handing it over.
python = $$(bin/prepare test)
venv = $$(dirname $(python))

.PHONY: integrations check test format demo bench compiled profile compat upgrade spark gateway gateway-ratios fuzz-gateway docs bounds bounds-gateway bounds-spark bounds-query wheel clean

check: ## under a minute: lint, types, contracts, format, and the quick tests
	bin/test tests/unit tests/scenarios tests/house

test: ## everything
	bin/test

format: ## format the code with ruff
	$(venv)/ruff check --fix-only --quiet . && $(venv)/ruff format --quiet .

demo: ## 336,776 flights through three nodes, one of them killed on the way; make demo with=--spark
	bin/demo $(with)

bench: ## figures and ratios, half an hour; make bench with="--quick core" build=compiled
	$(if $(filter compiled,$(build)),.compiled/bin/python,$(python)) -P tests/benchmarks $(with)

compiled: ## .compiled, an environment with the compiled build
	python3 -m venv .compiled
	DISQUE_PY_COMPILE=yes .compiled/bin/pip install -q '.[test]'

profile: ## where a node spends its time (py-spy, if installed); make profile with="--nodes 3"
	$(python) tests/benchmarks/profiling.py $(with)

compat: ## published clients of Disque, from their registries, against a running node
	python3 tests/compat/run.py

upgrade: ## a cluster of an older version, replaced node by node by this one under load; make upgrade with="--revision REV"
	$(python) tests/compat/rolling_upgrade.py $(with)

spark: ## the tests of the Spark side, in an environment with the extra; needs no Java of its own
	PYTHONSAFEPATH=1 "$$(bin/prepare test,spark)" -m pytest -q tests/unit/spark tests/unit/cli/demo_spark tests/spark

integrations: ## adapters against real nodes, in an environment with the frameworks
	PYTHONSAFEPATH=1 "$$(bin/prepare test,celery,dramatiq,taskiq,django,fastapi,otel)" -m pytest -q -n 3 tests/integrations

gateway: ## the tests of the gateway, in an environment with its extra; the browser's need Chromium and the extra browser
	PYTHONSAFEPATH=1 "$$(bin/prepare test,gateway,browser)" -m pytest -q tests/unit/gateway tests/gateway

gateway-ratios: ## figures of the gateway, and of the console with 10,000 queues; make gateway-ratios with=console
	PYTHONSAFEPATH=1 "$$(bin/prepare test,gateway,ratios)" tests/gateway/ratios.py $(with)

fuzz-gateway: ## schemathesis against the gateway's own OpenAPI, with a node and a gateway of its own
	PYTHONSAFEPATH=1 "$$(bin/prepare test,gateway,fuzz)" tests/gateway/fuzz.py $(with)

docs: ## the documentation as a site, in build/site: search, API reference, no broken link
	NO_MKDOCS_2_WARNING=1 PYTHONSAFEPATH=1 "$$(bin/prepare docs)" -m mkdocs build --strict --quiet

bounds: ## the tests with the oldest dependencies that pyproject.toml allows
	python3 -m venv .bounds
	.bounds/bin/pip install -q --editable .[test] $$(python3 tests/house/oldest_requirements.py)
	.bounds/bin/pytest -q -n auto tests/unit
	.bounds/bin/pytest -q -n 3 tests/integration

bounds-gateway: ## the same for the extra gateway
	python3 -m venv .bounds-gateway
	.bounds-gateway/bin/pip install -q --editable .[test,gateway] $$(python3 tests/house/oldest_requirements.py gateway)
	PYTHONSAFEPATH=1 .bounds-gateway/bin/pytest -q -n 3 tests/unit/gateway tests/gateway

bounds-spark: ## the same for the extra spark
	python3 -m venv .bounds-spark
	.bounds-spark/bin/pip install -q --editable .[test,spark] $$(python3 tests/house/oldest_requirements.py spark)
	PYTHONSAFEPATH=1 .bounds-spark/bin/pytest -q tests/unit/spark tests/spark

bounds-query: ## the same for the extra query, without Spark
	python3 -m venv .bounds-query
	.bounds-query/bin/pip install -q --editable .[test,query] $$(python3 tests/house/oldest_requirements.py query)
	PYTHONSAFEPATH=1 .bounds-query/bin/pytest -q -n auto tests/unit/spark

wheel: ## sdist and wheel into dist/, checked
	rm -rf dist build
	$(python) -m build --no-isolation --outdir dist . >/dev/null
	$(python) tests/house/check_wheel.py dist/*.whl dist/*.tar.gz

clean: ## remove everything that was made here, with the environments
	rm -rf .venv .demo .compat .spark .bounds .bounds-gateway .bounds-spark .bounds-query .compiled build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
