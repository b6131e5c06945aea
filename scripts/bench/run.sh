#!/bin/bash
# Measures two veth hosts across each switch, in interleaved rounds of one run: absolute figures
# drift on shared machines, so the result is the median of the rounds' ratios.
#
#   ROUNDS=5 SECONDS_TCP=3 SECONDS_UDP=2 PINGS=200 OXVS=path/to/oxvs SYSTEMS="oxvs spin worker ovs
#   afxdp bridge" IDLE=10 CC=cubic scripts/bench/run.sh
#
# CC is the hosts' congestion control. It decides more about TCP here than any switch does, so it is
# named with each figure; cubic is what Linux comes with.
#
# Systems: oxvs; spin (oxvs with worker-spin=20000 and cpu-dma-latency-hold=20000: neither workers
# nor processors sleep while packets come, as with afxdp's thread); worker (oxvs with
# kernel-offload=false: all packets go through its process); ovs (Debian's userspace datapath with
# userspace-tso-enable); afxdp (its AF_XDP ports, hosts' offloads off as they need); bridge (the
# kernel's); and on request, peer (oxvs with kernel-offload=peer), worker-spin (worker with
# worker-spin=20000), oxvs-afxdp (oxvs's AF_XDP ports, offloads off as above) and ovs-plain (without
# TSO, so without TCP).
#
# Each figure comes with the processor time of the switch's process (including the kernel's work in
# its threads, down to the receiving host's socket) and of the whole machine with the hosts: seconds
# for a gigabyte of TCP, nanoseconds for a delivered short packet. Round trips under load are
# measured beside short packets at nine tenths of the rate that the same switch has just delivered.
# Raw figures go to OUT (default: a file in the temporary directory, named at the end).
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
OXVS=$(realpath -m "${OXVS:-target/release/oxvs}")
ROUNDS=${ROUNDS:-5} SECONDS_TCP=${SECONDS_TCP:-3} SECONDS_UDP=${SECONDS_UDP:-2} PINGS=${PINGS:-200} IDLE=${IDLE:-10}
SYSTEMS=${SYSTEMS:-oxvs spin worker ovs afxdp bridge}
CC=${CC:-cubic}
OUT=${OUT:-$(mktemp /tmp/oxvs-bench-XXXXXX.csv)}
SW=oxvs-bench-sw A=oxvs-bench-a B=oxvs-bench-b
dir= locked=

main() {
    # Two measurements at once would disturb each other and remove each other's namespaces.
    exec 9>/tmp/oxvs-bench.lock
    flock -n 9 || {
        echo "waiting for another measurement to end" >&2
        flock 9
    }
    locked=yes
    echo "round,system,tcp_gbit,ping_avg_ms,ping_p99_ms,idle_cpu_percent,rss_mb,tcp_cpu_s_per_gb,udp_kpps,udp_cpu_ns,ping_p50_ms,ping_p999_ms,loaded_p50_ms,loaded_p999_ms,tcp_all_s_per_gb,udp_all_ns" >"$OUT"
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
    oxvs | worker | spin | worker-spin | peer | oxvs-afxdp)
        case $1 in
        worker) options="-- set open_vswitch . other_config:kernel-offload=false" ;;
        spin) options="-- set open_vswitch . other_config:worker-spin=20000 other_config:cpu-dma-latency-hold=20000" ;;
        worker-spin) options="-- set open_vswitch . other_config:kernel-offload=false other_config:worker-spin=20000" ;;
        peer) options="-- set open_vswitch . other_config:kernel-offload=peer" ;;
        esac
        [ "$1" != oxvs-afxdp ] || afxdp
        ip netns exec $SW "$OXVS" run --log-file="$dir/oxvs.log" --unixctl="$dir/ctl" >"$dir/out.log" 2>&1 &
        pid=$!
        appears "$dir/db.sock" && appears "$dir/ctl" || return 1
        # shellcheck disable=SC2086 # a list of words
        "$OXVS" vsctl --timeout=10 add-br br0 -- set bridge br0 datapath_type=netdev \
            -- add-port br0 p1 -- add-port br0 p2 $options || return 1
        ;;
    ovs | ovs-plain | afxdp)
        ovsdb-tool create "$dir/conf.db" /usr/share/openvswitch/vswitch.ovsschema
        ovsdb-server "$dir/conf.db" --remote="punix:$dir/db.sock" --unixctl="$dir/db.ctl" -vconsole:off >"$dir/db.log" 2>&1 &
        appears "$dir/db.sock" || return 1
        ovs-vsctl --no-wait init
        if [ "$1" = ovs ]; then
            ovs-vsctl --no-wait set open_vswitch . other_config:userspace-tso-enable=true
        elif [ "$1" = afxdp ]; then
            afxdp
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

# Makes AF_XDP ports, and switches off the hosts' offloads that these cannot carry.
afxdp() {
    options="-- set interface p1 type=afxdp -- set interface p2 type=afxdp"
    ip netns exec $A ethtool -K eth0 tx off >/dev/null
    ip netns exec $B ethtool -K eth0 tx off >/dev/null
}

measure() {
    local tcp= bytes before all times loaded=, idle= rss= per_gb= all_per_gb= kpps= per_packet= all_per_packet=
    if [ "$1" = 1 ] && [ -n "$pid" ] && [ "$IDLE" -gt 0 ]; then
        idle=$(idle_cpu)
        rss=$(awk '/^VmRSS/{printf "%.1f", $2 / 1024}' "/proc/$pid/status")
    fi
    times=$(round_trips)
    ip netns exec $B timeout $((SECONDS_TCP + 12)) iperf3 -s -1 --forceflush >"$dir/iperf3" 2>&1 &
    for _ in $(seq 100); do
        ! grep -q listening "$dir/iperf3" || break
        sleep 0.05
    done
    before=$(cpu_ns) all=$(machine_ns)
    ip netns exec $A timeout $((SECONDS_TCP + 10)) iperf3 -c 10.2.0.2 -t "$SECONDS_TCP" -C "$CC" -J --connect-timeout 3000 >"$dir/tcp.json" 2>/dev/null || true
    bytes=$(json "$dir/tcp.json" bytes)
    if [ "${bytes:-0}" -gt 0 ]; then
        tcp=$(json "$dir/tcp.json" bits_per_second | awk '{printf "%.2f", $1 / 1e9}')
        per_gb=$(awk -v ns=$(($(cpu_ns) - before)) -v bytes="$bytes" 'BEGIN{printf "%.3f", ns / bytes}')
        all_per_gb=$(awk -v ns=$(($(machine_ns) - all)) -v bytes="$bytes" 'BEGIN{printf "%.3f", ns / bytes}')
    fi
    if [ "$SECONDS_UDP" -gt 0 ]; then
        small
    fi
    echo "$1,$2,$tcp,$(cut -d, -f1-2 <<<"$times"),$idle,$rss,$per_gb,$kpps,$per_packet,$(cut -d, -f3-4 <<<"$times"),$loaded,$all_per_gb,$all_per_packet" | tee -a "$OUT"
}

# Short packets at the maximum rate, and round trips beside nine tenths of it.
small() {
    local before all received packets
    # The host segments them, so that each crosses the switch alone.
    ip netns exec $A ethtool -K eth0 tx-udp-segmentation off >/dev/null 2>&1 || true
    ip netns exec $B timeout $((SECONDS_UDP + PINGS / 100 + 20)) python3 scripts/bench/udp.py sink $((SECONDS_UDP + PINGS / 100 + 15)) &
    sleep 0.3
    received=$(arrived) before=$(cpu_ns) all=$(machine_ns)
    ip netns exec $A python3 scripts/bench/udp.py flood 10.2.0.2 0 "$SECONDS_UDP" >/dev/null
    packets=$(($(arrived) - received))
    [ "$packets" -gt 0 ] || return 0
    kpps=$((packets / SECONDS_UDP / 1000)) per_packet=$((($(cpu_ns) - before) / packets))
    all_per_packet=$((($(machine_ns) - all) / packets))
    ip netns exec $A timeout $((PINGS / 100 + 10)) python3 scripts/bench/udp.py flood 10.2.0.2 $((kpps * 900)) $((PINGS / 100 + 2)) >/dev/null &
    sleep 0.5
    loaded=$(round_trips | cut -d, -f3-4)
}

# Average, 99th percentile, median and 99.9th of round trips, 10 ms apart, in ms.
round_trips() {
    ip netns exec $A ping -c "$PINGS" -i 0.01 -W 1 10.2.0.2 | sed -n 's/.*time=\([0-9.]*\).*/\1/p' | sort -n | awk '
        function at(share,    n) { n = int(NR * share + 0.999999); return t[n < 1 ? 1 : n] }
        { t[NR] = $1; s += $1 }
        END { if (NR) printf "%.3f,%.3f,%.3f,%.3f", s / NR, at(0.99), at(0.5), at(0.999); else printf ",,," }'
}

# A number in the receiver's report of a TCP test.
json() {
    python3 -c 'import json, sys; print(int(json.load(open(sys.argv[1]))["end"]["sum_received"][sys.argv[2]]))' "$1" "$2" 2>/dev/null || true
}

# Packets that the receiving host has received.
arrived() {
    ip netns exec $B cat /sys/class/net/eth0/statistics/rx_packets
}

# Processor time of the switch's process, in ns.
cpu_ns() {
    [ -n "$pid" ] || { echo 0; return; }
    awk -v hz="$(getconf CLK_TCK)" '{printf "%.0f", ($14 + $15) * 1e9 / hz}' "/proc/$pid/stat"
}

# Time that all processors were not idle, in ns.
machine_ns() {
    awk -v hz="$(getconf CLK_TCK)" '/^cpu /{printf "%.0f", ($2 + $3 + $4 + $7 + $8) * 1e9 / hz}' /proc/stat
}

# The idle switch's processor time, in percent of one processor.
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
        function two(x) { return x == "" ? "-" : sprintf("%.2f", x) }
        NR > 1 {
            systems[$2]
            for (c = 3; c <= 16; c++) if ($c != "") { all[$2,c] = all[$2,c] " " $c; n[$2,c]++; at[$1,$2,c] = $c; rounds[$1] }
        }
        END {
            printf "%-10s", "median"
            n_names = split("TCP Gbit/s,ping ms,p99 ms,idle CPU %,RSS MB,TCP s/GB,UDP kpps,ns/packet,p50 ms,p99.9 ms,loaded p50,loaded p99.9,all s/GB,all ns/pkt", names, ",")
            for (c = 1; c <= n_names; c++) printf " %12s", names[c]
            print ""
            for (s in systems) {
                printf "%-10s", s
                for (c = 3; c <= 16; c++) printf " %12s", median(all[s,c], n[s,c])
                print ""
            }
            for (o in systems) if (o ~ /^(oxvs|worker|spin|peer)/) for (s in systems) if (s !~ /^(oxvs|worker|spin|peer)/) {
                for (c = 3; c <= 10; c++) {
                    list = ""; k = 0
                    for (r in rounds) if (at[r,o,c] != "" && at[r,s,c] + 0 > 0) { list = list " " at[r,o,c] / at[r,s,c]; k++ }
                    m[c] = median(list, k)
                }
                printf "%s over %s: TCP %s, ping %s, CPU for TCP %s, short packets %s, CPU for each %s (median of the ratios of each round)\n", o, s, two(m[3]), two(m[4]), two(m[8]), two(m[9]), two(m[10])
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
