//! Network service headers (RFC 8300): over tunnels and over Ethernet.

use super::{V4, Wired, decoded, inner};
use testkit::{skip, to_hex};

/// Tunnel 1 carries packets of any type by VXLAN-GPE, tunnel 2 Ethernet packets only. A host's
/// packet to 10.0.0.N goes on path N.
const RULES: &str = "\
in_port=99,ip,nw_dst=10.0.0.1,actions=encap(nsh(md_type=1)),set_field:1->nsh_spi,set_field:0x11223344->nsh_c1,set_field:0x55667788->nsh_c4,set_field:2->nsh_flags,dec_nsh_ttl,1
in_port=99,ip,nw_dst=10.0.0.2,actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba98))),set_field:2->nsh_spi,set_field:7->nsh_si,1
in_port=99,ip,nw_dst=10.0.0.3,actions=decap(),encap(nsh(md_type=1)),set_field:3->nsh_spi,1
in_port=99,ip,nw_dst=10.0.0.4,actions=encap(nsh(md_type=1)),set_field:4->nsh_spi,set_field:5->nsh_c2,encap(ethernet),set_field:aa:55:aa:55:00:04->eth_dst,2
in_port=99,ip,nw_dst=10.0.0.5,actions=encap(nsh(md_type=1)),set_field:5->nsh_spi,set_field:9->nsh_c3,1
in_port=99,ip,nw_dst=10.0.0.6,actions=encap(nsh(md_type=1)),set_field:6->nsh_spi,encap(nsh(md_type=1)),set_field:7->nsh_spi,1
in_port=1,packet_type=(1,0x894f),nsh_mdtype=1,nsh_np=3,nsh_spi=1,nsh_si=255,nsh_ttl=62,nsh_flags=2,nsh_c1=0x11223344,nsh_c4=0x55667788,actions=decap(),99
in_port=1,packet_type=(1,0x894f),nsh_mdtype=2,nsh_np=3,nsh_spi=2,nsh_si=7,nsh_ttl=63,actions=decap(),99
in_port=1,packet_type=(1,0x894f),nsh_mdtype=1,nsh_np=1,nsh_spi=3,actions=decap(),resubmit(,1)
in_port=1,packet_type=(1,0x894f),nsh_spi=5,nsh_si=255,nsh_c3=9,actions=set_field:254->nsh_si,set_field:10->nsh_c3,set_field:1->nsh_flags,dec_nsh_ttl,in_port
in_port=1,packet_type=(1,0x894f),nsh_spi=5,nsh_si=254,nsh_c3=10,nsh_flags=1,nsh_ttl=62,actions=decap(),99
in_port=1,packet_type=(1,0x894f),nsh_spi=7,nsh_np=4,actions=decap(),resubmit(,1)
in_port=2,dl_type=0x894f,dl_dst=aa:55:aa:55:00:04,nsh_spi=4,nsh_c2=5,actions=decap(),decap(),99
table=1,packet_type=(1,0x800),nw_dst=10.0.0.3,actions=encap(ethernet),set_field:02:00:00:00:00:03->eth_dst,99
table=1,packet_type=(1,0x894f),nsh_spi=6,nsh_np=3,actions=decap(),99
";

#[test]
fn paths_of_services_lead_through_vxlan_gpe_and_ethernet_to_and_from_open_vswitch() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    let mut wired = Wired::beside();
    wired.tunnel(
        1,
        "type=vxlan options:exts=gpe options:packet_type=ptap options:key=11 options:dst_port=4790",
        V4,
    );
    wired.tunnel(2, "type=vxlan options:key=12", V4);
    wired.rules(RULES);
    let sent = [0, 1].map(|from| {
        let mut all = Vec::new();
        for path in 1..=6 {
            // The second packet meets cached flows.
            let (frame, crossings) = (inner(path), if path == 5 { 2 } else { 1 });
            let (outer, came) = wired.carry(from, &[frame.clone(), frame.clone()], crossings);
            let to = if path == 5 { from } else { 1 - from };
            let mut expected = frame;
            if path == 3 {
                // It has crossed without its Ethernet header.
                expected[..12].copy_from_slice(&[2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0]);
            }
            assert_eq!(came[to], [expected.clone(), expected], "path {path} from {from}");
            all.extend(outer);
        }
        for line in decoded(&all, &[], &["frame.protocols", "nsh.spi", "nsh.si"]) {
            assert!(line.contains(":nsh:") && line.contains(":udp"), "{line}");
        }
        // What is behind UDP. The packets that cross twice come in any order.
        let mut sent: Vec<String> = all.iter().map(|frame| to_hex(&frame[42..])).collect();
        sent.sort();
        sent
    });
    assert_eq!(sent[0], sent[1], "both ends send the same");
}
