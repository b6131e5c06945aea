#!/bin/bash
# Moves a booted Debian from Open vSwitch to oxvs and back, by the commands of README's "In place of
# Open vSwitch", in a container. usage: systemd.sh [MOVES] (root; 5 moves each way by default;
# OXVS=target/debug/oxvs; UNIT=FILE for another unit file)
#
# After each move the other switch's processes are gone, the database has the configuration, and a
# host behind a port is reachable. The last moves do without `disable`: starting one switch stops
# the other.
set -u
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
moves=${1:-5}
OXVS=$(realpath "${OXVS:-target/release/oxvs}")
UNIT=$(realpath "${UNIT:-dist/oxvs.service}")
tree=$PWD/target/systemd/debian
machine=oxvs-systemd-$$
root=$(mktemp -d /tmp/oxvs-systemd-XXXXXX)
booted=$root/tree
nspawn= leader= failed=0

main() {
    trap finish EXIT
    trap 'exit 130' HUP INT TERM
    make_tree || die "mmdebstrap made no tree; see $tree.log"
    # Boots an overlay of it, so that each run starts from the same state.
    mkdir "$root/upper" "$root/work" "$booted"
    mount -t overlay overlay -o "lowerdir=$tree,upperdir=$root/upper,workdir=$root/work" "$booted" ||
        cp -a "$tree/." "$booted/" || die "the tree could not be copied"
    install -D -m 755 "$OXVS" "$booted/usr/local/bin/oxvs"
    mkdir -p "$booted/usr/local/lib/systemd/system"
    sed 's|@BINDIR@|/usr/local/bin|g' "$UNIT" >"$booted/usr/local/lib/systemd/system/oxvs.service"
    boot || die "the container did not boot; it said: $(tail -n 5 "$root/console")"
    configure || die "Open vSwitch could not be configured"
    for move in $(seq "$moves"); do
        to_oxvs_by_readme
        check "to oxvs, $move" oxvs
        back_by_readme
        check "back, $move" openvswitch
    done
    for move in $(seq "$moves"); do
        # A quick machine moves more often than systemd starts a unit in ten seconds.
        inside systemctl reset-failed
        inside systemctl start oxvs
        check "to oxvs by its start alone, $move" oxvs
        inside systemctl start openvswitch-switch
        check "back by its start alone, $move" openvswitch
    done
    echo "$((4 * moves)) moves, $failed failed"
    [ $failed -eq 0 ]
}

make_tree() {
    [ ! -e "$tree/etc/debian_version" ] || return 0
    rm -rf "$tree"
    mkdir -p "$(dirname "$tree")"
    echo "making a Debian 12 with Open vSwitch in $tree" >&2
    mmdebstrap --variant=minbase --include=systemd,systemd-sysv,dbus,openvswitch-switch,iproute2,iputils-ping,procps \
        bookworm "$tree.new" >"$tree.log" 2>&1 && mv "$tree.new" "$tree"
}

boot() {
    systemd-nspawn -q -D "$booted" --machine="$machine" --private-network --register=no --keep-unit --boot \
        --bind=/dev/net/tun --system-call-filter=bpf --capability=CAP_NET_ADMIN,CAP_BPF,CAP_SYS_ADMIN \
        >"$root/console" 2>&1 </dev/null &
    nspawn=$!
    for _ in $(seq 300); do
        leader=$(init_of $nspawn)
        [ -z "$leader" ] || case "$(inside systemctl is-system-running 2>/dev/null)" in
        running | degraded) return 0 ;;
        esac
        kill -0 $nspawn 2>/dev/null || return 1
        sleep 0.2
    done
    return 1
}

# The process below this one that is number 1 in its own PID namespace.
init_of() {
    for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        if grep -q '^NSpid:.*[[:space:]]1$' /proc/"$child"/status 2>/dev/null; then
            echo "$child"
            return
        fi
        init_of "$child"
    done
}

inside() {
    nsenter -t "$leader" --mount --uts --ipc --net --pid --root --wd -- env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# A bridge with an address, and a host behind a port of it. Without Open vSwitch's kernel module,
# both run the userspace datapath.
configure() {
    inside sh -ec '
        ip link set lo up
        ip netns add host
        ip link add p1 type veth peer name eth0 netns host
        ip link set p1 up
        ip -n host addr add 10.0.0.2/24 dev eth0
        ip -n host link set eth0 up
        ovs-vsctl --timeout=20 add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 p1
        ovs-vsctl --timeout=20 set bridge br0 external_ids:move=yes'
}

to_oxvs_by_readme() {
    inside sh -c '
        systemctl disable --now openvswitch-switch
        cp -a /etc/openvswitch/conf.db /root/conf.db.before-oxvs
        systemctl enable --now oxvs' 2>>"$root/moves"
}

back_by_readme() {
    inside sh -c '
        systemctl disable --now oxvs
        systemctl enable --now openvswitch-switch' 2>>"$root/moves"
}

check() {
    what=$1
    wanted=$2
    problem=
    if [ "$wanted" = oxvs ]; then
        [ "$(inside systemctl is-active oxvs)" = active ] || problem="$problem; oxvs is not active"
        [ "$(inside systemctl is-active ovsdb-server)" = active ] && problem="$problem; ovsdb-server is active"
    else
        [ "$(inside systemctl is-active ovs-vswitchd)" = active ] || problem="$problem; ovs-vswitchd is not active"
        [ "$(inside systemctl is-active oxvs)" = active ] && problem="$problem; oxvs is active"
    fi
    inside test -d /run/openvswitch || problem="$problem; the run directory is gone"
    [ "$(inside ovs-vsctl --timeout=5 get bridge br0 external_ids:move 2>&1)" = yes ] || problem="$problem; no database"
    [ "$(inside ovs-vsctl --timeout=5 get interface p1 error 2>&1)" = "[]" ] || problem="$problem; p1 has an error"
    inside sh -c 'ip addr replace 10.0.0.1/24 dev br0 && ip link set br0 up && ping -q -c 1 -W 5 10.0.0.2' >/dev/null 2>&1 ||
        problem="$problem; the host is not reached"
    if [ -n "$problem" ]; then
        failed=$((failed + 1))
        echo "$what: FAILED${problem#;}"
        inside systemctl --no-pager -l status oxvs ovsdb-server ovs-vswitchd 2>&1 | tail -n 40 >>"$root/moves"
        # The next move starts with the expected switch.
        inside systemctl reset-failed 2>/dev/null
        [ "$wanted" = oxvs ] && inside systemctl restart oxvs || inside systemctl restart openvswitch-switch
    else
        echo "$what: ok"
    fi
}

finish() {
    [ -z "$leader" ] || kill -s RTMIN+4 "$leader" 2>/dev/null
    for _ in $(seq 50); do
        kill -0 "${nspawn:-0}" 2>/dev/null || break
        sleep 0.1
    done
    [ -z "$nspawn" ] || kill -9 "$nspawn" 2>/dev/null
    [ $failed -eq 0 ] || { cp "$root/moves" target/systemd/moves.log && echo "the output is in target/systemd/moves.log"; }
    umount "$booted" 2>/dev/null
    rm -rf "$root"
}

die() {
    echo "$0: $*" >&2
    failed=1
    exit 1
}

main
