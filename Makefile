# Commands of the project. `make help` lists them; docs/testing.md says what each test command runs.

SHELL   := bash
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO      ?= go
BIN     := bin/trivet
UNIT     = $(shell $(GO) list ./... | grep -v /test/)
WHOLE    = $(shell $(GO) list ./test/... | grep -vE '/test/(cluster|e2e)')
GOTEST   = TRIVET=$(CURDIR)/$(BIN) bin/gotest
DURATION ?= 20m
MACHINES ?= 100000
RUNS     ?= 10
AGENTS   ?= 10000
HEADS    ?= 3

# The program, go vet and the tests are compiled with the same flags, so that each package is compiled once. Only -race
# compiles all again.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath
RACE := CGO_ENABLED=1 -race

# The groups of tests: one run of go test each. Packages of the third group own their addresses and namespaces. SCAN
# names the tests that only read the sources: the race detector has nothing to find there, and makes them slower. No
# group vets what it compiles: make lint has done it.
SCAN   = '^(TestDefaultsAreNotBypassed|TestScans|TestTransactions|TestVocabulary)$$'
SCANS  = -- -vet=off -timeout 10m -run $(SCAN) .
UNITS  = -- $(RACE) -vet=off -timeout 30m -p 3 -parallel 4 -skip $(SCAN) $(UNIT)
WHOLES = -- -vet=off -timeout 60m -p 2 -parallel 4 $(WHOLE)
FAULTS = -- -vet=off -timeout 60m ./test/cluster
REAL   = -- -vet=off -timeout 60m -parallel 2 ./test/e2e/...

.PHONY: help build image demo deb release test terraform check lint bench e2e dashboards chaos profile soak scale vuln deps clean
.PHONY: docs FORCE bin/gotest

help: ## list the commands
	@grep -hE '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: $(BIN) ## build bin/trivet, one static binary

$(BIN): FORCE
	$(GO) build -ldflags '$(LDFLAGS)' -o $@ ./cmd/trivet

bin/gotest:
	$(GO) build -o $@ ./test/gotest

deb: build ## build the Debian package bin/trivet_VERSION_ARCH.deb; for another architecture: make deb GOARCH=arm64
	@packaging/deb/build $(BIN) $(VERSION) $$($(GO) env GOARCH) bin

release: bin/cyclonedx-gomod ## build what a release has into bin/release, of a committed tree
	@packaging/release/build $(VERSION) bin/release amd64 arm64

bin/cyclonedx-gomod: tools/go.mod # writes bills of materials
	$(GO) build -C tools -o ../$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

bin/versitygw: tools/go.mod # the S3 server of test/s3
	$(GO) build -C tools -o ../$@ github.com/versity/versitygw/cmd/versitygw

demo: build ## run a head and simulated machines on this computer; no root needed
	$(BIN) demo --machines 10

image: deps ## build a small Debian with cloud-init to install: bin/debian-12.raw.zst
	$(GO) run ./test/e2e/debimage/build bin/debian-12.raw.zst

deps: ## install the Debian packages that the tests use
	@scripts/deps

lint: ## run gofmt, go vet and staticcheck
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) build -C tools -o ../bin/ honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...
	cd contrib/terraform && $(GO) vet ./... && ../../bin/staticcheck ./...

check: lint bin/gotest ## quick: lint and unit tests, under two minutes
	$(GOTEST) -- -short -timeout 5m -p 4 -parallel 8 $(UNIT)

test: deps build lint bin/gotest bin/versitygw bin/cyclonedx-gomod ## everything a change must pass: unit tests with -race, heads, faults, real machines
	$(GOTEST) $(SCANS) $(UNITS) $(WHOLES) $(FAULTS) $(REAL)
	$(MAKE) terraform

terraform: build ## the Terraform provider, against real heads; TOFU=/path/to/tofu also by OpenTofu
	cd contrib/terraform && TRIVET=$(CURDIR)/$(BIN) $(GO) test -count 1 -parallel 4 -timeout 10m ./...

soak: export GOFLAGS += -count=1
soak: deps build lint bin/gotest bin/versitygw bin/cyclonedx-gomod ## before a release: all tests, long faults, each firmware, chaos; adds to docs/soak.md
	TRIVET_SOAK=1 CHAOS_DURATION=$(DURATION) CHAOS_RECORD=$(CURDIR)/docs/chaos.md \
		PROFILE_RECORD=$(CURDIR)/docs/profile.md \
		$(GOTEST) -record docs/soak.md $(SCANS) $(UNITS) $(WHOLES) -- -vet=off -timeout 0 ./test/cluster $(REAL)

e2e: deps build ## real firmware in QEMU only: power on to running OS
	TRIVET=$(CURDIR)/$(BIN) $(GO) test -timeout 60m -count 1 -v -parallel 2 ./test/e2e/...

chaos: deps build ## random faults against three heads under load: make chaos DURATION=20m; adds to docs/chaos.md
	CHAOS_DURATION=$(DURATION) CHAOS_RECORD=$(CURDIR)/docs/chaos.md TRIVET=$(CURDIR)/$(BIN) \
		$(GO) test -timeout 0 -count 1 -v -run '^TestChaos$$' ./test/cluster

profile: deps build ## 2,000 workflows an hour with heads restarted: make profile DURATION=4h; adds to docs/profile.md
	TRIVET_SOAK=1 PROFILE_DURATION=$(DURATION) PROFILE_RECORD=$(CURDIR)/docs/profile.md TRIVET=$(CURDIR)/$(BIN) \
		$(GO) test -timeout 0 -count 1 -v -run '^TestSoakWorkflows$$' ./test/cluster

dashboards: deps build ## draw the dashboards in docs/images from the data of their test
	UPDATE=1 TRIVET=$(CURDIR)/$(BIN) $(GO) test -count 1 -run '^TestQueriesHaveData$$' ./test/dashboards

bench: deps build ## measurements, beside the usual tools
	TRIVET=$(CURDIR)/$(BIN) scripts/bench

scale: build ## what is too large for make test: make scale MACHINES=100000 RUNS=10 AGENTS=10000 HEADS=3 PAGE=FILE
	TRIVET=$(CURDIR)/$(BIN) scripts/scale -machines $(MACHINES) -runs $(RUNS) -agents $(AGENTS) -heads $(HEADS) \
		$(if $(PAGE),-page $(PAGE))

docs: ## write docs/reference, docs/openapi.json, internal/reference/records.json, packaging/config.yaml from the code
	UPDATE=1 $(GO) test -count 1 -run '^TestReference' ./internal/docsgen ./cmd/trivet
	UPDATE=1 $(GO) test -count 1 -run '^TestOpenAPIIsPublished' ./internal/api # it is compiled with records.json

vuln: ## list known vulnerabilities of what is linked in
	$(GO) build -C tools -o ../bin/ golang.org/x/vuln/cmd/govulncheck
	bin/govulncheck ./...

clean: ## remove what was built
	rm -rf bin
