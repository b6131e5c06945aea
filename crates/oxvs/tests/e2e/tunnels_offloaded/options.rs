//! Options of Geneve, as OVN uses them: rules write and match fields of `tun_metadata`.

use super::{INSIDE, POP, PUSH, skips, two};
use testkit::{Capture, Iperf3, ping};

/// The option of OVN.
const MAP: &str = "{class=0x102,type=0x80,len=4}->tun_metadata0";

#[test]
fn options_of_geneve_go_into_tunnels_and_decide_about_packets_out_of_them() {
    if skips() {
        return;
    }
    let Some(sides) = two("type=geneve options:key=flow options:csum=true") else {
        return;
    };
    let [sent, answered] = ["0x10002", "0x20001"];
    let rules = |own: &str, other: &str| {
        format!(
            "in_port=h0,actions=set_field:42->tun_id,set_field:{own}->tun_metadata0,output:t0\n\
             in_port=t0,tun_id=42,tun_metadata0={other},actions=output:h0\n"
        )
    };
    for (side, (own, other)) in sides.iter().zip([(sent, answered), (answered, sent)]) {
        side.switch
            .tool("ovs-ofctl", &["add-tlv-map", "br-int", MAP])
            .expect_ok();
        let path = side.switch.sandbox.path("rules");
        std::fs::write(&path, rules(own, other)).unwrap();
        let path = path.display().to_string();
        side.switch
            .tool("ovs-ofctl", &["--names", "replace-flows", "br-int", &path])
            .expect_ok();
    }
    sides[0].reaches("10.9.0.2");
    assert_eq!(ping(&sides[0].host, "10.9.0.2", 10).received, 10);
    for side in &sides {
        for text in [PUSH, POP, INSIDE] {
            side.wait_for_offload(text);
        }
    }
    let before = sides.each_ref().map(|side| side.seen_by_workers());
    let capture = Capture::start_large(&sides[1].ns, "ph", "udp port 6081");
    assert_eq!(ping(&sides[0].host, "10.9.0.2", 50).received, 50);
    let frames = capture.finish();
    for (side, before) in sides.iter().zip(before) {
        let by_workers = side.seen_by_workers() - before;
        assert!(by_workers < 25, "{by_workers} of 100 packets went through workers");
    }
    for (kind, value) in [(8, [0, 1, 0, 2]), (0, [0, 2, 0, 1])] {
        let header = [&[0, 0, 42, 0, 1, 2, 0x80, 1][..], &value].concat();
        let own = frames.iter().filter(|frame| frame[46..58] == header[..]);
        let own = own.filter(|frame| frame[70..72] == [8, 0] && frame[92] == kind);
        assert_eq!(own.count(), 50, "ICMP of type {kind}");
    }
    for (from, to, address) in [(0, 1, "10.9.0.2"), (1, 0, "10.9.0.1")] {
        assert!(Iperf3::tcp_bytes(20_000_000).run(&sides[from].host, &sides[to].host, address) > 0.0);
    }
    // Another option is for nobody.
    let capture = Capture::start(&sides[1].host, "eth0", "icmp");
    let other = "in_port=h0,actions=set_field:42->tun_id,set_field:3->tun_metadata0,output:t0";
    sides[0]
        .switch
        .tool("ovs-ofctl", &["--names", "mod-flows", "br-int", other])
        .expect_ok();
    assert_eq!(ping(&sides[0].host, "10.9.0.2", 5).received, 0);
    assert_eq!(capture.finish().len(), 0);
}
