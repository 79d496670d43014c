# What a person types. `make` alone lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Each step wants all cores.
.NOTPARALLEL:

CARGO ?= cargo
# Where cargo puts what it builds for tests.
built = $(abspath $(or $(CARGO_TARGET_DIR),target))/debug
# And what is built to be used.
release = $(abspath $(or $(CARGO_TARGET_DIR),target))/release
bench_results = $(abspath $(or $(CARGO_TARGET_DIR),target))/bench/results.jsonl

# The scripts in tests/env end with status 3 where the machine lacks something that they cannot install. What needs it
# says so itself: a test is skipped, or fails where CI=true, and a build fails with the name of what it misses.
go_on_without = { [[ $$? -eq 3 && $${CI:-} != true ]] || exit 1; }

.PHONY: help
help:
	@echo 'make TARGET, with TARGET one of:'
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-13s %s\n", $$1, $$2}'

.PHONY: demo
demo: build-packages ## 100 virtual machines become Nodes, in about 25 s after the build; DEMO=keep goes on serving
	@$(CARGO) run --locked -p cloud-controller-manager --example demo

# Everything in one build, the daemon's binary and the demo included: asked for one by one, cargo would choose other
# features for the dependencies and compile them again.
.PHONY: test
test: ready ## every test, with the real peers, which are installed and built first; CI=true lets none be skipped
	@CCM_BINARY=$(built)/cloud-controller-manager CARGO='$(CARGO)' tests/run.sh 2>&1 | awk -f tests/summary.awk
	@echo 'make test: the demo'
	@output=$$(mktemp); trap 'rm -f "$$output"' EXIT; \
	    $(built)/examples/demo >"$$output" || { cat "$$output"; exit 1; }; tail -n 1 "$$output"

# stress-ng keeps the cores and the disk busy, as other builds on a CI machine do. A run that fails is named with its tests.
.PHONY: flaky
flaky: ready ## the integration tests N times (20) under stress-ng: prints each failure with its run; FILTER selects tests
	@tests/env/install.sh stress
	@CCM_BINARY=$(built)/cloud-controller-manager CARGO='$(CARGO)' tests/flaky.sh $(or $(N),20) $(FILTER)

.PHONY: soak
soak: cargo ## faults without end on a real API server, every deletion judged: SECONDS, SEED, NODES, FOCUS
	@tests/env/install.sh test
	@tests/env/build.sh kubernetes >/dev/null
	@$(CARGO) test --locked -p integration-tests --test integration -- soak \
	    seconds=$(or $(SECONDS),600) nodes=$(or $(NODES),200) $(if $(SEED),seed=$(SEED)) $(if $(FOCUS),focus=$(FOCUS)) $(if $(ON),on=$(ON))

# Some of them are among the tests. A failure names its seed; SEED=N runs that history alone.
.PHONY: soak-services
soak-services: build-packages ## 10,000 random histories of Services, Nodes, faults and restarts against a model: HISTORIES, SEED
	CCM_SERVICE_HISTORIES=$(or $(HISTORIES),10000) $(if $(SEED),CCM_SERVICE_HISTORY=$(SEED)) \
	    $(CARGO) test --locked -p integration-tests --test integration -- --nocapture services::random_histories

.PHONY: soak-machines
soak-machines: build-packages ## 10,000 random histories of machines, faults, moves and restarts against a model: HISTORIES, SEED
	CCM_MACHINE_HISTORIES=$(or $(HISTORIES),10000) $(if $(SEED),CCM_MACHINE_HISTORY=$(SEED)) \
	    $(CARGO) test --locked --profile soak -p integration-tests --test integration -- --nocapture machines::random_histories

.PHONY: soak-lifecycle
soak-lifecycle: build-packages ## 10,000 random histories of Clusters and their Machines, faults, moves and restarts against a model: HISTORIES, SEED
	CCM_LIFECYCLE_HISTORIES=$(or $(HISTORIES),$(if $(SEED),1,10000)) $(if $(SEED),CCM_LIFECYCLE_HISTORY=$(SEED)) \
	    $(CARGO) test --locked --profile soak -p lifecycle-controllers --lib -- --nocapture tests::histories

.PHONY: soak-routes
soak-routes: build-packages ## 10,000 random histories of routes, Nodes, faults and restarts: HISTORIES
	CCM_ROUTE_HISTORIES=$(or $(HISTORIES),10000) $(CARGO) test --locked -p ccm --lib -- --nocapture route::controller::tests::histories

# Cluster API's managers and ours are started and stopped or killed in turns. Four of these rounds are among the tests.
.PHONY: soak-gate
soak-gate: peers ## Cluster API's managers and ours take turns under the same Leases, the audit log judged: ROUNDS (200), SEED
	CCM_GATE_ROUNDS=$(or $(ROUNDS),200) $(if $(SEED),CCM_GATE_SEED=$(SEED)) \
	    $(CARGO) test --locked -p integration-tests --test integration -- --nocapture take_turns

# Two rounds are among the tests.
.PHONY: soak-autoscaler
soak-autoscaler: peers ## an autoscaler scales down in the middle of rollouts on a real API server, only what it chose may go: ROUNDS (50)
	CCM_AUTOSCALER_ROUNDS=$(or $(ROUNDS),50) \
	    $(CARGO) test --locked -p integration-tests --test integration -- --nocapture lifecycle::an_autoscaler

# One minute for each attack: from this machine, and as root from many addresses too.
.PHONY: soak-port
soak-port: peers ## attacks the daemon's port for 25 minutes: it leads, answers, and stays small
	CCM_SOAK_SECONDS=60 $(CARGO) test --locked -p integration-tests -- --nocapture --test-threads 1 \
	    apiserver::serving::a_leader_under_siege

# The binary is the one that operators run: times and memory of a debug build say nothing.
.PHONY: soak-tenants
soak-tenants: build ## 5,000 objects of a hostile tenant beside another one's machines, memory and times judged: OBJECTS
	@tests/env/install.sh test
	@for peer in kubernetes vcsim; do tests/env/build.sh "$$peer" >/dev/null; done
	CI=true CCM_BINARY=$(release)/cloud-controller-manager CCM_HOSTILE_OBJECTS=$(or $(OBJECTS),5000) $(CARGO) test --locked -p integration-tests --test integration -- --nocapture \
	    machines::hostile_objects

# With one machine each, both are among the tests.
.PHONY: e2e
e2e: cargo ## machines with real kubelets, with Cluster API's managers, and without them drained, rebooted, replaced and rolled out: MACHINES (2)
	@tests/env/install.sh test
	@for peer in kubernetes cluster-api node; do tests/env/build.sh "$$peer" >/dev/null; done
	CI=true CCM_E2E_MACHINES=$(or $(MACHINES),2) $(CARGO) test --locked -p integration-tests --test integration -- --nocapture \
	    --test-threads 1 e2e::

.PHONY: e2e-capv
e2e-capv: cargo ## one of the tests: the machines of Cluster API Provider vSphere are taken over, and given back
	@tests/env/install.sh test
	@for peer in kubernetes cluster-api vcsim capv capv-manager; do tests/env/build.sh "$$peer" >/dev/null; done
	CI=true $(CARGO) test --locked -p integration-tests --test integration -- --nocapture cluster_api::vsphere::swapped

.PHONY: lint
lint: build-packages ## formatting, clippy, rustdoc, shell scripts, the one TLS stack, licences (with cargo-deny)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p cloud-controller-manager --no-default-features -- -D warnings
	$(CARGO) clippy --locked -p cloud-controller-manager --no-default-features --features libvirt,vsphere -- -D warnings
	$(CARGO) clippy --locked -p ccm --no-default-features -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --workspace --no-deps --features cloudprovider/testing
	@git ls-files -z '*.sh' .ci/run | xargs -0 -n 1 bash -n
	@if command -v shellcheck >/dev/null; then git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck; \
	    else echo 'lint: shellcheck is not installed (apt-get install shellcheck): shell scripts were only parsed'; fi
	@tree=$$($(CARGO) tree --locked --workspace --all-features --edges normal,build --target all --prefix none); \
	    if grep -E '^(aws-lc-(rs|sys|fips-sys)|openssl(-sys)?|native-tls) ' <<<"$$tree"; then \
	        echo 'lint: the crates above are a second TLS stack or crypto provider; rustls with ring is the only one'; exit 1; fi
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny --locked check bans licenses sources; \
	    else echo 'lint: cargo-deny is not installed (cargo install --locked cargo-deny): licences were not checked'; fi

.PHONY: outside-crate
outside-crate: build-packages ## builds, runs and tests the provider of docs/tutorials/writing-a-provider.md, outside of this workspace
	@CARGO='$(CARGO)' tests/outside-crate.sh

.PHONY: deny
deny: cargo ## licences, banned crates, sources and advisories; the last one needs github.com
	@command -v cargo-deny >/dev/null || { echo 'deny: cargo install --locked cargo-deny' >&2; exit 1; }
	$(CARGO) deny --locked check

.PHONY: fmt
fmt: cargo ## formats the Rust code
	$(CARGO) fmt --all

.PHONY: doc
doc: build-packages ## builds the Rust documentation
	$(CARGO) doc --locked --workspace --no-deps --features cloudprovider/testing

.PHONY: build
build: build-packages ## the release binary, target/release/cloud-controller-manager
	$(CARGO) build --locked --release -p cloud-controller-manager

.PHONY: dist
dist: build-packages ## tarball, Debian package and checksums for this machine's architecture, in target/dist
	@deploy/dist/package.sh

.PHONY: bench
bench: cargo ## measures beside Go's managers and writes docs/explanation/performance.md: hours; QUICK=1 only tries it, in minutes
	@tests/env/install.sh test
	@for peer in kubernetes framework vcsim cpi cluster-api in-memory capv capv-manager; do tests/env/build.sh "$$peer" >/dev/null; done
	$(CARGO) build --locked --release -p cloud-controller-manager -p bench
	@rm -f $(bench_results)
	@$(release)/bench --results $(bench_results) run $(if $(QUICK),--quick,)
	@$(if $(QUICK),,$(release)/bench --results $(bench_results) report)

# Everything else is compiled as `make test` does it, so that only the benchmarks are compiled.
.PHONY: test-bench
test-bench: build-packages ## the tests of the benchmarks, which are no part of `make test`
	$(CARGO) test --locked --workspace --bin bench --bin floor --bin ideal --bin libvirt_test_driver

.PHONY: microbench
microbench: build-packages ## nanoseconds and allocations of the parts that run for each Node or machine; as root, many addresses and routes too
	$(CARGO) bench --locked -p cloud-controller-manager -p bench --bench hot_parts --bench kernel_network

.PHONY: manifests
manifests: build-packages ## writes the generated files of deploy/ and docs/ anew
	$(CARGO) run --locked --quiet -p ccm --example write_manifests
	UPDATE_DOCS=1 $(CARGO) test --locked --quiet -p ccm --lib documentation
	UPDATE_DOCS=1 $(CARGO) test --locked --quiet -p cloudprovider-vsphere --lib reference
	UPDATE_DOCS=1 $(CARGO) test --locked --quiet -p cloud-controller-manager --bin cloud-controller-manager generated_files

.PHONY: clean
clean: cargo ## removes what was built, the peers of the tests included
	$(CARGO) clean
	rm -rf .cache

.PHONY: cargo
cargo:
	@command -v $(CARGO) >/dev/null || { \
	    echo 'make: there is no cargo here. Install Rust with rustup (https://rustup.rs) and open a new shell.' >&2; exit 1; }

.PHONY: build-packages
build-packages: cargo
	@tests/env/install.sh build || $(go_on_without)

all_peers = kubernetes kubernetes-previous kubelet kubeadm kube-proxy cluster-api in-memory containerd leader framework vcsim cpi capv capv-manager kube-vip helm guest node

# One after the other: the Go builds want all cores, and use what an earlier one compiled. What is in the cache costs nothing.
.PHONY: peers
peers: cargo
	@tests/env/install.sh test || $(go_on_without)
	@for peer in $(all_peers); do tests/env/build.sh "$$peer" >/dev/null || $(go_on_without); done

# All that tests need is built, side by side: cargo and Go link, and compile large packages, on one core. Go's modules are fetched
# meanwhile. What was not fetched then is fetched by the build that needs it, and fails there. The benchmarks are left out.
# What Go compiled takes 11 GB, and a CI machine never compiles again.
.PHONY: ready
ready: cargo
	@tests/env/install.sh test || $(go_on_without)
	@setsid timeout 900 tests/env/build.sh --download $(all_peers) & downloads=$$!; \
	    setsid nice $(MAKE) --no-print-directory peers & peers=$$!; \
	    trap 'kill -- "-$$downloads" "-$$peers" 2>/dev/null || true' EXIT; trap 'exit 130' INT TERM; \
	    $(CARGO) build --locked --workspace --exclude bench --lib --bins --tests --examples; \
	    wait "$$downloads" || echo 'make: not all modules were fetched; the build of their peer tries again' >&2; \
	    wait "$$peers"; \
	    [[ $${CI:-} != true ]] || ! command -v go >/dev/null || go clean -cache
