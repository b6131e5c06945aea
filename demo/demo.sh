#!/bin/bash
# Shows the switch at work, in network namespaces of its own: it changes nothing of this machine's
# network and leaves nothing behind.
#
#   OXVS=path/to/oxvs   the binary (default: target/release/oxvs)
#   CLIENT=debian       configures with Debian's ovs-vsctl, ovs-appctl and ovs-ofctl
#   SWITCH=debian       shows Debian's Open vSwitch instead of oxvs
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
OXVS=$(realpath -m "${OXVS:-target/release/oxvs}")
CLIENT=${CLIENT:-oxvs}
SWITCH=${SWITCH:-oxvs}

# The switch, its ports and its routing live here; every host has a namespace too.
SW=oxvs-demo-sw
dir=$(mktemp -d /tmp/oxvs-demo-XXXXXX)
RESULTS=$PWD/target/lab-demo
export OVS_RUNDIR=$dir OVS_DBDIR=$dir OVS_LOGDIR=$dir OVS_SYSCONFDIR=$dir
failures=0
locked=

main() {
    # Removes namespaces of a killed demo, but not those of a running one.
    exec 9>/tmp/oxvs-demo.lock
    flock -n 9 || {
        echo "another demo is running" >&2
        exit 1
    }
    locked=yes
    remove_namespaces
    say "Three hosts, two VLANs, one subnet"
    start_switch
    isolation
    arp_stays_in_its_vlan
    say "Four more hosts in VLANs 10 and 20, and the switch routes between them"
    routing
    transfer
    say "A second bridge, programmed by an OpenFlow controller: a learning switch, and a service behind a virtual address"
    openflow
    if [ "$SWITCH" = oxvs ]; then
        say "A link of 100 Mbit/s full of bulk transfers, and a thin flow beside them: first in, first out, or FQ-CoDel"
        schedulers
    fi
    say "The switch's own view"
    run vsctl show
    run appctl fdb/show br0
    if [ "$SWITCH" = oxvs ]; then
        say "The laboratory: three short experiments of the studies, on this switch and the kernel's bridge"
        laboratory
    fi
    if [ $failures -gt 0 ]; then
        say "$failures expectations failed; the switch's log ends with"
        tail -n 20 "$dir"/*.log
        return 1
    fi
    say "All as expected"
}

start_switch() {
    ip netns add $SW
    ip -n $SW link set lo up
    if [ "$SWITCH" = oxvs ]; then
        in_ns $SW "$OXVS" run --log-file="$dir/oxvs.log" --unixctl="$dir/switch.ctl" >"$dir/out" 2>&1 &
        wait_for "$dir/db.sock" $!
    else
        ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
        in_ns $SW ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --unixctl="$dir/db.ctl" -vconsole:off &
        wait_for "$dir/db.sock" $!
        ovs-vsctl --no-wait init -- set open_vswitch . other_config:userspace-tso-enable=true
        in_ns $SW ovs-vswitchd --unixctl="$dir/switch.ctl" --log-file="$dir/vswitchd.log" -vconsole:off &
    fi
    wait_for "$dir/switch.ctl" $!
    note "the switch runs as process $!, its files in $dir"
    run vsctl add-br br0 -- set bridge br0 datapath_type=netdev
}

# Study S2: reachability.
isolation() {
    host vm1 192.168.0.150/24
    host vm2 192.168.0.151/24
    host vm3 192.168.0.152/24
    run vsctl add-port br0 vm1 tag=1 -- add-port br0 vm2 tag=1 -- add-port br0 vm3 tag=2
    reachability "vm1=192.168.0.150 vm2=192.168.0.151 vm3=192.168.0.152" \
        "yes yes - yes yes - - - yes"
}

# VM1 sends an ARP request for VM3: a broadcast that must reach VM2 and never VM3.
arp_stays_in_its_vlan() {
    echo
    note "VM1 pings VM3's address; captures at VM2 and VM3 show where its ARP requests go"
    local vm1_mac
    vm1_mac=$(in_ns oxvs-demo-vm1 cat /sys/class/net/eth0/address)
    for vm in vm2 vm3; do
        in_ns oxvs-demo-$vm tcpdump -lne --immediate-mode -i eth0 "arp[6:2] = 1 and ether src $vm1_mac" \
            >"$dir/$vm.capture" 2>"$dir/$vm.tcpdump" &
        until grep -q listening "$dir/$vm.tcpdump"; do sleep 0.05; done
    done
    ip -n oxvs-demo-vm1 neigh flush all
    in_ns oxvs-demo-vm1 ping -n -q -c 3 -i 0.3 -W 1 192.168.0.152 >/dev/null 2>&1 || true
    sleep 0.3
    for vm in vm2 vm3; do
        local seen
        seen=$(grep -c 'who-has 192.168.0.152' "$dir/$vm.capture" || true)
        note "$vm saw $seen of VM1's ARP requests"
        head -n 3 "$dir/$vm.capture" | sed 's/^/    /'
        if [ $vm = vm2 ]; then
            expect "VM1's ARP requests reach VM2" [ "$seen" -ge 1 ]
        else
            expect "VM1's ARP requests never reach VM3" [ "$seen" -eq 0 ]
        fi
    done
}

# Study S0: one interface of the switch itself per VLAN, between which its host routes.
routing() {
    run vsctl add-port br0 vlan10 tag=10 -- set interface vlan10 type=internal \
        -- add-port br0 vlan20 tag=20 -- set interface vlan20 type=internal
    ip -n $SW addr add 10.0.0.254/24 dev vlan10
    ip -n $SW addr add 20.0.0.254/24 dev vlan20
    ip -n $SW link set vlan10 up
    ip -n $SW link set vlan20 up
    in_ns $SW sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    host pc1 10.0.0.1/24 10.0.0.254
    host pc2 10.0.0.2/24 10.0.0.254
    host pc3 20.0.0.1/24 20.0.0.254
    host pc4 20.0.0.2/24 20.0.0.254
    run vsctl add-port br0 pc1 tag=10 -- add-port br0 pc2 tag=10 \
        -- add-port br0 pc3 tag=20 -- add-port br0 pc4 tag=20
    reachability "pc1=10.0.0.1 pc2=10.0.0.2 pc3=20.0.0.1 pc4=20.0.0.2" \
        "yes yes yes yes yes yes yes yes yes yes yes yes yes yes yes yes"
    local switched routed
    switched=$(ttl 10.0.0.2)
    routed=$(ttl 20.0.0.1)
    note "replies to PC1: TTL $switched from PC2 (switched), $routed from PC3 (routed once)"
    expect "between VLANs the switch's host routes" [ "$switched $routed" = "64 63" ]
}

ttl() {
    in_ns oxvs-demo-pc1 ping -n -c 1 -W 2 "$1" 2>/dev/null | sed -n 's/.*ttl=\([0-9]*\).*/\1/p' || true
}

transfer() {
    echo
    for path in "pc2 10.0.0.2 switched" "pc3 20.0.0.1 routed"; do
        # shellcheck disable=SC2086
        set -- $path
        in_ns oxvs-demo-"$1" iperf3 -s -1 --forceflush >"$dir/iperf3-$1" 2>&1 &
        for _ in $(seq 100); do
            ! grep -q listening "$dir/iperf3-$1" || break
            sleep 0.05
        done
        local rate
        rate=$(in_ns oxvs-demo-pc1 timeout 20 iperf3 -c "$2" -t 3 -f g --connect-timeout 3000 2>&1 |
            sed -n 's/.* \([0-9.]* Gbits\/sec\).*receiver.*/\1/p') || true
        note "TCP from PC1 to ${1^^}, $3, with the interfaces' default offloads: ${rate:-nothing came through}"
        expect "TCP passes from PC1 to ${1^^}" [ -n "$rate" ]
    done
}

# A controller (ovs-testcontroller, Debian's) installs rules that rewrite addresses, and learns the
# other addresses.
openflow() {
    host client 10.9.0.1/24
    host server 10.9.0.2/24
    local server_mac controller
    server_mac=$(in_ns oxvs-demo-server cat /sys/class/net/eth0/address)
    ip -n oxvs-demo-client neigh replace 10.9.0.100 lladdr 02:00:00:00:00:64 dev eth0
    cat >"$dir/service.flows" <<-END
	priority=100,in_port=1,ip,nw_dst=10.9.0.100,actions=mod_dl_dst:$server_mac,mod_nw_dst:10.9.0.2,dec_ttl,output:2
	priority=100,in_port=2,ip,nw_src=10.9.0.2,nw_dst=10.9.0.1,actions=mod_nw_src:10.9.0.100,output:1
	END
    note "the controller's rules for the service 10.9.0.100:"
    sed 's/^/    /' "$dir/service.flows"
    in_ns $SW ovs-testcontroller --with-flows="$dir/service.flows" --unixctl="$dir/controller.ctl" -vconsole:off \
        "punix:$dir/controller.sock" >"$dir/controller.out" 2>&1 &
    controller=$!
    wait_for "$dir/controller.sock" $controller
    run vsctl add-br br1 -- set bridge br1 datapath_type=netdev fail_mode=secure \
        -- add-port br1 client -- set interface client ofport_request=1 \
        -- add-port br1 server -- set interface server ofport_request=2
    expect "a bridge in secure mode without its controller passes nothing" not_answers 10.9.0.2
    run vsctl set-controller br1 "unix:$dir/controller.sock"
    for _ in $(seq 100); do
        [ "$(ofctl dump-flows br1 2>/dev/null | grep -c priority=100)" -lt 2 ] || break
        sleep 0.05
    done
    expect "the controller has installed its rules" [ "$(ofctl dump-flows br1 | grep -c priority=100)" -eq 2 ]
    # More than the first packet: the ping from before the controller may still wait for ARP and
    # arrive now.
    in_ns oxvs-demo-server tcpdump -lnv --immediate-mode -i eth0 'icmp[0] = 8' >"$dir/server.capture" 2>"$dir/server.tcpdump" &
    local capture=$!
    until grep -q listening "$dir/server.tcpdump"; do sleep 0.05; done
    expect "the service answers at its virtual address" answers 10.9.0.100
    sleep 0.3
    kill $capture
    wait $capture 2>/dev/null || true
    sed 's/^/    /' "$dir/server.capture"
    expect "the server sees its own address and one hop less" grep -q 'ttl 63' "$dir/server.capture"
    note "the switch explains what it does to such a packet:"
    run appctl ofproto/trace br1 in_port=1,icmp,nw_src=10.9.0.1,nw_dst=10.9.0.100,nw_ttl=64
    run ofctl dump-flows br1
    expect "the rules have counted the packets" grep -q 'n_packets=[1-9].*priority=100' <(ofctl dump-flows br1)
    kill $controller
}

# Eight TCP connections fill the way to the server; pings of another host share it.
schedulers() {
    host thin 10.8.0.1/24
    host bulk 10.8.0.2/24
    host archive 10.8.0.3/24
    run vsctl add-br br2 -- set bridge br2 datapath_type=netdev -- add-port br2 thin -- add-port br2 bulk \
        -- add-port br2 archive -- set interface archive other_config:port-speed=100000000
    in_ns oxvs-demo-thin ping -n -q -c 2 -i 0.2 -W 1 10.8.0.3 >/dev/null 2>&1 || true
    note "pings while the port has no QoS, which is FIFO; the transfers (Reno, which fills a queue soon) begin after a second"
    thin_flow fifo
    run vsctl set port archive qos=@q -- --id=@q create qos type=linux-fq_codel
    thin_flow fq_codel
    plot
    run appctl qos/show archive
    note "pings under load with FIFO: $(quantile fifo 0.5) ms in the middle, 99 % within $(quantile fifo 0.99) ms"
    note "with FQ-CoDel: $(quantile fq_codel 0.5) ms in the middle, 99 % within $(quantile fq_codel 0.99) ms"
    expect "FQ-CoDel spares the thin flow the queue" \
        awk "BEGIN { exit !($(quantile fq_codel 0.5) > 0 && $(quantile fq_codel 0.5) * 3 < $(quantile fifo 0.5)) }"
}

# Runs experiments in namespaces of their own, with switches of their own.
laboratory() {
    local lab=(env -u OVS_RUNDIR -u OVS_DBDIR -u OVS_LOGDIR -u OVS_SYSCONFDIR "$OXVS" lab)
    rm -rf "$RESULTS"
    run "${lab[@]}" run S0.rtt.l3 S0.fair.2 S2.isolation --quick --switch oxvs --switch bridge --out "$RESULTS"
    run "${lab[@]}" report "$RESULTS"
    expect "the report is written: $RESULTS/report/index.html" test -s "$RESULTS/report/index.html"
}

# thin_flow NAME: pings every 20 ms for five seconds, the last four of them beside the bulk; keeps
# "TIME MS" of each.
thin_flow() {
    local thin
    in_ns oxvs-demo-archive iperf3 -s -1 --forceflush >"$dir/iperf3-$1" 2>&1 &
    for _ in $(seq 100); do
        ! grep -q listening "$dir/iperf3-$1" || break
        sleep 0.05
    done
    in_ns oxvs-demo-thin ping -n -i 0.02 -c 250 -W 2 10.8.0.3 >"$dir/pings-$1" 2>/dev/null &
    thin=$!
    sleep 1
    note "bulk beside the thin flow, $1: $(in_ns oxvs-demo-bulk timeout 20 iperf3 -c 10.8.0.3 -P 8 -t 4 -C reno -f m --connect-timeout 3000 2>&1 |
        sed -n 's/^\[SUM\].* \([0-9.]* Mbits\/sec\).*receiver.*/\1/p')"
    wait $thin || true
    sed -n 's/.*icmp_seq=\([0-9]*\) .*time=\([0-9.]*\) ms.*/\1 \2/p' "$dir/pings-$1" | awk '{ print $1 * 0.02, $2 }' >"$dir/times-$1"
}

# The longest ping of each twelfth of a second, on a logarithmic scale.
plot() {
    echo
    awk -v columns=60 -v seconds=5 '
        function row(ms,    r) { r = int(2 * log(ms * 10) / log(10) + 0.5); return r < 0 ? 0 : r > 8 ? 8 : r }
        FNR == 1 { series++ }
        { c = int($1 * columns / seconds); if ($2 > worst[series, c]) worst[series, c] = $2 }
        END {
            for (r = 8; r >= 0; r--) {
                label = sprintf("%g ms", r % 2 ? 3 * 10 ^ ((r - 3) / 2) : 10 ^ ((r - 2) / 2))
                line = ""
                for (c = 0; c < columns; c++) {
                    fifo = (1, c) in worst && row(worst[1, c]) == r
                    fair = (2, c) in worst && row(worst[2, c]) == r
                    line = line (fifo && fair ? "#" : fifo ? "x" : fair ? "o" : " ")
                }
                printf "    %7s |%s\n", label, line
            }
            printf "    %7s +", ""
            for (c = 0; c < columns; c++) printf c % 12 ? "-" : "+"
            printf "\n    %7s  0 s         1 s         2 s         3 s         4 s\n", ""
            print "             round trip of a thin flow: x FIFO, o FQ-CoDel, # both; bulk from the first second on"
        }' "$dir/times-fifo" "$dir/times-fq_codel"
    echo
}

# quantile NAME PART: of the pings' times while the bulk fills the link.
quantile() {
    awk '$1 > 1.5 && $1 < 4.8 { print $2 }' "$dir/times-$1" | sort -n | awk -v part="$2" '{ t[NR] = $1 } END { print NR ? t[int(NR * part + 0.5)] : 0 }'
}

answers() { in_ns oxvs-demo-client ping -n -q -c 3 -i 0.2 -W 1 "$1" >/dev/null 2>&1; }
not_answers() { ! in_ns oxvs-demo-client ping -n -q -c 1 -W 1 "$1" >/dev/null 2>&1; }

# host NAME ADDRESS [GATEWAY]: a namespace with eth0, whose other end is the device NAME beside the
# switch.
host() {
    local ns=oxvs-demo-$1
    ip netns add "$ns"
    ip -n "$ns" link set lo up
    ip -n "$ns" link add eth0 type veth peer name "$1" netns $SW
    ip -n "$ns" addr add "$2" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n $SW link set "$1" up
    [ -z "${3:-}" ] || ip -n "$ns" route add default via "$3"
}

# reachability "NAME=ADDRESS ..." "EXPECTED ...": pings each from each, prints the table, and
# compares it.
reachability() {
    local from to found='' ok
    echo
    printf '    %-12s' 'from \ to'
    for to in $1; do printf '%-6s' "${to%%=*}"; done
    echo
    for from in $1; do
        printf '    %-12s' "${from%%=*}"
        for to in $1; do
            if in_ns oxvs-demo-"${from%%=*}" ping -n -q -c 1 -W 1 "${to#*=}" >/dev/null 2>&1; then
                ok=yes
            else
                ok=-
            fi
            found="$found $ok"
            printf '%-6s' $ok
        done
        echo
    done
    expect "this is who is to reach whom" [ "$found" = " $2" ]
}

vsctl() {
    if [ "$CLIENT" = oxvs ] && [ "$SWITCH" = oxvs ]; then
        "$OXVS" vsctl --timeout=10 "$@"
    else
        ovs-vsctl --timeout=10 "$@"
    fi
}

ofctl() {
    if [ "$CLIENT" = oxvs ] && [ "$SWITCH" = oxvs ]; then
        "$OXVS" ofctl --timeout=10 "$@"
    else
        ovs-ofctl --timeout=10 "$@"
    fi
}

appctl() {
    if [ "$CLIENT" = oxvs ] && [ "$SWITCH" = oxvs ]; then
        "$OXVS" appctl --target="$dir/switch.ctl" "$@"
    else
        ovs-appctl --target="$dir/switch.ctl" "$@"
    fi
}

in_ns() {
    local ns=$1
    shift
    ip netns exec "$ns" "$@"
}

say() { printf '\n== %s\n' "$*"; }
note() { printf '  %s\n' "$*"; }

# Shows a command, then runs it.
run() {
    printf '  $ %s\n' "$*"
    "$@" | sed 's/^/    /'
}

# expect WHAT CONDITION...
expect() {
    local what=$1
    shift
    if "$@"; then
        note "as expected: $what"
    else
        note "FAILED: $what"
        failures=$((failures + 1))
    fi
}

# wait_for FILE PID: until the process has made the file.
wait_for() {
    for _ in $(seq 200); do
        [ ! -e "$1" ] || return 0
        kill -0 "$2" 2>/dev/null || break
        sleep 0.05
    done
    echo "the switch did not start:" >&2
    cat "$dir"/out "$dir"/*.log >&2 2>/dev/null || true
    exit 1
}

remove_namespaces() {
    local ns pid
    for ns in $(ip netns list 2>/dev/null | sed -n 's/^\(oxvs-demo-[^ ]*\).*/\1/p'); do
        for pid in $(ip netns pids "$ns"); do kill "$pid" 2>/dev/null || true; done
        for _ in $(seq 40); do
            [ -n "$(ip netns pids "$ns")" ] || break
            sleep 0.05
        done
        for pid in $(ip netns pids "$ns"); do kill -KILL "$pid" 2>/dev/null || true; done
        ip netns del "$ns"
    done
}

cleanup() {
    status=$?
    trap '' INT TERM HUP
    # Otherwise the shell reports every process that it ends here.
    exec 2>/dev/null
    [ -z "$locked" ] || remove_namespaces
    wait || true
    rm -rf "$dir"
    exit $status
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

main
