//! Tunnels whose both ends rules choose (`local_ip=flow`, `remote_ip=flow`).

use super::{V4, V6, Wired, decoded, inner, inner6};
use crate::fixture::stand_in;
use testkit::{skip, to_hex};

/// A source address that no bridge has.
const FOREIGN: &str = "1.1.2.77";

#[test]
fn rules_choose_both_ends_of_a_tunnel() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "tshark");
    if stand_in() {
        skip!("Open vSwitch takes no source without the kernel's routes");
    }
    let mut wired = Wired::alone();
    for kind in ["vxlan", "geneve"] {
        wired.tunnel(
            1,
            &format!("type={kind} options:local_ip=flow options:key=flow"),
            ["flow"; 2],
        );
        for (end, place) in wired.ends.iter().zip([0, 1]) {
            let other = 1 - place;
            let ([own4, own6], [remote4, remote6]) = ([V4[place], V6[place]], [V4[other], V6[other]]);
            for rule in [
                format!(
                    "in_port=99,ip,actions=set_field:{own4}->tun_src,set_field:{remote4}->tun_dst,set_field:5->tun_id,1"
                ),
                format!(
                    "in_port=99,ipv6,actions=set_field:{own6}->tun_ipv6_src,set_field:{remote6}->tun_ipv6_dst,\
                     set_field:6->tun_id,1"
                ),
                format!(
                    "priority=40000,in_port=99,ip,nw_dst=10.0.0.3,actions=set_field:{FOREIGN}->tun_src,\
                     set_field:{remote4}->tun_dst,set_field:7->tun_id,1"
                ),
                format!("in_port=1,tun_src={remote4},tun_dst={own4},tun_id=5,actions=99"),
                format!("in_port=1,tun_ipv6_src={remote6},tun_ipv6_dst={own6},tun_id=6,actions=99"),
            ] {
                end.rule("br0", &rule);
            }
        }
        let sent = [0, 1].map(|from| {
            wired.ends[from].receive("p9", &inner(3));
            let frames = [inner(2), inner6(2), inner6(2), inner(2)];
            let (outer, came) = wired.carry(from, &frames, 1);
            assert_eq!(came[1 - from], frames, "{kind} from {from}");
            let shown = decoded(&outer, &[], &["ip.src", "ipv6.src"]);
            let first = |line: &String| {
                let outer = line
                    .split(['|', ','])
                    .find(|address| !address.starts_with("10.") && !address.is_empty());
                outer.map(str::to_owned)
            };
            let sources: Vec<Option<String>> = shown.iter().map(first).collect();
            let (v4, v6) = (Some(V4[from].to_owned()), Some(V6[from].to_owned()));
            assert_eq!(sources, [v4.clone(), v6.clone(), v6, v4], "{kind} from {from}");
            let behind = |frame: &Vec<u8>| {
                let ip = if frame[12..14] == [0x86, 0xdd] { 40 } else { 20 };
                to_hex(&frame[14 + ip + 8..])
            };
            outer.iter().map(behind).collect::<Vec<_>>()
        });
        assert_eq!(sent[0], sent[1], "{kind}: both ends send the same");
        let dropped = wired.ends[0].drops("drop_tunnel_route");
        assert!(dropped > 0, "a packet with another's address leaves by none");
        for end in &wired.ends {
            end.switch.vsctl("del-port br0 t1");
            end.switch.tool("ovs-ofctl", &["del-flows", "br0"]).expect_ok();
        }
    }
}
