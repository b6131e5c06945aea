#!/bin/bash
# Tries tunnels with the kernel's own devices at the other end, and an underlay in a VRF, in a
# virtual machine with Debian's kernel: the running one may lack them.
# usage: tunnels.sh   (OXVS=target/release/oxvs)
set -euo pipefail
cd "$(dirname "$0")/.."
OXVS=$(realpath "${OXVS:-target/release/oxvs}")
. scripts/guest/needs.sh
needs tunnels qemu-system-x86_64 tcpdump tshark
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
options=(--memory 1024 --timeout 2400 --out "$dir" --program "$OXVS" --program tcpdump)
for module in veth tun sch_ingress cls_bpf ip_gre ip6_gre geneve vxlan vrf; do
    options+=(--module "$module")
done
"$OXVS" lab guest "${options[@]}" -- sh -c "$(cat scripts/guest/common.sh scripts/guest/tunnels.sh)"

# What each packet of the switch has.
expected() {
    case "$1" in
    gretap) echo 'gre && !gre.flags.key == 1 && !gre.flags.checksum == 1 && !gre.flags.sequence_number == 1' ;;
    *gretap-sum) echo 'gre.key == 5 && gre.flags.checksum == 1 && gre.flags.sequence_number == 0' ;;
    *gretap-seq) echo 'gre.key == 5 && gre.flags.checksum == 1 && gre.flags.sequence_number == 1' ;;
    gretap-keys) echo 'gre.key == 7' ;;
    ip6gretap) echo 'gre && !gre.flags.key == 1' ;;
    *gretap*) echo 'gre.key == 5 && gre.flags.checksum == 0 && gre.proto == 0x6558' ;;
    gre | ip6gre) echo 'gre.key == 5 && gre.proto == 0x0800' ;;
    *erspan-1) echo 'erspan.spanid == 5 && erspan.version == 1' ;;
    *erspan-2) echo 'erspan.spanid == 5 && erspan.version == 2 && erspan.hw == 4' ;;
    # Datagrams that the host's stack segments have checksums in any case.
    geneve) echo 'geneve.vni == 5' ;;
    *geneve*) echo 'geneve.vni == 5 && !udp.checksum == 0' ;;
    *vxlan*) echo 'vxlan.vni == 5' ;;
    esac
}
for file in "$dir"/*.pcap; do
    name=$(basename "$file" .pcap)
    read_with() { tshark -r "$file" -Y "$1" 2>/dev/null; }
    expected=$(expected "${name#*.}")
    ours='(ip.src == 172.31.0.1 || ipv6.src == fd31::1) && (gre || udp)'
    [ -n "$expected" ] && [ "$(read_with "$ours" | wc -l)" -gt 10 ] || {
        echo "tunnels: $name: the switch has sent nothing"
        exit 1
    }
    for wrong in "_ws.malformed" "$ours && !($expected)"; do
        [ -z "$(read_with "$wrong")" ] || {
            echo "tunnels: $name: packets that are not as they should be"
            read_with "$wrong" | head
            exit 1
        }
    done
done
echo "tunnels: $(find "$dir" -name '*.pcap' | wc -l) captures are as they should be"
