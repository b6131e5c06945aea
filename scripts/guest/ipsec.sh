# In a guest with Debian's kernel: two switches, a tunnel with IPsec between them, and a host behind
# each. States and policies are set by hand. Run by scripts/ipsec.sh behind
# scripts/guest/encrypted.sh.
counted() { [ "$(on "$1" oxvs appctl coverage/read-counter "$2")" -gt 0 ]; }
forwards() { on "$1" oxvs vsctl get interface t0 error | grep -q '^\[\]$'; }
# in_the_clear SIDE: how many unencrypted packets it has dropped.
in_the_clear() {
    echo $(($(on "$1" oxvs appctl coverage/read-counter ipsec_in_blocked) +
        $(on "$1" oxvs appctl coverage/read-counter ipsec_in_not_encrypted)))
}
# clear_is_counted SIDE COUNT: whether one more packet in the clear makes it more than that.
clear_is_counted() {
    ip netns exec host-far ping -c 1 -W 1 10.9.0.1
    [ "$(in_the_clear "$1")" -gt "$2" ]
}
blocks() { [ "$(on "$1" ip xfrm policy list | grep -c 'action block')" = "$2" ]; }

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

two_sides
switch_on near 10.9.0.1/24
switch_on far 10.9.0.2/24
begin_capture /tmp/capture
vsctl near add-port br0 t0 -- set interface t0 type=vxlan options:key=42 \
    options:remote_ip=172.31.0.2 options:psk=swordfish
vsctl far add-port br0 t0 -- set interface t0 type=vxlan options:key=42 \
    options:remote_ip=172.31.0.1 options:psk=swordfish
for side in near far; do
    until_it "$side forwards, if it is encrypted" forwards $side
    blocks $side 3 || fail "no policies at $side"
    on $side nft list tables | grep -q oxvs-ipsec || fail "no table of the firewall at $side"
done
pings_not || fail "a ping passes without states"
until_it "near counts packets that do not leave" counted near drop_host_policy
by_hand near 172.31.0.1 172.31.0.2
by_hand far 172.31.0.2 172.31.0.1
until_it "pings, encrypted by hand" pings
for n in 1 2 3; do pings >/dev/null || fail "a ping is lost"; done
# Large packets and their answers fit the path, which ESP makes shorter.
until_it "pings of 1200 bytes" ip netns exec host-near ping -c 1 -W 1 -s 1200 10.9.0.2
ends "by hand"

# The other side loses its configuration and sends unencrypted packets.
vsctl far remove interface t0 options psk
no_ike far
# The firewall's table drops them before policies see them; without nft the policies do.
begun=$(in_the_clear near)
until_it "near counts packets in the clear" clear_is_counted near "$begun"
no_ike near
until_it "near restores its policies" blocks near 3
begun=$(in_the_clear near)
until_it "near counts packets in the clear without states" clear_is_counted near "$begun"
# Without IPsec at both ends the tunnel is a usual one.
vsctl near remove interface t0 options psk
until_it "near has no policies" blocks near 0
begin_capture /tmp/capture
until_it "pings, not encrypted" pings
end_capture
[ "$(captured /tmp/capture "$clear")" -gt 0 ] || fail "the capture sees nothing in the clear"
