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

SERVER_TESTS := $(addprefix tests/integration/test_,gateway.py gateway_role.py rollback.py server_lifecycle.py)
HOST_TESTS := tests/hosts $(filter-out $(SERVER_TESTS),$(wildcard tests/integration/test_*.py))
SCENARIOS := $(patsubst molecule/%/molecule.yml,scenario-%,$(wildcard molecule/*/molecule.yml))

.PHONY: hosts
hosts: setup ## Run the tests of the test hosts, and of what works on them without a server
	SGLANG_TEST_FLEET=integration-hosts $(RUN) pytest -v --durations=15 --junit-xml=$(RESULTS)/hosts.xml $(HOST_TESTS)

.PHONY: servers
servers: setup ## Run the tests against a real SGLang and a real gateway
	$(RUN) pytest -v --durations=15 --junit-xml=$(RESULTS)/servers.xml $(SERVER_TESTS)

.PHONY: molecule $(SCENARIOS)
molecule: $(SCENARIOS) ## Run the Molecule scenarios on test hosts (one of them: make scenario-default)

$(SCENARIOS): setup
	$(RUN) pytest -v --junit-xml=$(RESULTS)/$@.xml -k 'scenario[$(@:scenario-%=%)]' tests/molecule

.PHONY: ansible-versions
ansible-versions: setup-dev ## Load every plugin and playbook with the other supported ansible-core releases
	tests/dev/ansible_versions

.PHONY: lock
lock: ## Write requirements/*.txt anew from requirements/*.in
	tests/dev/lock

.PHONY: changelog
changelog: setup-dev ## Write CHANGELOG.md for the version in galaxy.yml from the fragments
	$(RUN) antsibull-changelog release --update-existing --refresh --reload-plugins
