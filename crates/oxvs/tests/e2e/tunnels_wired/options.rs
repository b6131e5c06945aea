//! Options of Geneve in fields (`tun_metadata`), mapped and matched by Debian's `ovs-ofctl`.

use super::{V4, Wired, decoded, inner};
use testkit::skip;

const MAP: &str = "{class=0x102,type=0x80,len=4}->tun_metadata0,{class=0x103,type=1,len=12}->tun_metadata1,\
                   {class=0x104,type=2,len=16}->tun_metadata5";

/// A host's packet to 10.0.0.N has the options of N.
const RULES: &str = "\
in_port=99,ip,nw_dst=10.0.0.2,actions=set_field:0xa1b2c3d4->tun_metadata0,1
in_port=99,ip,nw_dst=10.0.0.3,actions=set_field:0x112233445566778899aabbcc->tun_metadata1,set_field:0x5->tun_metadata0,1
in_port=99,ip,nw_dst=10.0.0.4,actions=move:nw_src[]->tun_metadata1[0..31],load:0x7->tun_metadata1[64..70],1
in_port=99,ip,nw_dst=10.0.0.5,actions=set_field:0xff->tun_metadata5,1
in_port=99,ip,nw_dst=10.0.0.6,actions=1
in_port=1,priority=9,tun_metadata0=0xa1b2c3d4,tun_id=7,nw_dst=10.0.0.2,ip,actions=99
in_port=1,priority=8,tun_metadata1=0x112200000000000000000000/0xffff00000000000000000000,tun_metadata0=5,actions=99
in_port=1,priority=7,tun_metadata1=0x7000000000a000001,ip,nw_dst=10.0.0.4,actions=move:tun_metadata1[0..31]->nw_dst[],99
in_port=1,priority=6,tun_metadata5=0xff,actions=99
in_port=1,priority=5,tun_metadata0,actions=drop
in_port=1,priority=4,ip,nw_dst=10.0.0.6,actions=99
";

#[test]
fn options_of_geneve_are_fields_at_both_ends() {
    skip!(unless "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    let mut wired = Wired::beside();
    wired.tunnel(1, "type=geneve options:key=7", V4);
    for end in &wired.ends {
        end.switch.tool("ovs-ofctl", &["add-tlv-map", "br0", MAP]).expect_ok();
    }
    wired.rules(RULES);
    let sent = [0, 1].map(|from| {
        let mut all = Vec::new();
        for to in 2..=6 {
            let frame = inner(to);
            let (outer, came) = wired.carry(from, &[frame.clone(), frame.clone()], 1);
            if to == 4 {
                assert!(came[1 - from].iter().all(|frame| frame[30..34] == [10, 0, 0, 1]));
            } else {
                assert_eq!(came[1 - from], [frame.clone(), frame], "{to} from {from}");
            }
            all.extend(outer);
        }
        let shown = decoded(
            &all,
            &[],
            &["geneve.vni", "geneve.option.class", "geneve.option.length"],
        );
        assert_eq!(shown.iter().filter(|line| line.contains("0x0102")).count(), 4);
        all.iter()
            .map(|frame| testkit::to_hex(&frame[42..]))
            .collect::<Vec<_>>()
    });
    assert_eq!(sent[0], sent[1], "both ends send the same");
    // Without the map the options are nobody's, and packets have no field.
    for end in &wired.ends {
        end.switch.tool("ovs-ofctl", &["del-flows", "br0"]).expect_ok();
        end.switch.tool("ovs-ofctl", &["del-tlv-map", "br0"]).expect_ok();
    }
    wired.rules("in_port=99,ip,actions=1\nin_port=1,ip,actions=99");
    for from in [0, 1] {
        let (_, came) = wired.carry(from, &[inner(2)], 1);
        assert_eq!(came[1 - from], [inner(2)]);
    }
}
