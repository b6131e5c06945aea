#!/bin/bash
# Measures how long a worker leaves its packets alone while the switch is busy otherwise: 1000 ports
# come or go in one transaction, a million rules are loaded and deleted, 8192 offloaded flows close.
#
#   RULES=1000000 PORTS=1000 FLOWS=8192 FIFO=1 OXVS=path/to/oxvs
#   PHASES="idle internal veth plain bundle offloaded port" scripts/bench/gaps.sh
#
# Beside it a host sends a packet of a known flow every 200 us, which workers forward and the kernel
# does not (its rule changes the packet in a way that is not offloaded), and 200 packets a second of
# new flows. Of each phase it prints
#   delays   of those packets, from the sender's to the receiver's kernel: what users see
#   worker   from `pmd-perf-show`: the longest time between two turns of a worker, without its sleep
#   drops    drop counters that have grown
#   threads  the time that workers ran and the time that they waited for a processor (schedstat)
# FIFO=1 lets workers, the sender and the kernel's softirq threads run before all others
# (SCHED_FIFO). Gaps then contain no other program's slices, but only the worker's own work and what
# it waits for: locks and the kernel.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
OXVS=$(realpath "${OXVS:-target/release/oxvs}")
RULES=${RULES:-1000000} PORTS=${PORTS:-1000} FLOWS=${FLOWS:-8192} FIFO=${FIFO:-1} PAUSE=${PAUSE:-200}
PHASES=${PHASES:-idle internal veth plain bundle offloaded port}
SW=oxvs-gaps-sw A=oxvs-gaps-a B=oxvs-gaps-b
MAC=02:00:00:00:00:02
dir=$(mktemp -d /tmp/oxvs-gaps-XXXXXX)
export OVS_RUNDIR=$dir OVS_DBDIR=$dir OVS_LOGDIR=$dir OVS_SYSCONFDIR=$dir
pids=() pid=

main() {
    trap finish EXIT
    setup
    local phase
    for phase in $PHASES; do
        "phase_$phase"
    done
}

finish() {
    kill "${pids[@]}" 2>/dev/null || true
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    wait 2>/dev/null || true
    [ "$FIFO" = 0 ] || for task in $(pgrep '^ksoftirqd/'); do chrt -o -p 0 "$task"; done
    local ns
    for ns in $SW $A $B; do
        ip netns del $ns 2>/dev/null || true
    done
    [ -n "${KEEP:-}" ] || rm -rf "$dir"
}

setup() {
    local ns n=0
    for ns in $SW $A $B; do
        ip netns add $ns
        ip -n $ns link set lo up
    done
    for ns in $A $B; do
        n=$((n + 1))
        ip -n $ns link add eth0 type veth peer name p$n netns $SW
        ip -n $ns link set eth0 address 02:00:00:00:00:0$n
        ip -n $ns addr add 10.0.0.$n/24 dev eth0
        ip -n $ns link set eth0 up
        ip -n $SW link set p$n up
    done
    # Its first packets of a flow do not wait for ARP.
    ip -n $A neigh add 10.0.0.2 lladdr $MAC dev eth0
    ip netns exec $SW "$OXVS" run --log-file="$dir/oxvs.log" --unixctl="$dir/ctl" >"$dir/out.log" 2>&1 &
    pid=$!
    appears "$dir/db.sock"
    appears "$dir/ctl"
    "$OXVS" vsctl add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure \
        -- add-port br0 p1 -- set interface p1 ofport_request=1 \
        -- add-port br0 p2 -- set interface p2 ofport_request=2
    rules | "$OXVS" ofctl add-flows br0 -
    ip netns exec $B python3 scripts/bench/gaps.py receive "$dir/samples" &
    pids+=($!)
    ip netns exec $A python3 scripts/bench/gaps.py send 10.0.0.2 "$PAUSE" &
    pids+=($!)
    [ "$FIFO" = 0 ] || chrt -f -p 45 $! >/dev/null
    ip netns exec $A python3 scripts/bench/gaps.py flows eth0 $MAC 200 0 &
    pids+=($!)
    [ "$FIFO" = 0 ] || fifo
    sleep 2
}

# What the probe and the new flows need.
rules() {
    echo "table=0,priority=60000,in_port=1,udp,tp_dst=9000 actions=mod_nw_tos:32,output:2"
    echo "table=0,priority=1,in_port=1 actions=output:2"
    echo "table=0,priority=1,in_port=2 actions=output:1"
}

fifo() {
    local task
    for task in $(pgrep '^ksoftirqd/'); do
        chrt -f -p 50 "$task" >/dev/null
    done
    for task in /proc/"$pid"/task/*; do
        case $(cat "$task/comm") in
        oxvs-worker*) chrt -f -p 40 "${task##*/}" >/dev/null ;;
        esac
    done
}

appears() {
    local n
    for n in $(seq 200); do
        [ ! -e "$1" ] || return 0
        sleep 0.05
    done
    echo "$1 does not appear" >&2
    return 1
}

# Runs a command while packets go, and says what became of them.
measure() {
    local name=$1 begin end
    shift
    sleep 1
    "$OXVS" appctl -t "$dir/ctl" dpif-netdev/pmd-stats-clear >/dev/null
    drops >"$dir/before"
    threads >"$dir/threads"
    begin=$(date +%s.%N)
    "$@" >"$dir/command.log" 2>&1 || { echo "$name failed:"; tail -n 5 "$dir/command.log"; }
    end=$(date +%s.%N)
    # What is tidied up afterwards counts too.
    sleep "${AFTER:-1}"
    "$OXVS" appctl -t "$dir/ctl" dpif-netdev/pmd-perf-show >"$dir/perf"
    printf '%s: %.2f s\n' "$name" "$(echo "$end - $begin" | bc)"
    sleep 1
    echo "  delays   $(python3 scripts/bench/gaps.py report "$dir/samples" "$begin" "$(echo "$end + 1" | bc)")"
    sed -n 's/^  Longest iteration/  worker  /p' "$dir/perf"
    drops | diff "$dir/before" - | sed -n 's/^> /  drops    /p' || true
    threads | paste "$dir/threads" - | awk '{ printf "  threads  %s ran %.0f ms, waited for a processor %.1f ms\n", $1, ($6 - $2) / 1e6, ($7 - $3) / 1e6 }'
}

drops() {
    "$OXVS" appctl -t "$dir/ctl" coverage/show | grep -E '^(datapath_)?drop|offload' | awk '{ print $1, $NF }'
}

threads() {
    local task
    for task in /proc/"$pid"/task/*; do
        case $(cat "$task/comm") in
        oxvs-worker*) echo "$(cat "$task/comm") $(cat "$task/schedstat")" ;;
        esac
    done
}

phase_idle() {
    measure "nothing" sleep 3
}

phase_internal() {
    # shellcheck disable=SC2046 # words
    measure "$PORTS internal ports come" "$OXVS" vsctl add-br br1 $(for n in $(seq "$PORTS"); do
        echo "-- add-port br1 i$n -- set interface i$n type=internal"
    done)
    measure "$PORTS internal ports go" "$OXVS" vsctl del-br br1
}

phase_veth() {
    # Otherwise each of them sends some ten packets to all hosts at once, which are flooded to all
    # others: ten million packets, beside which the configuration's own part cannot be seen.
    ip netns exec $SW sysctl -q net.ipv6.conf.default.disable_ipv6=1
    for n in $(seq "$PORTS"); do
        echo "link add v$n type veth peer name w$n"
        echo "link set v$n up"
        echo "link set w$n up"
    done | ip -n $SW -batch -
    # shellcheck disable=SC2046
    measure "$PORTS veth ports come" "$OXVS" vsctl add-br br1 $(for n in $(seq "$PORTS"); do
        echo "-- add-port br1 v$n"
    done)
    measure "$PORTS veth ports go" "$OXVS" vsctl del-br br1
    seq "$PORTS" | sed 's/.*/link del v&/' | ip -n $SW -batch -
    ip netns exec $SW sysctl -q net.ipv6.conf.default.disable_ipv6=0
}

million() {
    seq "$RULES" | awk '{ printf "table=0,cookie=7,priority=100,ip,nw_dst=11.%d.%d.%d actions=drop\n", $1 / 65536, ($1 / 256) % 256, $1 % 256 }' >"$dir/rules"
}

phase_plain() {
    [ -e "$dir/rules" ] || million
    measure "$RULES rules come one by one" "$OXVS" ofctl add-flows br0 "$dir/rules"
    measure "$RULES rules go one by one" "$OXVS" ofctl del-flows br0 cookie=7/-1
}

phase_bundle() {
    [ -e "$dir/rules" ] || million
    measure "$RULES rules come in a bundle" "$OXVS" ofctl --bundle add-flows br0 "$dir/rules"
    rules >"$dir/few"
    measure "$RULES rules go in a bundle" "$OXVS" ofctl --bundle replace-flows br0 "$dir/few"
}

# Fills the table of offloaded flows.
offload() {
    seq 0 $((FLOWS - 1)) | awk '{ printf "table=0,cookie=7,priority=200,in_port=1,ip,nw_src=10.64.%d.%d actions=output:2\n", $1 / 256, $1 % 256 }' |
        "$OXVS" ofctl add-flows br0 -
    ip netns exec $A timeout 12 python3 scripts/bench/gaps.py flows eth0 $MAC 8000 "$FLOWS" || true
    "$OXVS" appctl -t "$dir/ctl" coverage/show | sed -n 's/^offload_opened/  offloaded, ever:/p'
}

phase_offloaded() {
    offload
    measure "the rules of $FLOWS offloaded flows go" "$OXVS" ofctl del-flows br0 cookie=7/-1
    offload
    measure "all megaflows go" "$OXVS" appctl -t "$dir/ctl" dpctl/del-flows
}

phase_port() {
    offload
    measure "the port of $FLOWS offloaded flows goes" "$OXVS" vsctl del-port br0 p2 -- add-port br0 p2 -- set interface p2 ofport_request=2
}

main
