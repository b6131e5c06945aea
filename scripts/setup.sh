#!/bin/sh
# Installs what is missing for `build`, `demo`, `test`, `long` (client libraries with tests of their
# own, beside what `test` has), `fuzz`, `guest` (virtual machines with Debian's kernel), `systemd`
# (a container that systemd boots) or `peers` (what `oxvs lab` measures beside oxvs: Open vSwitch
# with DPDK, and Mininet; the applications, containers and guests that it runs): prints the reasons,
# asks no questions, and changes no installed program.
set -eu
cd "$(dirname "$0")/.."
goal=${1:?usage: setup.sh build|demo|test|long|fuzz|guest|systemd|peers}
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

missing=
# need COMMAND PACKAGE WHY...
need() {
    command -v "$1" >/dev/null && return
    package=$2
    shift 2
    echo "setup: Debian package $package is missing: $*"
    missing="$missing $package"
}

install_packages() {
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || {
        echo "setup: no apt-get here; install the programs of$missing by hand" >&2
        exit 1
    }
    echo "setup: installing$missing"
    # Keeps packages from starting daemons: only Open vSwitch's programs are needed.
    trap allow_daemons EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if [ ! -e $policy ]; then
        ours=yes
        printf '#!/bin/sh\nexit 101\n' | ./scripts/as-root tee $policy >/dev/null
        ./scripts/as-root chmod 755 $policy
    fi
    status=0
    apt_install || { ./scripts/as-root apt-get -qq update && apt_install; } || status=$?
    allow_daemons
    trap - EXIT HUP INT TERM
    [ $status -eq 0 ] || exit $status
    case "$missing" in
    *openvswitch* | *ovn* | *nftables* | *nfdump* | *pmacct* | *lldpd* | *frr* | *nginx* | *caddy* | *podman* | *libvirt*)
        # Only the programs are needed, so the services stay disabled at the next boot too.
        for service in openvswitch-switch openvswitch-testcontroller openvswitch-vtep ovn-central ovn-host \
            ovn-controller-vtep nftables dpdk \
            nfdump nfacctd pmacctd sfacctd uacctd lldpd frr nginx caddy \
            podman podman.socket podman-restart podman-auto-update.timer \
            libvirtd libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirt-guests \
            virtlogd.socket virtlogd-admin.socket virtlockd.socket virtlockd-admin.socket; do
            ./scripts/as-root update-rc.d $service disable >/dev/null 2>&1 ||
                ./scripts/as-root systemctl disable $service >/dev/null 2>&1 || true
        done
        ;;
    esac
    missing=
}

policy=/usr/sbin/policy-rc.d
ours=

# Removes the policy that keeps packages from starting daemons, if it is this script's.
allow_daemons() {
    [ -z "$ours" ] || ./scripts/as-root rm -f $policy
    ours=
}

apt_install() {
    # shellcheck disable=SC2086 # a list of words
    ./scripts/as-root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install $missing </dev/null >/dev/null
}

need cc gcc "links Rust programs"
[ -e /usr/include/stdio.h ] || need /usr/include/stdio.h libc6-dev "links Rust programs"
if [ "$goal" != build ]; then
    need ip iproute2 "makes the network namespaces of tests and demo"
    need ethtool ethtool "sets the offloads of the laboratory's cables"
    need setpriv util-linux "ends what tests start together with them"
    need tcpdump tcpdump "shows what arrives where"
    need ping iputils-ping "tries who reaches whom"
    need iperf3 iperf3 "measures TCP"
    need ovs-testcontroller openvswitch-testcontroller "is the controller that programs a bridge (its service stays off)"
fi
if [ "$goal" = guest ]; then
    need qemu-system-x86_64 qemu-system-x86 "runs Debian's kernel beside this one"
    need dpkg-deb dpkg "unpacks that kernel"
    need openssl openssl "makes the certificates of tunnels with IPsec"
    need nft nftables "keeps their packets from passing unencrypted"
    need tshark tshark "reads the packets of tunnels"
fi
if [ "$goal" = systemd ]; then
    need mmdebstrap mmdebstrap "makes a Debian to boot"
    need systemd-nspawn systemd-container "boots it in a container"
fi
if [ "$goal" = peers ]; then
    drivers=$(echo /usr/lib/*/dpdk/pmds-*)
    need ovs-vswitchd openvswitch-switch "its programs are what ours are compared with (its services stay off)"
    need /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk openvswitch-switch-dpdk "is Open vSwitch with DPDK"
    need mn mininet "makes networks of its own with its switch on oxvs"
    need iperf iperf "is what Mininet measures with"
    need ifconfig net-tools "is what Mininet sets addresses with"
    need nginx nginx-light "is the web server of an experiment (its service stays off)"
    need wrk wrk "loads that server"
    need caddy caddy "is the web server over QUIC of that experiment (its service stays off)"
    need dnsmasq dnsmasq-base "is the DNS server of an experiment"
    need dnsperf dnsperf "loads that server"
    need qemu-system-x86_64 qemu-system-x86 "runs hosts as guests"
    need virt-qemu-run libvirt-clients-qemu "runs hosts as guests of libvirt"
    getent passwd libvirt-qemu >/dev/null || need - libvirt-daemon-system "has the driver of those guests (its services stay off)"
    need podman podman "runs hosts as containers (its services stay off)"
    need crun crun "is the runtime of those containers"
    need runc runc "is their runtime on a machine with both versions of control groups, where crun refuses"
    for part in net_pcap:librte-net-pcap23 net_null:librte-net-null23 mempool_ring:librte-mempool-ring23; do
        ls "$drivers"/librte_"${part%:*}".so* >/dev/null 2>&1 || need - "${part#*:}" "lets DPDK move packets without a network card"
    done
fi
if [ "$goal" = long ]; then
    "$0" test
    need vtep-ctl openvswitch-vtep "has the schema of ovsdbapp's tests of hardware VTEPs"
    # Its daemons lie outside of every PATH.
    need /usr/lib/frr/bfdd frr "is the peer that BFD is tried with (its service stays off)"
fi
if [ "$goal" = test ]; then
    need ovn-northd ovn-central "has the databases of OVN, whose networks are tried (its services stay off)"
    need ovn-controller ovn-host "programs the switch of a chassis of OVN (its services stay off)"
    need ovn-controller-vtep ovn-controller-vtep "joins a hardware VTEP to those networks (its service stays off)"
    need curl curl "asks the web servers of those networks"
    need nft nftables "is the kernel's connection tracking, which ours is compared with (its service stays off)"
    need valgrind valgrind "counts the instructions of the fast path"
    need git git "lists the files that are checked"
    need clang clang "builds the eBPF programs again, to see that their objects match"
    need tshark tshark "reads the datagrams of exporters"
    need nfcapd nfdump "collects NetFlow and IPFIX"
    need sfcapd nfdump-sflow "collects sFlow"
    need nfacctd pmacct "collects NetFlow and IPFIX"
    need lldpd lldpd "is the neighbour that LLDP is tried with (its service stays off)"
    need chromium-headless-shell chromium-headless-shell "looks at the laboratory's report"
    need python3 python3 "runs the controllers that tests are made with"
    python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv python3-venv "keeps those controllers apart from the system's Python"
    [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/Python.h" ] ||
        need Python.h python3-dev "builds a library that Faucet needs"
    need ovs-vswitchd openvswitch-switch "its programs are what ours are compared with (its services stay off)"
fi
./scripts/cargo --find || command -v rustup >/dev/null || {
    need curl curl "fetches the Rust toolchain"
    [ -e /etc/ssl/certs/ca-certificates.crt ] || need /etc/ssl/certs/ca-certificates.crt ca-certificates "fetches the Rust toolchain"
    if apt-cache show rustup 2>/dev/null | grep -q '^Package: rustup'; then
        need rustup rustup "installs the Rust toolchain"
    fi
}
install_packages

PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
toolchain=$(cat scripts/toolchain)
components="--component clippy --component rustfmt"
if ! ./scripts/cargo --find; then
    echo "setup: no Rust toolchain that is new enough: installing Rust $toolchain with rustup"
    if command -v rustup >/dev/null; then
        # shellcheck disable=SC2086
        rustup toolchain install "$toolchain" --profile minimal $components
    else
        installer=$(mktemp)
        curl --proto '=https' --tlsv1.2 -sSf --retry 3 https://static.rust-lang.org/rustup/rustup-init.sh -o "$installer"
        # shellcheck disable=SC2086
        sh "$installer" -y --quiet --no-modify-path --default-toolchain "$toolchain" --profile minimal $components >/dev/null
        rm -f "$installer"
    fi
    ./scripts/cargo --find
fi

if [ "$goal" = test ]; then
    for part in fmt clippy; do
        ./scripts/cargo $part --version >/dev/null 2>&1 || {
            echo "setup: cargo $part is missing: adding it with rustup"
            rustup component add clippy rustfmt
            break
        }
    done
fi
if [ "$goal" = fuzz ]; then
    need c++ g++ "builds libFuzzer"
    install_packages
    rustup toolchain list | grep -q '^nightly' || {
        echo "setup: fuzzing needs a nightly Rust toolchain: installing it with rustup"
        rustup toolchain install nightly --profile minimal
    }
    ./scripts/cargo fuzz --version >/dev/null 2>&1 || {
        echo "setup: installing cargo-fuzz"
        ./scripts/cargo install --quiet --locked cargo-fuzz
    }
fi

# environment DIRECTORY REQUIREMENTS WHAT: Python packages in an environment of their own under
# target/. Tests that need them are skipped with a message if they are missing.
environment() {
    cmp -s "$2" "$1/requirements.txt" && return
    echo "setup: making $1 with $(grep -c == "$2") packages from PyPI ($3)"
    rm -rf "$1"
    if python3 -m venv "$1" && "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"; then
        cp "$2" "$1/requirements.txt"
    else
        echo "setup: no $3: their tests will be skipped" >&2
    fi
}
if [ "$goal" = test ]; then
    environment target/controllers crates/oxvs/tests/controllers/requirements.txt controllers
fi
if [ "$goal" = long ]; then
    environment target/client-libraries/venv crates/oxvs/tests/client_libraries/requirements.txt "client libraries"
fi
