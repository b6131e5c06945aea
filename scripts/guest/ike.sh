# In a guest with Debian's kernel: two switches, tunnels with IPsec between them, and a host behind
# each. Debian's ovs-monitor-ipsec and an IKE daemon, $ike, encrypt. Run by scripts/ipsec.sh behind
# scripts/guest/encrypted.sh.
tar -xf /bin/ike.tar -C /
rm /bin/ike.tar
mkdir -p /usr /var/run
export PATH=/bin:/usr/bin:/usr/sbin
for program in sh env; do ln -sf /bin/$program /usr/bin/$program; done
case $ike in
strongswan) daemon=charon ;;
libreswan)
    daemon=pluto
    # What ipsec.service does.
    cat >/bin/systemctl <<'UNIT'
#!/bin/sh
case $1 in
stop | restart)
    /usr/libexec/ipsec/whack --shutdown
    ip xfrm policy flush
    ip xfrm state flush
    ;;
esac
case $1 in
start | restart)
    until [ -z "$(cat /run/pluto/pluto.pid 2>/dev/null)" ]; do
        kill -0 "$(cat /run/pluto/pluto.pid)" 2>/dev/null || rm -f /run/pluto/pluto.pid
        sleep 0.2
    done
    mkdir -p /run/pluto
    /usr/libexec/ipsec/_stackmanager start
    ipsec --checknss
    /usr/libexec/ipsec/pluto --config /etc/ipsec.conf --logfile $OVS_RUNDIR/pluto.log
    ;;
esac
UNIT
    chmod +x /bin/systemctl
    ;;
esac

fail() {
    say "$*"
    show
    for side in near far; do
        tail -n 30 /tmp/$side/ovs-monitor-ipsec.log /tmp/$side/$daemon.log /tmp/$side/monitor || true
    done
    exit 1
}
# at SIDE COMMAND...: as `on`, with the side's own files of the daemons.
at() {
    local side=$1 holder
    holder=$(cat /tmp/$1/holder)
    shift
    OVS_RUNDIR=/tmp/$side OVS_DBDIR=/tmp/$side OVS_LOGDIR=/tmp/$side nsenter -t $holder -m -n -- "$@"
}
# files SIDE: makes them.
files() {
    local side=$1
    cp -r /etc /tmp/$side/etc
    mkdir -p /tmp/$side/lib
    cp -r /var/lib/. /tmp/$side/lib
    [ $ike = libreswan ] || cat >/tmp/$side/etc/strongswan.d/log.conf <<LOG
charon {
    # Where both ends delete a connection at once, each gives up after some seconds.
    retransmit_timeout = 1.0
    retransmit_tries = 3
    plugins {
        kernel-netlink {
            # Seconds until it asks again for keys that the other end, not ready yet, has refused.
            xfrm_acq_expires = 5
        }
    }
    filelog {
        log {
            path = /tmp/$side/charon.log
            flush_line = yes
        }
    }
}
LOG
    ip netns exec $side sh -c "mount --bind /tmp/$side/etc /etc && mount --bind /tmp/$side/lib /var/lib && \
        mount -t tmpfs run /run && mount -t tmpfs run /var/run && \
        echo \$\$ >/tmp/$side/holder && exec sleep 100000" &
    until [ -s /tmp/$side/holder ]; do sleep 0.1; done
}
# monitor SIDE: starts ovs-monitor-ipsec, which restarts the IKE daemon.
monitor() {
    local more=
    [ $ike = strongswan ] || more=--ipsec-d=/var/lib/ipsec/nss
    at $1 python3 /usr/share/openvswitch/scripts/ovs-monitor-ipsec --pidfile --ike-daemon=$ike $more \
        --log-file=/tmp/$1/ovs-monitor-ipsec.log unix:/tmp/$1/db.sock >>/tmp/$1/monitor 2>&1 &
    until_it "the monitor $1 runs" at $1 oxvs appctl -t ovs-monitor-ipsec list-commands
}
# tunnels TYPE VERSION NEAR FAR [BOTH]: a tunnel at each side, with the options.
tunnels() {
    local near=172.31.0.1 far=172.31.0.2
    [ $2 = 4 ] || { near=fd31::1 far=fd31::2; }
    # Without local_ip Libreswan takes the address of the default route.
    vsctl near add-port br0 t0 -- set interface t0 type=$1 options:key=42 options:local_ip=$near \
        options:remote_ip=$far $3 ${5:-}
    vsctl far add-port br0 t0 -- set interface t0 type=$1 options:key=42 options:local_ip=$far \
        options:remote_ip=$near $4 ${5:-}
}
restart_both() { for side in far near; do at $side ipsec restart; done; }
no_tunnels() {
    local side
    # Libreswan can hang in the removal if the other end removes its tunnel at the same time, and
    # does not try again if that takes the next one for this one.
    for side in near far; do
        vsctl $side del-port t0
        until_it "$side has forgotten the tunnel" forgotten $side
    done
    [ $ike = strongswan ] || restart_both >/dev/null 2>&1 || true
}
# forgotten SIDE: whether its monitor has. It waits for ever for a Libreswan that hangs, and goes on
# when that restarts.
asked=0
forgotten() {
    local said
    asked=$((asked + 1))
    [ $ike = strongswan ] || [ $((asked % 10)) != 0 ] || at $1 ipsec restart
    said=$(at $1 timeout 10 oxvs appctl -t ovs-monitor-ipsec tunnels/show &&
        at $1 timeout 10 oxvs appctl -t ovs-monitor-ipsec ipsec/status) || return 1
    ! echo "$said" | grep -q t0
}
# up: pings. Where both ends negotiate at once, Libreswan does not try again, and strongSwan may
# keep keys that the other has given up: they restart now and then.
missed=0
up() {
    pings && return
    missed=$((missed + 1))
    [ $((missed % 30)) != 0 ] || restart_both
    return 1
}
thrice() { up && up && up; }
# secured WHAT TYPE VERSION NEAR FAR [BOTH]
secured() {
    local what=$1
    shift
    begin_capture /tmp/capture
    tunnels "$@"
    # Both ends may agree on keys twice, and use those that the other has just given up.
    until_it "$what: pings" thrice
    ip netns exec host-near ping -c 1 -W 5 -s 1200 10.9.0.2 >/dev/null || fail "$what: no large ping"
    # Without the tunnel the kernel of one end quotes what it still decrypts for the other.
    ends "$what"
    no_tunnels
}

two_sides
switch_on near 10.9.0.1/24
switch_on far 10.9.0.2/24
for side in near far; do
    files $side
    monitor $side
done
psk=options:psk=swordfish
for type in vxlan geneve gre; do secured "$type" $type 4 $psk $psk; done
for type in vxlan gre; do secured "$type over IPv6" $type 6 $psk $psk; done
case $ike in
strongswan) secured "in UDP" vxlan 4 $psk $psk options:ipsec_forceencaps=yes ;;
libreswan) secured "in UDP" vxlan 4 $psk $psk options:ipsec_encapsulation=yes ;;
esac
# IKE's own packets have zeros there (RFC 3948 §2.2).
in_udp=$(captured /tmp/capture "udp port 4500 and udp[8:4] != 0")
[ "$in_udp" -gt 0 ] && [ "$(captured /tmp/capture "ip proto 50")" = 0 ] || fail "ESP is not in UDP"
say "$in_udp packets are ESP in UDP, none only ESP"

# What the monitor says.
tunnels vxlan 4 $psk $psk
until_it "pings" up
# says WHAT EXPECTED: it waits as in `forgotten`.
says() {
    asked=$((asked + 1))
    [ $ike = strongswan ] || [ $((asked % 10)) != 0 ] || at near ipsec restart
    at near timeout 10 oxvs appctl -t ovs-monitor-ipsec $1 >/tmp/said && grep -q "$2" /tmp/said
}
for what in tunnels/show xfrm/policies xfrm/state ipsec/status; do
    case $what in
    ipsec/status) expected=t0-in-1 ;;
    tunnels/show) expected="Interface name: t0 v1 (CONFIGURED)" ;;
    *) expected=172.31.0.2 ;;
    esac
    until_it "$what says $expected" says $what "$expected"
done

# flood WHAT COMMAND...: both hosts send all the time while something restarts.
flood() {
    local what=$1 pinger
    shift
    begin_capture /tmp/capture
    ip netns exec host-near ping -q -i 0.02 10.9.0.2 >/dev/null 2>&1 &
    pinger=$!
    ip netns exec host-far ping -q -i 0.02 10.9.0.1 >/dev/null 2>&1 &
    pinger="$pinger $!"
    sleep 1
    "$@"
    sleep 10
    kill $pinger
    ends "$what"
    # One IKE daemon may go on with keys that the other has forgotten.
    pings >/dev/null || pings >/dev/null || restart_both >/dev/null 2>&1 || true
    until_it "$what: pings again" up
}
restart_switch() {
    kill -9 "$(cat /tmp/$1/ovs-vswitchd.pid)"
    sleep 1
    start $1
}
kill_monitor() {
    kill -9 "$(cat /tmp/$1/ovs-monitor-ipsec.pid)"
    sleep 1
    monitor $1
}
kill_daemon() {
    kill -9 "$(at $1 cat /var/run/charon.pid 2>/dev/null || at $1 cat /run/pluto/pluto.pid)"
    sleep 1
    # The kernel keeps using the keys of a killed charon, which the next one does not know of.
    [ $ike != strongswan ] || on $1 ip xfrm state flush
    at $1 ipsec restart
}
flood "near is killed" restart_switch near
flood "$daemon is killed" kill_daemon near
flood "$ike restarts" restart_both
flood "the monitor is killed" kill_monitor near
no_tunnels

begin_capture /tmp/capture
tunnels vxlan 4 $psk options:psk=other
for n in 1 2 3 4 5 6 7 8; do pings_not >/dev/null || fail "a ping passes with different keys"; done
vsctl far set interface t0 $psk
until_it "pings with the same key again" up
ends "different keys"
no_tunnels

# Plain tunnels drop packets with the mark; Libreswan 4.10 takes the monitor's rules for that, and
# lets them pass.
marked() {
    vsctl near set open_vswitch . other_config:ipsec_skb_mark=1/1
    tunnels gre 4 "" ""
    until_it "pings, not encrypted" pings
    echo "actions=set_field:1->pkt_mark,normal" | on near oxvs ofctl replace-flows br0 -
    until_it "marked packets do not leave in the clear" pings_not
    echo "actions=normal" | on near oxvs ofctl replace-flows br0 -
    until_it "packets without the mark do" pings
    no_tunnels
    vsctl near remove open_vswitch . other_config ipsec_skb_mark
}
[ $ike = libreswan ] || marked

for side in near far; do
    vsctl $side set open_vswitch . other_config:certificate=/certificates/$side.pem \
        other_config:private_key=/certificates/$side.key
    # Its certificates are read at the start.
    [ $ike = strongswan ] || at $side ipsec restart
done
for type in vxlan gre; do
    secured "$type with certificates signed by themselves" $type 4 options:remote_cert=/certificates/far.pem \
        options:remote_cert=/certificates/near.pem
done
for side in near far; do
    vsctl $side set open_vswitch . other_config:certificate=/certificates/$side-ca.pem \
        other_config:ca_cert=/certificates/ca.pem
    # The monitor's section of the authority has no auto=add, without which strongSwan ignores it.
    case $ike in
    strongswan) cp /certificates/ca.pem /tmp/$side/etc/ipsec.d/cacerts/ && at $side ipsec rereadcacerts ;;
    *) at $side ipsec restart ;;
    esac
done
for type in geneve vxlan; do
    secured "$type with certificates of an authority" $type 4 options:remote_name=far options:remote_name=near
done
begin_capture /tmp/capture
tunnels vxlan 4 options:remote_name=other options:remote_name=near
for n in 1 2 3 4 5 6 7 8; do pings_not >/dev/null || fail "a ping passes to somebody else"; done
ends "a certificate with another name" 0
no_tunnels
say "all of $ike passed"
