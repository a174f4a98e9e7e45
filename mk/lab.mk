# Test hosts with real servers, and the demo that runs on them.

HOSTS := tests/hosts/hosts

# A part of `setup`, which makes everything that the other targets need.
setup: lab

.PHONY: lab
lab: ## Make what test hosts are built from: root file system, SGLang for the CPU, a tiny model
	@tests/lab/setup.sh $(if $(filter 1,$(SGLANG_TEST_FULL)),vm)

.PHONY: demo
demo: setup ## Restart three real servers under load on three hosts (KEEP=1 leaves the hosts up)
	@$(RUN) tests/lab/demo

.PHONY: demo-down
demo-down: ## Remove the hosts that `make demo KEEP=1` left up
	@$(HOSTS) down --fleet demo
