//! Mirrors of packets of tunnels.

use super::{INSIDE, skips, with_kernel};
use testkit::{Capture, Netns, eventually, ping};

#[test]
fn a_mirror_has_what_goes_into_a_tunnel_and_what_comes_out_without_outer_headers() {
    if skips() {
        return;
    }
    let Some((side, peer)) = with_kernel("noudpcsum") else {
        return;
    };
    let monitor = Netns::new("tofm");
    side.ns.veth("m0", &monitor, "m1");
    side.switch.vsctl(
        "add-port br-int m0 -- --id=@p get port m0 \
         -- --id=@m create mirror name=m select_all=true output_port=@p -- set bridge br-int mirrors=@m",
    );
    eventually("a packet comes back", || {
        (ping(&peer, "10.9.0.1", 1).received == 1).then_some(())
    });
    assert_eq!(ping(&peer, "10.9.0.1", 5).received, 5);
    side.wait_for_offload(INSIDE);
    let capture = Capture::start(&monitor, "m1", "icmp");
    side.answers_all(&peer, "10.9.0.1", 30);
    assert!(side.offloaded(INSIDE) > 0);
    let frames = capture.finish();
    for kind in [8, 0] {
        let own = frames
            .iter()
            .filter(|frame| frame[12..14] == [8, 0] && frame[34] == kind);
        assert_eq!(own.count(), 30, "ICMP of type {kind}");
    }
    assert_eq!(side.drops(), Vec::<String>::new());
}
