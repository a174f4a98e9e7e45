# What one can do with a checkout. `make` alone lists it. Parts of the tree add their own targets in mk/*.mk.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory --no-builtin-rules
# The steps print what they do as it happens, and share two cores.
.NOTPARALLEL:

export SGLANG_TEST_CACHE ?= /var/cache/serving-sglang
CACHE := $(SGLANG_TEST_CACHE)
RUN := tests/dev/run
RESULTS := .build/results

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort -u | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

.PHONY: setup
setup: setup-dev ## Make everything that the other targets need; does nothing when it is there

.PHONY: setup-dev
setup-dev: ## Make the developer's environment only (Python, Ansible, linters)
	@tests/dev/bootstrap

# Two at a time: each leaves half of two cores alone while it waits. The first of both have the linters beside them too.
LANES := hosts+scenario-default+scenario-docker+servers,scenario-rollout+scenario-podman

.PHONY: test
test: ## Run every check and test that a change must pass
	@tests/dev/steps setup-dev setup,unit lint+types+sanity $(LANES)

.PHONY: test-full
test-full: ## As test, with the tests that take long, and the other ansible-core releases
	@SGLANG_TEST_FULL=1 LAB_START_METHOD=spawn tests/dev/steps setup-dev setup,unit lint+types+sanity+ansible-versions $(LANES) scenario-cgroup_v2

.PHONY: build
build: setup-dev ## Build the archive that Galaxy takes, into .build/
	@tests/dev/build

.PHONY: clean
clean: ## Remove what the targets made inside the checkout
	rm -rf .build .ansible .mypy_cache .ruff_cache .hypothesis changelogs/.plugin-cache.yaml
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

include $(wildcard mk/*.mk)
