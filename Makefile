# The commands of this project. `make help` lists them.

PREFIX ?= /usr/local
DESTDIR ?=
CARGO := ./scripts/cargo
OXVS := target/release/oxvs
PROGRAMS := $(OXVS) $(OXVS)-lab

.PHONY: help build demo test test-fast test-long install uninstall bench gaps soak fuzz kernel-qdiscs systemd restarts clean

help:
	@echo 'make demo      install what is missing, build, and show what the switch does (root or sudo)'
	@echo 'make test      format, lints, import rules and all tests (as root: also those with network namespaces)'
	@echo 'make test-fast the same without the tests that need root'
	@echo 'make test-long all of these and what takes minutes: random tests at length, client libraries, restarts, systemd, a guest (root or sudo; about an hour)'
	@echo 'make build     $(PROGRAMS), with their debug symbols beside them'
	@echo 'make install   oxvs, oxvs-lab and a service unit; LINKS=1 also ovs-vsctl, ovs-vswitchd, ...; PREFIX=$(PREFIX) DESTDIR=$(DESTDIR)'
	@echo 'make bench     measure oxvs, Open vSwitch and the Linux bridge (root or sudo)'
	@echo 'make gaps      the longest gap of a worker while 1000 ports come and go, a million rules are loaded, 3000 offloaded flows close (root or sudo)'
	@echo 'make soak      the randomised tests at length: SOAK=20 times the usual, a million packets compared with Open vSwitch; SOAK=2 ends within 20 minutes (root or sudo)'
	@echo 'make fuzz      each fuzz target for FUZZ_SECONDS=60 (installs a nightly toolchain and cargo-fuzz)'
	@echo 'make systemd   move from Open vSwitch to oxvs and back in a booted Debian container, MOVES=5 times (root or sudo)'
	@echo 'make restarts  restart the switch ROUNDS=1000 times in each of six ways and count incomplete starts (root or sudo)'
	@echo 'make kernel-qdiscs  record the behaviour of the qdiscs of Debian'"'"'s kernel, for the comparison with ours (installs QEMU)'

build:
	./scripts/setup.sh build
	$(CARGO) build --release --locked -p oxvs
	./scripts/symbols $(PROGRAMS)

demo:
	./scripts/setup.sh demo
	$(CARGO) build --release --locked -p oxvs
	./scripts/symbols $(PROGRAMS)
	./scripts/as-root env OXVS=$(CURDIR)/$(OXVS) CLIENT='$(CLIENT)' ./demo/demo.sh

test:
	./scripts/setup.sh test
	./scripts/test.sh

test-fast:
	./scripts/setup.sh test
	OXVS_TESTS=fast ./scripts/test.sh

test-long: build
	./scripts/setup.sh long
	./scripts/setup.sh systemd
	./scripts/setup.sh guest
	./scripts/as-root env PATH="$$PATH" OXVS=$(OXVS) ./scripts/test-long.sh

# The switches that `make bench` compares across two hosts on veth.
VETH ?= oxvs oxvs-spin bridge ovs-tso ovs-afxdp
bench:
	./scripts/setup.sh test
	$(CARGO) build --release --locked -p oxvs
	./scripts/symbols $(PROGRAMS)
	./scripts/as-root sh -c '"$$0" lab run S5.veth --full $(VETH:%=--switch %) --out "$$1" && "$$0" lab report "$$1"' \
	    $(CURDIR)/$(OXVS) $(CURDIR)/target/lab-veth-$$(date +%s)
	./scripts/as-root sh -c '"$$0" lab run S5.rates S5.loaded --switch oxvs --out "$$1" && "$$0" lab report "$$1"' \
	    $(CURDIR)/$(OXVS) $(CURDIR)/target/lab-bench-$$(date +%s)
	$(CARGO) bench --locked -p ovsdb-server --bench versus
	./scripts/as-root env PATH="$$PATH" $(CARGO) bench --locked -p oxvs --bench openflow

gaps: $(OXVS)
	./scripts/as-root sh -c '"$$0" lab run S5.gaps --full --switch oxvs --out "$$1" && "$$0" lab report "$$1"' \
	    $(CURDIR)/$(OXVS) $(CURDIR)/target/lab-gaps-$$(date +%s)

SOAK ?= 20
soak:
	./scripts/setup.sh test
	./scripts/as-root env PATH="$$PATH" ./scripts/soak.sh $(SOAK) $(SOAK_MINUTES)

FUZZ_SECONDS ?= 60
fuzz:
	./scripts/setup.sh fuzz
	./scripts/fuzz.sh $(FUZZ_SECONDS)

MOVES ?= 5
systemd: $(OXVS)
	./scripts/setup.sh systemd
	./scripts/as-root env OXVS=$(OXVS) ./scripts/systemd.sh $(MOVES)

ROUNDS ?= 1000
restarts: $(OXVS)
	./scripts/as-root env OXVS=$(OXVS) ./scripts/restarts.sh $(ROUNDS)

kernel-qdiscs:
	./scripts/setup.sh guest
	./scripts/qdiscs.sh

# Builds only if a program is missing, so that `sudo make install` after `make build` needs no
# toolchain of root's. One build makes both.
$(PROGRAMS) &:
	$(MAKE) build

bindir = $(PREFIX)/bin
# gdb, perf and the programs' own backtraces look there for any PREFIX, but not in
# $(PREFIX)/lib/debug.
debugdir = $(bindir)/.debug
sbindir = $(PREFIX)/sbin
unitdir = $(PREFIX)/lib/systemd/system
TOOLS = ovs-vsctl ovs-ofctl ovs-appctl ovs-dpctl ovsdb-client ovsdb-tool
DAEMONS = ovs-vswitchd ovsdb-server

install: $(PROGRAMS)
	install -d $(DESTDIR)$(bindir)
	install -m 755 $(PROGRAMS) $(DESTDIR)$(bindir)
	for symbols in $(PROGRAMS:%=%.debug); do \
		[ ! -e $$symbols ] || { install -d $(DESTDIR)$(debugdir) && install -m 644 $$symbols $(DESTDIR)$(debugdir); } || exit 1; \
	done
	install -d $(DESTDIR)$(unitdir)
	sed 's|@BINDIR@|$(bindir)|g' dist/oxvs.service > $(DESTDIR)$(unitdir)/oxvs.service
	chmod 644 $(DESTDIR)$(unitdir)/oxvs.service
ifeq ($(LINKS),1)
	install -d $(DESTDIR)$(sbindir)
	for tool in $(TOOLS); do ln -sf oxvs $(DESTDIR)$(bindir)/$$tool; done
	for daemon in $(DAEMONS); do ln -sf $(bindir)/oxvs $(DESTDIR)$(sbindir)/$$daemon; done
endif

# Removes the installed files, and links only if they are ours.
uninstall:
	rm -f $(DESTDIR)$(bindir)/oxvs $(DESTDIR)$(bindir)/oxvs-lab $(DESTDIR)$(unitdir)/oxvs.service
	rm -f $(DESTDIR)$(debugdir)/oxvs.debug $(DESTDIR)$(debugdir)/oxvs-lab.debug
	rmdir $(DESTDIR)$(debugdir) 2>/dev/null || true
	for link in $(TOOLS:%=$(DESTDIR)$(bindir)/%) $(DAEMONS:%=$(DESTDIR)$(sbindir)/%); do \
		case "$$(readlink $$link)" in oxvs|$(bindir)/oxvs) rm -f $$link;; esac; \
	done

clean:
	$(CARGO) clean
