//! VLAN tags of a tunnel's underlay and of its hosts, and IPv6 inside.

use super::{INSIDE, POP, PUSH, Side, skips, two};
use testkit::{Capture, Iperf3, ping};

fn tcp(sides: &[Side; 2], addresses: [&str; 2]) {
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = Iperf3::tcp_bytes(5_000_000).run(&sides[from].host, &sides[to].host, addresses[to]);
        assert!(sent > 0.0);
    }
}

#[test]
fn the_underlays_tag_is_outside_of_a_tunnel_whose_hosts_have_another() {
    if skips() {
        return;
    }
    let Some(sides) = two("type=vxlan options:key=42") else {
        return;
    };
    for side in &sides {
        side.switch
            .vsctl("set port t0 tag=5 -- set port h0 tag=5 -- set port br-phy tag=10 -- set port ph trunks=10");
    }
    sides[0].reaches("10.9.0.2");
    let capture = Capture::start(&sides[1].ns, "ph", "");
    assert_eq!(ping(&sides[0].host, "10.9.0.2", 30).received, 30);
    for side in &sides {
        for text in [PUSH, POP, INSIDE] {
            side.wait_for_offload(text);
        }
    }
    let tagged = |frame: &&Vec<u8>| frame[12..18] == [0x81, 0, 0, 10, 8, 0] && frame[40..42] == [0x12, 0xb5];
    let frames = capture.finish();
    let outer: Vec<&Vec<u8>> = frames.iter().filter(tagged).collect();
    assert!(outer.len() >= 60, "{} of {}", outer.len(), frames.len());
    for frame in outer {
        assert!(matches!(frame[66..68], [8, 0] | [8, 6]), "no tag inside");
    }
    tcp(&sides, ["10.9.0.1", "10.9.0.2"]);
}

#[test]
fn ipv6_inside_goes_into_tunnels_and_out_of_them() {
    if skips() {
        return;
    }
    let Some(sides) = two("type=geneve options:key=42") else {
        return;
    };
    for (number, side) in (1..).zip(&sides) {
        side.host
            .run(&["sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6"]);
        side.host.address("eth0", &format!("fd00:9::{number}/64"));
    }
    // Those of IPv4 would expire meanwhile.
    for side in &sides {
        side.switch.appctl(&["dpctl/del-flows"]);
    }
    let _pings = sides[0].ping_on("fd00:9::2");
    // Linux before 6.3 does not remove outer headers of another version.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let comes_out = (numbers.next(), numbers.next()) >= (Some(6), Some(3));
    testkit::eventually("the pings are offloaded", || {
        let goes_in = sides[0].offloaded(PUSH) > 0;
        (goes_in && (!comes_out || sides[1].offloaded(INSIDE) > 0)).then_some(())
    });
    assert_eq!(ping(&sides[0].host, "fd00:9::2", 20).received, 20);
    tcp(&sides, ["fd00:9::1", "fd00:9::2"]);
}
