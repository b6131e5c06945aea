# What the scripts about IPsec share, behind scripts/guest/common.sh.
test=ipsec

show() {
    for side in near far; do
        on $side oxvs vsctl --columns=name,options,status,error list interface t0 || true
        on $side oxvs appctl coverage/show | grep -E 'drop|ipsec' || true
        ip netns exec $side ip xfrm policy || true
        ip netns exec $side ip xfrm state | grep -v -E 'enc|auth|aead' || true
    done
    cat /tmp/tcpdump
}

pings() { ip netns exec host-near ping -c 1 -W 1 10.9.0.2; }
pings_not() { if pings; then return 1; fi; }
# Packets of tunnels, and ICMP errors "port unreachable" that quote them. `and` and `or` have the
# same precedence there.
quoted="(icmp[0:2] == 0x303 and (icmp[17] == 47 or icmp[30:2] == 4789 or icmp[30:2] == 6081)) or
    (ip6[6] == 58 and ip6[40:2] == 0x104 and (ip6[54] == 47 or ip6[90:2] == 4789 or ip6[90:2] == 6081))"
clear="udp port 4789 or udp port 6081 or ip proto 47 or ip6 proto 47 or $quoted"
encrypted="ip proto 50 or ip6 proto 50 or udp port 4500"
# ends WHAT [MANY]: ends the capture of what was tried. Nothing has passed in the clear, and
# encrypted packets have, unless MANY is 0.
ends() {
    end_capture
    local plain esp
    plain=$(captured /tmp/capture "$clear")
    esp=$(captured /tmp/capture "$encrypted")
    [ "$plain" = 0 ] || {
        tcpdump -Z root -nr /tmp/capture "$clear" 2>&1 | head -n 20
        fail "$1: $plain packets in the clear"
    }
    [ "${2:-1}" = 0 ] || [ "$esp" -gt 0 ] || fail "$1: nothing was encrypted"
    say "$1: $esp encrypted packets, none in the clear"
}
