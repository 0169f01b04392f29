# What people type. `make help` lists it.

CARGO ?= cargo
# Folder of the study that `make study` runs: anew each time, unless given.
STUDY ?= study-$(shell date -u +%Y%m%dT%H%M%SZ)
PROFILE ?= quick
# Where `make install` puts things; DESTDIR, for those who make packages, comes before it.
PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share
TARGET = $(or $(CARGO_TARGET_DIR),target)
BIN = $(TARGET)/release

.DEFAULT_GOAL := help
.PHONY: help study install test bench lint

help: ## This list.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

study: ## Measure ping and blast on the user-space device, next to the model of a NIC (about 2 minutes), write a report, name it.
	$(CARGO) build --release --package adverb
	@$(BIN)/adverb study --profile $(PROFILE) --device soft --device model:mt26428_qdr --out $(STUDY)

install: ## Build the program and install it, the library of `adverb run`, manual pages and shell completions below PREFIX (/usr/local).
	$(CARGO) build --profile dist --package adverb
	install -D $(TARGET)/dist/adverb $(DESTDIR)$(PREFIX)/bin/adverb
	install -D -m 644 $(TARGET)/dist/deps/libadverb_preload.so $(DESTDIR)$(PREFIX)/lib/adverb/libadverb_preload.so
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(TARGET)/dist/adverb man $(SHARE)/man/man1
	$(TARGET)/dist/adverb completions bash >$(SHARE)/bash-completion/completions/adverb
	$(TARGET)/dist/adverb completions zsh >$(SHARE)/zsh/site-functions/_adverb
	$(TARGET)/dist/adverb completions fish >$(SHARE)/fish/vendor_completions.d/adverb.fish

test: ## All tests. What could not run is named at the end.
	@scripts/test

bench: ## Adverb beside UCX, memcpy, sockets, perftest and Soft-RoCE, as ratios of one run.
	$(CARGO) build --release --package adverb --package adverb-bench --package adverb-vm
	@$(BIN)/adverb-bench bounds

lint: ## Format (in CI: check the format), clippy and rustdoc; warnings are errors.
	$(CARGO) fmt --all $(if $(CI),--check)
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" $(CARGO) doc --workspace --no-deps --document-private-items --quiet
