# What people type. `make help` lists it.

CARGO ?= cargo
# Folder of the study that `make study` runs: anew each time, unless given.
STUDY ?= study-$(shell date -u +%Y%m%dT%H%M%SZ)
PROFILE ?= quick
BIN = $(or $(CARGO_TARGET_DIR),target)/release

.DEFAULT_GOAL := help
.PHONY: help study test bench lint

help: ## This list.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

study: ## Measure ping and blast on the user-space device (about 3 minutes), write a report, name it.
	$(CARGO) build --release --package adverb
	@$(BIN)/adverb study --profile $(PROFILE) --out $(STUDY)

test: ## All tests. What could not run is named at the end.
	@scripts/test

bench: ## Adverb beside UCX, memcpy, sockets, perftest and Soft-RoCE, as ratios of one run.
	$(CARGO) build --release --package adverb --package adverb-bench --package adverb-vm
	@$(BIN)/adverb-bench bounds

lint: ## Format (in CI: check the format), clippy and rustdoc; warnings are errors.
	$(CARGO) fmt --all $(if $(CI),--check)
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --document-private-items --quiet
