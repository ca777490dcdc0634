# Everything that is built or fetched goes to .lab/ (ignored by git) and bin/. A fresh machine needs Go, git, make and a C compiler.
TOOLS := $(CURDIR)/.lab/tools
export PATH := $(TOOLS):$(PATH)
# For all of it: what is built with and without -trimpath shares nothing in Go's cache, so that a first run would compile everything twice.
export GOFLAGS := $(GOFLAGS) -trimpath
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# With -count=1 where a test runs programs: Go does not see that these changed and would give the result of before.
# golangci-lint runs vet.
GO_TEST := gotestsum --format pkgname-and-test-fails -- -vet=off
# The race detector instruments everything but scrypt, which has no goroutines and took minutes.
RACE := -race -gcflags=golang.org/x/crypto/scrypt=-race=false
# The packages that have such tests: to link the test programs of all others takes both cores for a minute. Those that run longest come first.
API_PACKAGES = $(shell grep -rl '^func TestAPI' --include='*_test.go' cmd internal | xargs -n1 dirname | sort -u | sed 's,^,./,')
API_FIRST := ./internal/restore ./internal/move
RUN ?= .
FUZZTIME ?= 60s
OPERATIONS ?= 10000
ROUNDS ?= 200

.PHONY: build lab demo bench test test-unit test-api test-live test-long fuzz check lint proto docs tools clean

build: ## mgmtctl into bin/
	go build -ldflags "-X main.release=$(VERSION)" -o bin/ ./cmd/...

lab: ## everything real management clusters are made of, from modules into .lab/; a second run takes seconds
	cd e2e && go run ./cmd/lab build

demo: build lab ## take snapshots by schedule, lose a management cluster, restore it into another one, move on to a third
	cd e2e && go run ./cmd/demo --mgmtctl ../bin/mgmtctl --mgmtd ../bin/mgmtd

bench: build lab ## figures next to the floors that the API server sets, on a machine that is left alone: BENCH="--objects 10000 --repeat 9 --baseline FOLDER-OF-OTHER-PROGRAMS"; and of moves next to those of clusterctl: BENCH="--moves 4 --record measured/clusterctl.json"
	cd e2e && go run ./cmd/lab build --peers
	cd e2e && go run ./cmd/bench --mgmtctl ../bin/mgmtctl --mgmtd ../bin/mgmtd $(BENCH)
	go test -tags api -run '^$$' -bench 'ListSnapshots|History' -benchtime 5x -timeout 20m ./internal/service ./internal/catalog

test: test-unit test-api test-live ## all three tiers

test-unit: $(TOOLS)/gotestsum ## no API server
	GORACE=atexit_sleep_ms=50 $(GO_TEST) $(RACE) ./... && cd e2e && $(GO_TEST) $$(go list ./... | grep -v -e '/live' -e '/contract' -e '/lab$$')

test-api: build lab $(TOOLS)/gotestsum ## bare API servers and etcd; three packages at a time, each with servers of its own
	GOGC=200 $(GO_TEST) -count=1 -p 3 -parallel 4 -ldflags=-w -tags api -timeout 50m -run '^TestAPI' $(API_FIRST) $(API_PACKAGES)

test-live: build lab $(TOOLS)/gotestsum ## real management clusters
	cd e2e && MGMTCTL=$(CURDIR)/bin/mgmtctl MGMTD=$(CURDIR)/bin/mgmtd $(GO_TEST) -count=1 -timeout 20m -skip '^TestLong' ./live/...

test-long: build lab $(TOOLS)/gotestsum ## make test-long RUN=regexp: by hand, not in CI: the whole crash matrices of the move (TestAPIMoveCrashes) and the restore (TestAPICrashes), 300 workload clusters that own one Secret (TestAPIMoveOfManyUnitsThatOwnOneSecret), a host that is suspended in more steps of a move (TestAPIFirstHostWakesUpAfterATakeOver), all scripts of mgmtctl through a daemon as well (TestAPIScripts), all deaths of a snapshot, prune and verify (TestEveryCall), a whole day with an attacker (TestADay), the soak of the store (TestSoakStore), copies beside prunes (TestCopiesAndPrunes), ROUNDS of random changes between snapshots (TestAPIRandomIncrementalIsFull), the lab's own kills, restores into targets full of obstacles (TestLongAdversity), a source that is cut off by a kill or by its network and comes back (TestLongSourceComesBack), moves and restores of a bigger lived-in fleet (TestLongLivedIn), hosts lost in the middle of a restore and a move (TestLongHostLost), a fleet that is moved to and fro with kills in each phase, cut networks, and killed API servers and S3 servers (TestLongMovesToAndFroWithKills), snapshots older than the workload clusters (TestLongStaleSnapshots), CAs and kubeconfigs that do not fit, and planted objects (TestLongAuthorities), real controllers beside those of Cluster API: in-cluster IPAM (TestLongAddressesAreGivenOnce), the Helm add-on provider (TestLongHelmCharts), Flux (TestLongFlux) and the Baremetal Operator (TestLongMetal3Hosts), a move next to one by clusterctl, object by object (TestLongMovesAsClusterctl), a restore and a move from Cluster API 1.10 (TestRestoreAcrossContracts, TestMoveAcrossContracts), 60 s of each fuzz target (Fuzz)
	MGMTD_TEST_STATES=. MGMTD_TEST_OPERATIONS=$(OPERATIONS) MGMTD_TEST_ROUNDS=$(ROUNDS) $(GO_TEST) -count=1 -tags api -timeout 60m -p 1 -run '$(RUN)' ./cmd/mgmtctl ./internal/service ./internal/move ./internal/restore ./internal/snapshot ./internal/replicate
	cd e2e && go run ./cmd/lab build --old --providers --peers
	cd e2e && MGMTCTL=$(CURDIR)/bin/mgmtctl $(GO_TEST) -count=1 -timeout 60m -p 1 -run '$(RUN)' ./lab ./contract
	cd e2e && MGMTD_TEST_LONG=. MGMTCTL=$(CURDIR)/bin/mgmtctl MGMTD=$(CURDIR)/bin/mgmtd $(GO_TEST) -count=1 -timeout 90m -run '$(RUN)' ./live
	$(MAKE) fuzz

fuzz: ## make fuzz RUN=regexp FUZZTIME=60s: every fuzz target that fits, one after the other; test-unit runs their corpus only
	mkdir -p .lab && go test -list '^Fuzz' ./... > .lab/fuzz
	awk '/^Fuzz/ {t[n++] = $$1} /^ok/ {for (i = 0; i < n; i++) print $$2, t[i]; n = 0}' .lab/fuzz | while read -r package target; do \
		echo "$$target" | grep -Eq '$(RUN)' || continue; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null || exit 1; \
	done

check: lint ## formatting, linters, import direction, generated code and docs, go.mod
	test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	go test -count=1 -run '^Test(Findings|Providers)DocumentIsUpToDate$$' ./cmd/mgmtctl ./internal/capi
	cd proto && buf lint && rm -rf ../.lab/gen && buf generate -o ../.lab/gen && diff -r --exclude='*.proto' mgmt ../.lab/gen/mgmt

lint: tools
	golangci-lint run ./... && golangci-lint run --build-tags api ./... && cd e2e && golangci-lint run --config ../.golangci.yml ./...

proto: tools ## generate the API from proto/
	cd proto && buf lint && buf generate

docs: ## generate docs/findings.md from the registry of finding codes, and docs/providers.md from the rows of internal/capi
	go test -count=1 -run '^Test(Findings|Providers)DocumentIsUpToDate$$' ./cmd/mgmtctl ./internal/capi -update

tools: $(TOOLS)/buf $(TOOLS)/golangci-lint $(TOOLS)/gotestsum

$(TOOLS)/buf: tools/buf/go.sum
	cd tools/buf && go build -o $(TOOLS)/ github.com/bufbuild/buf/cmd/buf google.golang.org/grpc/cmd/protoc-gen-go-grpc google.golang.org/protobuf/cmd/protoc-gen-go && touch $(TOOLS)/buf

$(TOOLS)/golangci-lint: tools/lint/go.sum
	cd tools/lint && go build -o $(TOOLS)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint && touch $@

$(TOOLS)/gotestsum: tools/lint/go.sum
	cd tools/lint && go build -o $(TOOLS)/ gotest.tools/gotestsum && touch $@

clean: ## what was built, but not the module cache
	rm -rf bin .lab
