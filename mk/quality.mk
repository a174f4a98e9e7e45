# The checks and the tests, and what keeps their environment up to date.

SHELL_SCRIPTS = $(shell git ls-files --cached --others --exclude-standard | xargs -d '\n' grep -lIsE '^\#! ?/(usr/)?bin/(env )?(ba)?sh( |$$)')

# Each on its own, so that `make -k lint` shows what all of them find.
LINTERS := lint-python lint-yaml lint-shell lint-ansible lint-docs lint-changelog lint-words

.PHONY: lint $(LINTERS)
lint: $(LINTERS) ## Check style: Python, YAML, shell, roles and playbooks, documentation, changelog, words

$(LINTERS): setup-dev

lint-python:
	$(RUN) ruff check --quiet
	$(RUN) ruff format --check --quiet

lint-yaml:
	$(RUN) yamllint --strict .

lint-shell:
	$(RUN) shellcheck --severity=warning $(SHELL_SCRIPTS)

lint-ansible:
	$(RUN) ansible-lint -q --offline --profile production

lint-docs:
	$(RUN) antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs=self --skip-rstcheck .

lint-changelog:
	$(RUN) antsibull-changelog lint
	$(RUN) antsibull-changelog lint-changelog-yaml changelogs/changelog.yaml

lint-words:
	tests/dev/words

.PHONY: format
format: setup-dev ## Put the Python files into the style that lint checks
	$(RUN) ruff check --fix --quiet
	$(RUN) ruff format --quiet

.PHONY: types
types: setup-dev ## Check the types of module_utils
	$(RUN) mypy -p ansible_collections.serving.sglang.plugins.module_utils

.PHONY: unit
unit: setup-dev ## Run the unit tests
	$(RUN) pytest --junit-xml=$(RESULTS)/unit.xml tests/unit tests/load

.PHONY: sanity
sanity: setup-dev ## Run ansible-test's sanity tests on the archive that would be published
	tests/dev/sanity

.PHONY: integration
integration: setup ## Run the tests of the test hosts, and those against a real SGLang
	$(RUN) pytest -v --durations=15 --junit-xml=$(RESULTS)/integration.xml tests/hosts tests/integration

.PHONY: molecule
molecule: setup ## Run the Molecule scenarios on test hosts (one of them: make molecule SCENARIO=default)
	$(RUN) pytest -v --durations=0 --junit-xml=$(RESULTS)/molecule.xml $(if $(SCENARIO),-k 'scenario[$(SCENARIO)]') tests/molecule

# The two above as one run, so that one summary closes `make test`. One after the other: drains are timed by how fast
# real servers answer, and beside each other they would not.
.PHONY: suites
suites: setup
	$(RUN) pytest -v --durations=20 --junit-xml=$(RESULTS)/suites.xml tests/hosts tests/integration tests/molecule

.PHONY: ansible-versions
ansible-versions: setup-dev ## Load every plugin and playbook with the other supported ansible-core releases
	tests/dev/ansible_versions

.PHONY: lock
lock: ## Write requirements/*.txt anew from requirements/*.in
	tests/dev/lock

.PHONY: changelog
changelog: setup-dev ## Write CHANGELOG.md for the version in galaxy.yml from the fragments
	$(RUN) antsibull-changelog release --update-existing --refresh --reload-plugins
