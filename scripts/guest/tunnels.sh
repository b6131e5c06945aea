# In a guest with Debian's kernel: tunnels of a switch, near, to and from the kernel's own devices,
# far; through the host's stack and over a bridge of the switch. Run by scripts/tunnels.sh behind
# scripts/guest/common.sh.
test=tunnels

show() {
    on near oxvs vsctl --columns=name,options,status,error list interface t0 || true
    on near oxvs appctl coverage/show | grep -E 'drop|tunnel' || true
    on near oxvs ofctl dump-flows br0 || true
    on near oxvs appctl ovs/route/show || true
    on near oxvs appctl tnl/neigh/show || true
    ip -n far -s -d link show t0 || true
    ip -n far neigh || true
    tail -n 20 /tmp/near/ovs-vswitchd.log || true
    cat /tmp/tcpdump
}

answers() {
    local tries=0
    until ip netns exec host-near ping -c 1 -W 1 10.9.0.2 >/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 30 ] || return 1
        sleep 0.2
    done
}
# pings NAMESPACE ADDRESS BYTES
pings() { ip netns exec $1 ping -c 3 -i 0.2 -W 2 -s $3 $2 | grep -q ' 3 packets received'; }
# fetches NAMESPACE ADDRESS: half a megabyte by TCP, in segments as large as the devices take.
fetches() {
    ip netns exec $1 timeout 60 wget -q -O /tmp/arrived http://$2/data || return 1
    cmp /tmp/data /tmp/arrived
}

# tunnel NAME VERSION OPTIONS DEVICE...: a tunnel over this version of IP with these options, and
# the kernel's device at its other end.
tunnel() {
    local name=$1 ends near=172.31.0.1 far=172.31.0.2
    [ $2 = 4 ] || { near=fd31::1 far=fd31::2; }
    local options=$3
    shift 3
    case "$*" in
    *geneve*) ends="remote $near" ;;
    *) ends="local $far remote $near" ;;
    esac
    begin_capture "/out/$underlay.$name.pcap" "ip proto 47 or udp or ip6 proto 47 or ip6[6] == 60"
    vsctl near add-port br0 t0 -- set interface t0 $options options:remote_ip=$far
    # shellcheck disable=SC2086 # words
    ip -n far link add t0 $(echo "$*" | sed "s/^type [^ ]*/& $ends/")
    case "$options" in
    *legacy_l3*) bare ;;
    *)
        echo actions=normal | on near oxvs ofctl replace-flows br0 -
        ip -n far link set t0 address 02:00:00:00:00:02
        ;;
    esac
    ip -n far link set t0 up mtu 1300
    ip -n far address add 10.9.0.2/24 dev t0
    answers || fail "$underlay $name: no answer"
    pings host-near 10.9.0.2 56 || fail "$underlay $name: near pings"
    pings far 10.9.0.1 56 || fail "$underlay $name: far pings"
    pings host-near 10.9.0.2 1200 || fail "$underlay $name: near pings with 1200 bytes"
    fetches far 10.9.0.1 || fail "$underlay $name: TCP from near"
    fetches host-near 10.9.0.2 || fail "$underlay $name: TCP from far"
    vsctl near get interface t0 status | grep -q "underlay=$underlay" || fail "$underlay $name: another way"
    ip -n far link del t0
    vsctl near del-port t0
    end_capture
    say "$underlay $name"
}
# Rules for packets without Ethernet headers.
bare() {
    printf '%s\n' 'in_port=host,ip,actions=output:t0' \
        'in_port=t0,ip,actions=mod_dl_src:02:00:00:00:00:02,mod_dl_dst:02:00:00:00:00:01,output:host' |
        on near oxvs ofctl replace-flows br0 -
    ip -n host-near neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0
}

every_kind() {
    underlay=$1
    tunnel gretap 4 "type=gre" type gretap nopmtudisc
    tunnel gretap-key 4 "type=gre options:key=5" type gretap key 5
    tunnel gretap-sum 4 "type=gre options:key=5 options:csum=true" type gretap key 5 icsum ocsum
    tunnel gretap-seq 4 "type=gre options:key=5 options:csum=true options:seq=true" \
        type gretap key 5 icsum ocsum iseq oseq
    tunnel gretap-keys 4 "type=gre options:in_key=6 options:out_key=7" type gretap ikey 7 okey 6
    tunnel gre 4 "type=gre options:key=5 options:packet_type=legacy_l3" type gre key 5
    tunnel ip6gretap 6 "type=ip6gre" type ip6gretap encaplimit none
    # With the destination option of RFC 2473 before GRE.
    tunnel ip6gretap-limit 6 "type=ip6gre options:key=5" type ip6gretap key 5
    tunnel ip6gretap-seq 6 "type=ip6gre options:key=5 options:csum=true options:seq=true" \
        type ip6gretap key 5 icsum ocsum iseq oseq encaplimit none
    tunnel ip6gre 6 "type=ip6gre options:key=5 options:packet_type=legacy_l3" type ip6gre key 5 encaplimit none
    tunnel erspan-1 4 "type=erspan options:key=5 options:erspan_ver=1 options:erspan_idx=3" \
        type erspan seq key 5 erspan_ver 1 erspan 3
    tunnel erspan-2 4 "type=erspan options:key=5 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=4" \
        type erspan seq key 5 erspan_ver 2 erspan_dir egress erspan_hwid 4
    tunnel ip6erspan-1 6 "type=ip6erspan options:key=5 options:erspan_ver=1 options:erspan_idx=3" \
        type ip6erspan seq key 5 erspan_ver 1 erspan 3 encaplimit none
    tunnel ip6erspan-2 6 "type=ip6erspan options:key=5 options:erspan_ver=2 options:erspan_dir=1 options:erspan_hwid=4" \
        type ip6erspan seq key 5 erspan_ver 2 erspan_dir egress erspan_hwid 4 encaplimit none
    tunnel geneve 4 "type=geneve options:key=5" type geneve id 5 noudpcsum
    tunnel geneve-sum 4 "type=geneve options:key=5 options:csum=true" type geneve id 5 udpcsum
    tunnel geneve-6 6 "type=geneve options:key=5" type geneve id 5
    tunnel geneve-6-zero 6 "type=geneve options:key=5" type geneve id 5 udp6zerocsumtx udp6zerocsumrx
    tunnel vxlan 4 "type=vxlan options:key=5" type vxlan id 5 dstport 4789
    tunnel vxlan-6 6 "type=vxlan options:key=5" type vxlan id 5 dstport 4789
}

# in_vrf NAME WAY VERSION OPTIONS DEVICE...: see `tunnel`; the switch says that it takes the way.
in_vrf() {
    local underlay=$2 name=$1
    shift 2
    tunnel "vrf-$name" "$@"
}
# Ways of the kernel into a VRF: by the destination, by the mark, by a route to the VRF.
vrf() {
    local way=$1 device=$2 vxlan="type vxlan id 5 dstport 4789"
    ip -n near link add blue type vrf table 10
    ip -n near link set blue up
    ip -n near link set $device master blue
    # IPv6 addresses have gone with the move.
    ip -n near address replace fd31::1/64 dev $device nodad
    vsctl near add-port br0 t0 -- set interface t0 type=gre options:remote_ip=172.31.0.2
    until_it "$way: no route but in the VRF" sh -c \
        "[ \"\$(OVS_RUNDIR=/tmp/near oxvs vsctl get interface t0 status)\" = '{}' ]"
    vsctl near del-port t0
    ip -n near rule add to 172.31.0.2 lookup 10
    ip -n near -6 rule add to fd31::2 lookup 10
    in_vrf "gretap" $way 4 "type=gre options:key=5" type gretap key 5
    in_vrf "vxlan" $way 4 "type=vxlan options:key=5" $vxlan
    in_vrf "ip6gretap" $way 6 "type=ip6gre options:key=5" type ip6gretap key 5 encaplimit none
    in_vrf "geneve-6" $way 6 "type=geneve options:key=5" type geneve id 5
    ip -n near rule del to 172.31.0.2 lookup 10
    ip -n near -6 rule del to fd31::2 lookup 10
    ip -n near rule add fwmark 7 lookup 10
    in_vrf "vxlan-mark" $way 4 "type=vxlan options:key=5 options:egress_pkt_mark=7" $vxlan
    ip -n near rule del fwmark 7 lookup 10
    ip -n near route add 172.31.0.2 dev blue
    in_vrf "gretap-route" $way 4 "type=gre options:key=5" type gretap key 5
    in_vrf "vxlan-route" $way 4 "type=vxlan options:key=5" $vxlan
    ip -n near route del 172.31.0.2 dev blue
    ip -n near link del blue
    ip -n near address replace fd31::1/64 dev $device nodad
}

two_sides
switch_on near 10.9.0.1/24
ip -n host-near link set eth0 address 02:00:00:00:00:01
dd if=/dev/urandom of=/tmp/data bs=1024 count=512 2>/dev/null
for namespace in far host-near; do ip netns exec $namespace httpd -h /tmp; done
# Sockets that belong to no VRF receive packets from all.
ip netns exec near sh -c 'for kind in udp raw; do echo 1 >/proc/sys/net/ipv4/${kind}_l3mdev_accept; done'
every_kind host
vrf host wire
# The addresses move to a bridge of the switch.
vsctl near add-br br-phy -- set bridge br-phy datapath_type=netdev -- add-port br-phy wire
ip -n near address flush dev wire
ip -n near link set br-phy up
ip -n near address add 172.31.0.1/24 dev br-phy
ip -n near address add fd31::1/64 dev br-phy nodad
every_kind native
vrf native br-phy
