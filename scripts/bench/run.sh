#!/bin/bash
# Measures two veth hosts across each switch, in interleaved rounds of one run: absolute figures drift on shared machines, so what counts is
# the median of the ratios of each round.
#
#   ROUNDS=5 SECONDS_TCP=3 PINGS=200 OXVS=path/to/oxvs SYSTEMS="oxvs spin ovs afxdp bridge" IDLE=10 CC=cubic scripts/bench/run.sh
#
# CC is the hosts' congestion control. It decides more about TCP here than any switch does, so it is named with each figure; cubic is what
# Linux comes with.
#
# Systems: oxvs; spin (oxvs with worker-spin=20000, as a user asks for who wants what afxdp's thread does); ovs (Debian's userspace datapath with userspace-tso-enable); afxdp (its AF_XDP ports, hosts' offloads off as they need);
# bridge (the kernel's). Raw figures go to OUT (default: a file in the temporary directory, named at the end).
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
OXVS=$(realpath -m "${OXVS:-target/release/oxvs}")
ROUNDS=${ROUNDS:-5} SECONDS_TCP=${SECONDS_TCP:-3} PINGS=${PINGS:-200} IDLE=${IDLE:-10}
SYSTEMS=${SYSTEMS:-oxvs spin ovs afxdp bridge}
CC=${CC:-cubic}
OUT=${OUT:-$(mktemp /tmp/oxvs-bench-XXXXXX.csv)}
SW=oxvs-bench-sw A=oxvs-bench-a B=oxvs-bench-b
dir= locked=

main() {
    # Two measurements at once would measure each other, and take away each other's namespaces.
    exec 9>/tmp/oxvs-bench.lock
    flock -n 9 || {
        echo "waiting for another measurement to end" >&2
        flock 9
    }
    locked=yes
    echo "round,system,tcp_gbit,ping_avg_ms,ping_p99_ms,idle_cpu_percent,rss_mb" >"$OUT"
    local round system
    for round in $(seq "$ROUNDS"); do
        for system in $SYSTEMS; do
            remove
            if setup "$system"; then
                measure "$round" "$system"
            else
                echo "$system: cannot run here" >&2
                tail -n 3 "$dir"/*.log >&2 2>/dev/null || true
            fi
        done
    done
    remove
    summary
}

setup() {
    dir=$(mktemp -d /tmp/oxvs-bench-run-XXXXXX)
    export OVS_RUNDIR=$dir OVS_DBDIR=$dir OVS_LOGDIR=$dir OVS_SYSCONFDIR=$dir
    local ns n=0 options=
    pid=
    for ns in $SW $A $B; do
        ip netns add $ns
        ip -n $ns link set lo up
    done
    for ns in $A $B; do
        n=$((n + 1))
        ip -n $ns link add eth0 type veth peer name p$n netns $SW
        ip -n $ns addr add 10.2.0.$n/24 dev eth0
        ip -n $ns link set eth0 up
        ip -n $SW link set p$n up
    done
    case $1 in
    bridge)
        ip -n $SW link add br0 type bridge
        ip -n $SW link set p1 master br0
        ip -n $SW link set p2 master br0
        ip -n $SW link set br0 up
        ;;
    oxvs | spin)
        [ "$1" = oxvs ] || options="-- set open_vswitch . other_config:worker-spin=20000"
        ip netns exec $SW "$OXVS" run --log-file="$dir/oxvs.log" --unixctl="$dir/ctl" >"$dir/out.log" 2>&1 &
        pid=$!
        appears "$dir/db.sock" && appears "$dir/ctl" || return 1
        # shellcheck disable=SC2086 # a list of words
        "$OXVS" vsctl --timeout=10 add-br br0 -- set bridge br0 datapath_type=netdev \
            -- add-port br0 p1 -- add-port br0 p2 $options || return 1
        ;;
    ovs | afxdp)
        ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
        ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --unixctl="$dir/db.ctl" -vconsole:off >"$dir/db.log" 2>&1 &
        appears "$dir/db.sock" || return 1
        ovs-vsctl --no-wait init
        if [ "$1" = ovs ]; then
            ovs-vsctl --no-wait set open_vswitch . other_config:userspace-tso-enable=true
        else
            options="-- set interface p1 type=afxdp -- set interface p2 type=afxdp"
            ip netns exec $A ethtool -K eth0 tx off >/dev/null
            ip netns exec $B ethtool -K eth0 tx off >/dev/null
        fi
        ip netns exec $SW ovs-vswitchd --unixctl="$dir/ctl" --log-file="$dir/ovs.log" -vconsole:off >"$dir/out.log" 2>&1 &
        pid=$!
        appears "$dir/ctl" || return 1
        # shellcheck disable=SC2086
        ovs-vsctl --timeout=10 add-br br0 -- set bridge br0 datapath_type=netdev \
            -- add-port br0 p1 -- add-port br0 p2 $options || return 1
        ;;
    esac
    ip netns exec $A ping -q -c 3 -i 0.2 -W 1 10.2.0.2 >/dev/null 2>&1 || ip netns exec $A ping -q -c 3 -W 1 10.2.0.2 >/dev/null
}

measure() {
    local tcp times idle= rss=
    if [ "$1" = 1 ] && [ -n "$pid" ] && [ "$IDLE" -gt 0 ]; then
        idle=$(idle_cpu)
        rss=$(awk '/^VmRSS/{printf "%.1f", $2 / 1024}' "/proc/$pid/status")
    fi
    times=$(ip netns exec $A ping -c "$PINGS" -i 0.01 -W 1 10.2.0.2 | sed -n 's/.*time=\([0-9.]*\).*/\1/p' | sort -n |
        awk '{t[NR]=$1; s+=$1} END{if (NR) printf "%.3f,%.3f", s/NR, t[int(NR*0.99+0.5)]; else printf ","}')
    ip netns exec $B iperf3 -s -1 --forceflush >"$dir/iperf3" 2>&1 &
    for _ in $(seq 100); do
        ! grep -q listening "$dir/iperf3" || break
        sleep 0.05
    done
    tcp=$(ip netns exec $A timeout $((SECONDS_TCP + 10)) iperf3 -c 10.2.0.2 -t "$SECONDS_TCP" -C "$CC" -f m --connect-timeout 3000 2>/dev/null |
        awk '/receiver/{for (i = 1; i <= NF; i++) if ($i == "Mbits/sec") printf "%.2f", $(i-1) / 1000}') || true
    echo "$1,$2,$tcp,$times,$idle,$rss" | tee -a "$OUT"
}

# Percent of one CPU that the switch takes while nothing is sent.
idle_cpu() {
    sleep 2
    local before after
    before=$(awk '{print $14 + $15}' "/proc/$pid/stat")
    sleep "$IDLE"
    after=$(awk '{print $14 + $15}' "/proc/$pid/stat")
    awk -v t=$((after - before)) -v hz="$(getconf CLK_TCK)" -v s="$IDLE" 'BEGIN{printf "%.2f", 100 * t / hz / s}'
}

# Medians, and the medians of the per-round ratios of oxvs to each other system.
summary() {
    echo
    awk -F, '
        function median(list, n,    i, j, x, v) {
            split(list, v, " ")
            for (i = 2; i <= n; i++) { x = v[i] + 0; for (j = i - 1; j > 0 && v[j] + 0 > x; j--) v[j+1] = v[j]; v[j+1] = x }
            return n ? (n % 2 ? v[(n+1)/2] : (v[n/2] + v[n/2+1]) / 2) : ""
        }
        NR > 1 {
            systems[$2]
            for (c = 3; c <= 7; c++) if ($c != "") { all[$2,c] = all[$2,c] " " $c; n[$2,c]++; at[$1,$2,c] = $c; rounds[$1] }
        }
        END {
            printf "%-8s %10s %10s %10s %10s %8s\n", "median", "TCP Gbit/s", "ping ms", "p99 ms", "idle CPU %", "RSS MB"
            for (s in systems) {
                printf "%-8s", s
                for (c = 3; c <= 7; c++) printf " %10s", median(all[s,c], n[s,c])
                print ""
            }
            for (o in systems) if (o == "oxvs" || o == "spin") for (s in systems) if (s != "oxvs" && s != "spin") {
                for (c = 3; c <= 4; c++) {
                    list = ""; k = 0
                    for (r in rounds) if (at[r,o,c] != "" && at[r,s,c] + 0 > 0) { list = list " " at[r,o,c] / at[r,s,c]; k++ }
                    m[c] = median(list, k)
                }
                printf "%s over %s: TCP %.2f, ping %.2f (median of the ratios of each round)\n", o, s, m[3], m[4]
            }
        }' "$OUT"
    echo "TCP with $CC; raw figures: $OUT"
}

appears() {
    for _ in $(seq 200); do
        [ ! -e "$1" ] || return 0
        sleep 0.05
    done
    return 1
}

remove() {
    [ -n "$locked" ] || return 0
    local ns p
    for ns in $A $B $SW; do
        [ -e /run/netns/$ns ] || continue
        for p in $(ip netns pids $ns); do kill "$p" 2>/dev/null || true; done
    done
    for p in $(jobs -p); do kill "$p" 2>/dev/null || true; done
    wait 2>/dev/null || true
    for ns in $A $B $SW; do ip netns del $ns 2>/dev/null || true; done
    [ -z "$dir" ] || rm -rf "$dir"
    dir=
}

trap 'exec 2>/dev/null; remove' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
main
