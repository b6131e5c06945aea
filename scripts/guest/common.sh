# What the scripts in guests share; busybox's shell runs them. Each sets `test`, its name, and
# defines `show`, which prints what explains a failure.
set -eu

say() { echo "$test: $*"; }
fail() {
    say "$*"
    show
    exit 1
}

# until_it WHAT COMMAND...: waits for at most two minutes until the command succeeds.
until_it() {
    local what=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -le 100 ] || fail "not within two minutes: $what"
        sleep 0.5
    done
    say "$what"
}

# on SIDE COMMAND...: a command in a side's network namespace, for its switch.
on() {
    local side=$1
    shift
    OVS_RUNDIR=/tmp/$side OVS_DBDIR=/tmp/$side OVS_LOGDIR=/tmp/$side ip netns exec $side "$@"
}
vsctl() {
    local side=$1
    shift
    on $side oxvs vsctl --timeout=60 "$@"
}

# Two network namespaces, near and far, with a cable: the device `wire` of each has 172.31.0.N and
# fd31::N.
two_sides() {
    # The user of tcpdump.
    echo 'root:x:0:0:root:/:/bin/sh' >/etc/passwd
    ip netns add near
    ip netns add far
    ip -n near link add wire type veth peer name wire netns far
    local n=1 side
    for side in near far; do
        mkdir -p /tmp/$side
        ip -n $side link set lo up
        ip -n $side link set wire up
        ip -n $side address add 172.31.0.$n/24 dev wire
        ip -n $side address add fd31::$n/64 dev wire nodad
        n=2
    done
}

# switch_on SIDE ADDRESS: runs a switch with the bridge br0, and a host behind it in the namespace
# host-SIDE, whose eth0 has the address.
switch_on() {
    local side=$1
    ip netns add host-$side
    ip -n $side link add host type veth peer name eth0 netns host-$side
    ip -n $side link set host up
    ip -n host-$side link set eth0 up mtu 1300
    ip -n host-$side address add $2 dev eth0
    start $side
    vsctl $side add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 host
}
start() {
    on $1 oxvs run --pidfile --log-file -vconsole:off &
    until_it "the switch $1 runs" on $1 oxvs vsctl --timeout=5 show
}

# begin_capture FILE [FILTER]: the packets on the far end of the cable.
begin_capture() {
    ip netns exec far tcpdump -Z root --immediate-mode -U -n -s 160 -i wire -w "$@" 2>/tmp/tcpdump &
    capture=$!
    until grep -q listening /tmp/tcpdump; do sleep 0.2; done
}
end_capture() {
    sleep 1
    kill $capture
    wait $capture || true
}
# captured FILE FILTER: how many packets.
captured() { tcpdump -Z root -n -r "$1" "$2" 2>/tmp/tcpdump | wc -l; }
