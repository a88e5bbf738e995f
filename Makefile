# Trivet's commands. `make help` lists them.

SHELL   := bash
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO      ?= go
BIN     := bin/trivet
UNIT     = $(shell $(GO) list ./... | grep -v /test/)

.PHONY: help build image demo test check lint bench e2e chaos scale vuln deps clean docs FORCE

help: ## list the commands
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

build: $(BIN) ## build bin/trivet, one static binary

$(BIN): FORCE
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/trivet

demo: build ## a head and simulated machines on this computer; no root needed
	$(BIN) demo --machines 10

image: deps ## a small Debian with cloud-init to install: bin/debian-12.raw.zst
	$(GO) run ./test/e2e/debimage/build bin/debian-12.raw.zst

deps: ## install the Debian packages that the tests use
	@scripts/deps

lint: ## gofmt, go vet, staticcheck
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) build -C tools -o ../bin/ tool
	bin/staticcheck ./...

check: lint ## the quick inner loop: lint and unit tests
	$(GO) test -short -timeout 5m $(UNIT)

test: deps build lint ## everything: unit, race, scripts, faults, real machines
	$(GO) test -race -timeout 30m $(UNIT)
	TRIVET=$(CURDIR)/$(BIN) $(GO) test -timeout 60m -p 1 ./test/...

e2e: deps build ## real firmware in QEMU: power on to running OS
	TRIVET=$(CURDIR)/$(BIN) $(GO) test -timeout 60m -count 1 -v -p 1 ./test/e2e/...

DURATION ?= 20m
chaos: deps build ## faults by chance against three heads under load: make chaos DURATION=20m; adds to docs/chaos.md
	CHAOS_DURATION=$(DURATION) CHAOS_RECORD=$(CURDIR)/docs/chaos.md TRIVET=$(CURDIR)/$(BIN) \
		$(GO) test -timeout 0 -count 1 -v -run '^TestChaos$$' ./test/cluster

bench: deps build ## measurements, side by side with the usual tools
	TRIVET=$(CURDIR)/$(BIN) scripts/bench

scale: build ## what is too big for make test
	TRIVET=$(CURDIR)/$(BIN) scripts/scale

docs: ## write docs/reference and docs/openapi.json from the code
	UPDATE=1 $(GO) test -count 1 -run '^(TestReference|TestOpenAPIIsPublished)' ./internal/docsgen ./cmd/trivet ./internal/api

vuln: ## known vulnerabilities in what is linked in
	$(GO) build -C tools -o ../bin/ tool
	bin/govulncheck ./...

clean: ## remove what was built
	rm -rf bin
