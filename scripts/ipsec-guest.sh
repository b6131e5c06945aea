# In a guest with Debian's kernel: two switches in network namespaces, a tunnel with IPsec between
# them, and a host behind each. Run by scripts/ipsec.sh with busybox's shell.
set -eu

# until_it WHAT COMMAND...: waits for at most two minutes until the command succeeds.
until_it() {
    local what=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -le 240 ] || fail "not within two minutes: $what"
        sleep 0.5
    done
    echo "ipsec: $what"
}

fail() {
    echo "ipsec: $*"
    for side in near far; do
        on $side oxvs vsctl --columns=name,options,status,error list interface t0 || true
        on $side oxvs appctl coverage/show | grep -E 'drop|ipsec' || true
        ip netns exec $side ip xfrm policy || true
        ip netns exec $side ip xfrm state | grep -v -E 'enc|auth|aead' || true
        cat /tmp/tcpdump; tail -n 30 /tmp/$side/ovs-monitor-ipsec.log /tmp/$side/charon.log 2>/dev/null || true
    done
    exit 1
}

# on SIDE COMMAND...: a command in a side's network namespace, for its switch.
on() {
    local side=$1
    shift
    OVS_RUNDIR=/tmp/$side OVS_DBDIR=/tmp/$side OVS_LOGDIR=/tmp/$side ip netns exec $side "$@"
}
set_tunnel() { on "$1" oxvs vsctl --timeout=20 set interface t0 "$2"; }
pings() { ip netns exec host-near ping -c 1 -W 1 10.9.0.2; }
pings_not() { if pings; then return 1; fi; }
counted() { [ "$(on "$1" oxvs appctl coverage/read-counter "$2")" -gt 0 ]; }
forwards() { on "$1" oxvs vsctl get interface t0 error | grep -q '^\[\]$'; }
blocks() { [ "$(on "$1" ip xfrm policy list | grep -c 'action block')" = "$2" ]; }

# The packets that pass the wire, from before there is a tunnel.
begin_capture() {
    ip netns exec far tcpdump -Z root -U -n -i wire -w /tmp/capture 2>/tmp/tcpdump &
    capture=$!
    until_it "the capture runs" grep -q listening /tmp/tcpdump
}
captured() { tcpdump -Z root -n -r /tmp/capture "$1" 2>/tmp/tcpdump | wc -l; }
# ends_capture ESP: nothing has passed in the clear, and encrypted packets at least if ESP is 1.
end_capture() {
    sleep 1
    kill $capture
    wait $capture || true
    [ "$(captured 'udp port 4789')" = 0 ] || fail "$(captured 'udp port 4789') packets in the clear"
    [ "$1" = 0 ] || [ "$(captured 'ip proto 50')" -gt 0 ] || fail "nothing was encrypted"
    echo "ipsec: $(captured "ip proto 50") encrypted packets, none in the clear"
}

# State and policies as an IKE daemon sets them, on the side that has the address $2 for the one
# with $3.
by_hand() {
    for way in "$2 $3" "$3 $2"; do
        set -- "$1" "$2" "$3" $way
        on "$1" ip xfrm state add src "$4" dst "$5" proto esp spi 0x1000 reqid 1 mode transport \
            auth-trunc 'hmac(sha256)' 0x0102030405060708010203040506070801020304050607080102030405060708 128 \
            enc 'cbc(aes)' 0x0102030405060708090a0b0c0d0e0f10
    done
    on "$1" ip xfrm policy add dir out src "$2" dst "$3" proto 17 dport 4789 priority 1000 \
        tmpl src "$2" dst "$3" proto esp reqid 1 mode transport
    on "$1" ip xfrm policy add dir in src "$3" dst "$2" proto 17 dport 4789 priority 1000 \
        tmpl src "$3" dst "$2" proto esp reqid 1 mode transport
}
no_ike() {
    on "$1" ip xfrm state flush
    on "$1" ip xfrm policy flush
}

# The user of tcpdump.
echo 'root:x:0:0:root:/:/bin/sh' >/etc/passwd
ip netns add near
ip netns add far
ip -n near link add wire type veth peer name wire netns far
n=1
for side in near far; do
    mkdir -p /tmp/$side
    ip netns add host-$side
    ip -n $side link set lo up
    ip -n $side link set wire up
    ip -n $side address add 172.31.0.$n/24 dev wire
    ip -n $side link add host type veth peer name eth0 netns host-$side
    ip -n $side link set host up
    ip -n host-$side link set eth0 up mtu 1300
    ip -n host-$side address add 10.9.0.$n/24 dev eth0
    on $side oxvs run --pidfile --log-file -vconsole:off &
    until_it "the switch $side runs" on $side oxvs vsctl --timeout=5 show
    on $side oxvs vsctl --timeout=20 add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 host
    n=2
done

begin_capture
on near oxvs vsctl --timeout=20 add-port br0 t0 -- set interface t0 type=vxlan options:key=42 \
    options:remote_ip=172.31.0.2 options:psk=swordfish
on far oxvs vsctl --timeout=20 add-port br0 t0 -- set interface t0 type=vxlan options:key=42 \
    options:remote_ip=172.31.0.1 options:psk=swordfish
for side in near far; do
    until_it "$side forwards, if it is encrypted" forwards $side
    blocks $side 2 || fail "no policies at $side"
done
pings_not || fail "a ping passes without states"
until_it "near counts packets that do not leave" counted near drop_host_policy
by_hand near 172.31.0.1 172.31.0.2
by_hand far 172.31.0.2 172.31.0.1
until_it "pings, encrypted by hand" pings
for n in 1 2 3; do pings >/dev/null || fail "a ping is lost"; done
# Large packets and their answers fit the path, which ESP makes shorter.
until_it "pings of 1200 bytes" ip netns exec host-near ping -c 1 -W 1 -s 1200 10.9.0.2
end_capture 1

# The other side forgets what it was told, and speaks in the clear.
on far oxvs vsctl --timeout=20 remove interface t0 options psk
no_ike far
until_it "near counts packets in the clear" sh -c "ip netns exec host-far ping -c 1 -W 1 10.9.0.1; \
    [ \$(OVS_RUNDIR=/tmp/near oxvs appctl coverage/read-counter ipsec_in_not_encrypted) -gt 0 ]"
no_ike near
until_it "near restores its policies" blocks near 2
until_it "near counts blocked packets" sh -c "ip netns exec host-far ping -c 1 -W 1 10.9.0.1; \
    [ \$(OVS_RUNDIR=/tmp/near oxvs appctl coverage/read-counter ipsec_in_blocked) -gt 0 ]"
# Without IPsec at both ends the tunnel is a usual one.
on near oxvs vsctl --timeout=20 remove interface t0 options psk
until_it "near has no policies" blocks near 0
begin_capture
until_it "pings, not encrypted" pings
sleep 1
[ "$(captured 'udp port 4789')" -gt 0 ] || fail "the capture sees nothing in the clear"
kill $capture

[ -e /bin/ike.tar ] || exit 0
mkdir -p /usr /var/run
export PATH=/bin:/usr/bin:/usr/sbin
tar -xf /bin/ike.tar -C /
rm /bin/ike.tar
for program in sh env; do ln -sf /bin/$program /usr/bin/$program; done
for side in near far; do
    cp -r /etc /tmp/$side/etc
    cat >/tmp/$side/etc/strongswan.d/log.conf <<LOG
charon {
    filelog {
        log {
            path = /tmp/$side/charon.log
            flush_line = yes
        }
    }
}
LOG
done
set_tunnel near options:psk=swordfish
set_tunnel far options:psk=swordfish
begin_capture
for side in near far; do
    # Each side has files of its own where both daemons have theirs.
    on $side sh -c "mount --bind /tmp/$side/etc /etc && mount -t tmpfs run /run && mount -t tmpfs run /var/run && \
        exec python3 /usr/share/openvswitch/scripts/ovs-monitor-ipsec --pidfile --ike-daemon=strongswan \
        --log-file=/tmp/$side/ovs-monitor-ipsec.log unix:/tmp/$side/db.sock" >/tmp/$side/monitor 2>&1 &
done
until_it "pings, encrypted by strongSwan" pings
for n in 1 2 3; do pings >/dev/null || fail "a ping is lost"; done
end_capture 1
# The daemons end, and take their states and policies with them.
begin_capture
killall starter
until_it "nothing passes without strongSwan" pings_not
sleep 5
pings_not >/dev/null || fail "a ping passes without strongSwan"
end_capture 0
