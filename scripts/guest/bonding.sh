# In a guest with Debian's kernel: a balance-tcp bond of oxvs, and the kernel's bonding by LACP at
# the other end. Run by scripts/bonding.sh with busybox's shell.
set -eu
export OVS_RUNDIR=/tmp/ovs OVS_DBDIR=/tmp/ovs OVS_LOGDIR=/tmp/ovs
mkdir -p $OVS_RUNDIR

# until WHAT COMMAND...: waits for at most a minute until the command succeeds.
until_it() {
    local what=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 120 ]; then
            echo "bonding: not within a minute: $what"
            oxvs appctl bond/show || true
            oxvs appctl lacp/show || true
            ip netns exec far cat /proc/net/bonding/bond0 || true
            exit 1
        fi
        sleep 0.5
    done
    echo "bonding: $what"
}

enabled() { [ "$(oxvs appctl bond/show | grep -c ': enabled$')" = "$1" ]; }
disabled() { oxvs appctl bond/show | grep -q "^member $1: disabled"; }
negotiated() { oxvs appctl lacp/show | grep -q 'status: active negotiated'; }
ports() { ip netns exec far grep -q "Number of ports: $1" /proc/net/bonding/bond0; }
partner() { ip netns exec far grep -q "Partner Mac Address: $(oxvs appctl lacp/show | sed -n 's/^  sys_id: //p')" /proc/net/bonding/bond0; }
pings() { ping -c 3 -W 1 10.1.0.2; }

ip link set lo up
ip netns add far
ip -n far link add bond0 type bond mode 802.3ad lacp_rate fast miimon 100 xmit_hash_policy layer3+4
for n in 1 2; do
    ip link add m$n type veth peer name n$n netns far
    ip link set m$n up
    ip -n far link set n$n master bond0
done
ip -n far address add 10.1.0.2/24 dev bond0
ip -n far link set bond0 up
oxvs run --pidfile --log-file -vconsole:off &
until_it "the switch runs" oxvs vsctl --timeout=5 show
oxvs vsctl add-br br0 -- set bridge br0 datapath_type=netdev \
    -- add-bond br0 b m1 m2 bond_mode=balance-tcp lacp=active other_config:lacp-time=fast
ip address add 10.1.0.1/24 dev br0
ip link set br0 up
until_it "both members are enabled" enabled 2
until_it "LACP is negotiated" negotiated
until_it "the kernel aggregates both links" ports 2
until_it "the kernel's partner is the switch" partner
until_it "pings" pings
for n in 1 2; do
    ip -n far link set n$n down
    until_it "m$n is disabled" disabled m$n
    until_it "pings by the other link" pings
    ip -n far link set n$n up
    until_it "both members are enabled again" enabled 2
    until_it "the kernel aggregates both links again" ports 2
    until_it "pings by both links" pings
done
# A partner that falls silent while the links stay up.
ip -n far link set n1 nomaster
until_it "m1 is disabled, since nobody speaks LACP there" disabled m1
until_it "pings by the link that is left" pings
echo "bonding: all passed"
