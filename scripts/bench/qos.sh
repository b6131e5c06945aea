#!/bin/bash
# Measures the switch's schedulers with real traffic between network namespaces: accuracy of the
# rates of ports and queues, delay of a thin flow beside bulk TCP, and sharing of a full port (study
# S0).
#
#   OXVS=path/to/oxvs PARTS="rates delay fairness" SECONDS_EACH=4 CC=reno scripts/bench/qos.sh
#
# CC is the congestion control of the bulk TCP. Reno fills a queue within the seconds of a run;
# cubic, which stops its slow start when delays grow, takes minutes. Rates are counted at the
# receiver, frames from the destination address on; port speeds count 24 bytes more of each. Figures
# depend on the machine's load: a busy machine sends late.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
OXVS=$(realpath -m "${OXVS:-target/release/oxvs}")
PARTS=${PARTS:-rates delay fairness}
SECONDS_EACH=${SECONDS_EACH:-4}
SW=oxvs-bench-sw
HOSTS="s1 s2 s3 sink"
dir= locked=
CC=${CC:-reno}
KINDS=${KINDS:-fifo sfq codel fq_codel htb hfsc}

main() {
    exec 9>/tmp/oxvs-bench.lock
    flock -n 9 || {
        echo "waiting for another measurement to end" >&2
        flock 9
    }
    locked=yes
    remove
    setup
    for part in $PARTS; do "$part"; done
}

setup() {
    dir=$(mktemp -d /tmp/oxvs-bench-run-XXXXXX)
    export OVS_RUNDIR=$dir OVS_DBDIR=$dir OVS_LOGDIR=$dir OVS_SYSCONFDIR=$dir
    ip netns add $SW
    ip -n $SW link set lo up
    ip netns exec $SW "$OXVS" run --log-file="$dir/oxvs.log" --unixctl="$dir/ctl" >"$dir/out.log" 2>&1 &
    for _ in $(seq 200); do
        [ ! -e "$dir/ctl" ] || [ ! -e "$dir/db.sock" ] || break
        sleep 0.05
    done
    vsctl add-br br0 -- set bridge br0 datapath_type=netdev
    local host n=0
    for host in $HOSTS; do
        n=$((n + 1))
        ip netns add oxvs-bench-"$host"
        ip -n oxvs-bench-"$host" link add eth0 type veth peer name "$host" netns $SW
        ip -n oxvs-bench-"$host" addr add 10.2.0.$n/24 dev eth0
        ip -n oxvs-bench-"$host" link set eth0 up
        ip -n $SW link set "$host" up
        vsctl add-port br0 "$host" -- set interface "$host" ofport_request=$n
    done
    for host in s1 s2 s3; do in_host $host ping -q -c 2 -i 0.2 -W 1 10.2.0.4 >/dev/null || true; done
    for n in 1 2 3; do "$OXVS" ofctl add-flow br0 "priority=10,in_port=$n,actions=set_queue:$n,normal"; done
}

vsctl() { "$OXVS" vsctl --timeout=10 "$@" >/dev/null; }
in_host() {
    local host=$1
    shift
    ip netns exec oxvs-bench-"$host" "$@"
}

# without: no QoS at the sink.
without() {
    vsctl clear port sink qos -- --all destroy qos -- --all destroy queue -- remove interface sink other_config port-speed
    for _ in $(seq 50); do
        "$OXVS" appctl --target="$dir/ctl" qos/show sink 2>/dev/null | grep -q 'backlog_packets: [1-9]' || return 0
        sleep 0.1
    done
}

# with KIND RATE: a scheduler at the sink with a port speed. The classes of htb and hfsc have a
# guaranteed third each, with FQ-CoDel queues.
with() {
    vsctl set interface sink other_config:port-speed="$2"
    case $1 in
    fifo) ;;
    htb | hfsc)
        local n queues=
        for n in 1 2 3; do queues="$queues -- --id=@q$n create queue other_config:min-rate=$(($2 / 3)) other_config:leaf=fq_codel"; done
        # shellcheck disable=SC2086 # a list of words
        vsctl set port sink qos=@q -- --id=@q create qos type=linux-"$1" other_config:max-rate="$2" queues:1=@q1 queues:2=@q2 queues:3=@q3 $queues
        ;;
    *) vsctl set port sink qos=@q -- --id=@q create qos type=linux-"$1" ;;
    esac
}

# received LOAD...: packets and bytes of frames that the sink received in three seconds from s1, s2
# and s3 at these rates, a line for each.
received() {
    local host=1 load senders=
    udp_in sink receive $((AFTER + 1)) 3 >"$dir/received" &
    local receiver=$!
    sleep 0.2
    for load in "$@"; do
        udp_in "$(echo $HOSTS | cut -d' ' -f$host)" send 10.2.0.4 "$load" "$SIZE" $((AFTER + 5)) &
        senders="$senders $!"
        host=$((host + 1))
    done
    # shellcheck disable=SC2086 # a list of words
    wait $receiver $senders
    cat "$dir/received"
}

udp_in() {
    local host=$1
    shift
    in_host "$host" python3 scripts/bench/udp.py "$@"
}

rates() {
    echo "== rates: received in three seconds, and configured"
    printf '%-12s %14s %14s %9s\n' "kept by" "bit/s" "measured" "error"
    local rate kind extra
    for rate in 64000 1000000 10000000 100000000 400000000; do
        for kind in port-speed htb hfsc; do
            extra=0
            # Small frames at low rates, where too few full ones would be counted.
            SIZE=$((rate < 1000000 ? 100 : 1442))
            # Waits for the end of an idle class's burst.
            AFTER=$((rate < 1000000 ? 3 : 0))
            case $kind in
            port-speed)
                vsctl set interface sink other_config:port-speed=$rate
                extra=24
                ;;
            # One queue with this maximum rate.
            *) vsctl set port sink qos=@q -- --id=@q create qos type=linux-$kind other_config:max-rate=1000000000 queues:1=@q1 \
                -- --id=@q1 create queue other_config:min-rate=$rate other_config:max-rate=$rate ;;
            esac
            received $((rate * 13 / 10)) | awk -v extra=$extra -v rate=$rate -v kind=$kind '
                { bits += ($3 + $2 * extra) * 8 / 3 }
                END { printf "%-12s %14d %14d %8.2f%%\n", kind, rate, bits, 100 * (bits / rate - 1) }'
            without
        done
    done
}

# Delay of a thin flow beside eight TCP connections, at 100 Mbit/s.
delay() {
    echo "== delay: pings from s1 to the sink beside eight TCP connections ($CC) from s2, port speed 100 Mbit/s"
    printf '%-10s %12s %10s %10s %10s\n' scheduler "TCP Mbit/s" "median ms" "p90 ms" "p99 ms"
    local kind ping tcp
    for kind in $KINDS; do
        with "$kind" 100000000
        in_host sink iperf3 -s -1 --forceflush >"$dir/server" 2>&1 &
        for _ in $(seq 100); do
            ! grep -q listening "$dir/server" || break
            sleep 0.05
        done
        in_host s2 timeout $((SECONDS_EACH + 10)) iperf3 -c 10.2.0.4 -P 8 -t $((SECONDS_EACH + 2)) -C "$CC" -f m --connect-timeout 3000 >"$dir/client" 2>&1 &
        tcp=$!
        sleep 1.5
        in_host s1 ping -n -i 0.01 -c $((SECONDS_EACH * 100)) -W 2 10.2.0.4 >"$dir/pings" &
        ping=$!
        wait $ping $tcp || true
        sed -n 's/.*time=\([0-9.]*\).*/\1/p' "$dir/pings" | sort -n | awk -v kind="$kind" -v tcp="$(sed -n 's/^\[SUM\].* \([0-9.]*\) Mbits.*receiver.*/\1/p' "$dir/client")" '
            { t[NR] = $1 }
            END { printf "%-10s %12s %10.2f %10.2f %10.2f\n", kind, tcp, t[int(NR * 0.5 + 0.5)], t[int(NR * 0.9 + 0.5)], t[int(NR * 0.99 + 0.5)] }'
        without
    done
}

# Study S0, S0.fair.3.
fairness() {
    echo "== fairness: three senders into one port (S0.fair.3), Mbit/s of frames"
    printf '%-10s %6s %14s %26s %7s\n' scheduler port offered received Jain
    local kind speed loads
    SIZE=1442 AFTER=0
    for kind in $KINDS; do
        for speed in 10 100; do
            for loads in "4 4 4" "4 4 8" "8 8 8"; do
                with "$kind" ${speed}000000
                # shellcheck disable=SC2086 # a list of words
                received $(for load in $loads; do echo $((load * speed * 100000)); done) |
                    awk -v kind="$kind" -v speed="$speed" -v loads="$loads" '
                        { r[NR] = $3 * 8 / 3e6; sum += r[NR]; squares += r[NR] ^ 2 }
                        END { printf "%-10s %6d %14s %8.2f %8.2f %8.2f %7.4f\n", kind, speed, loads, r[1], r[2], r[3], sum ^ 2 / 3 / squares }'
                without
            done
        done
    done
}

remove() {
    [ -n "$locked" ] || return 0
    local host p
    for host in $HOSTS sw; do
        [ -e /run/netns/oxvs-bench-"$host" ] || continue
        for p in $(ip netns pids oxvs-bench-"$host"); do kill "$p" 2>/dev/null || true; done
    done
    for p in $(jobs -p); do kill "$p" 2>/dev/null || true; done
    wait 2>/dev/null || true
    for host in $HOSTS sw; do ip netns del oxvs-bench-"$host" 2>/dev/null || true; done
    [ -z "$dir" ] || rm -rf "$dir"
    dir=
}

trap 'exec 2>/dev/null; remove' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
main
