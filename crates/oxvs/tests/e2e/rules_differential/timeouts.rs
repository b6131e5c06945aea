//! Rules that end, by a clock that the test moves.

use super::allowed::Uncounted;
use super::side::Side;
use crate::fixture::start;
use std::time::{Duration, Instant};
use testkit::{Options, Packet, Vswitch, mac, skip};

/// Rules with both timeouts, one, or none; packets of the first two kinds come every few seconds.
const RULES: [&str; 6] = [
    "table=1,priority=1,actions=drop",
    "table=1,priority=2,idle_timeout=4,actions=drop",
    "table=1,priority=3,hard_timeout=7,actions=drop",
    "priority=4,dl_src=02:00:00:00:00:01,idle_timeout=5,actions=output:2",
    "priority=5,dl_src=02:00:00:00:00:02,idle_timeout=5,hard_timeout=8,actions=output:2",
    "priority=6,dl_src=02:00:00:00:00:03,hard_timeout=12,actions=output:2",
];

#[test]
fn rules_end_when_they_end_in_open_vswitch_having_counted_the_same() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    let mut sides = [Vswitch::debian(Options::default()), start(Options::default())].map(Side::new);
    for side in &mut sides {
        side.rebuild();
        side.command("time/stop", &[]);
        for rule in RULES {
            side.ofctl("OpenFlow13", &["add-flow", "br0", rule])
                .expect("the rule is legal");
        }
    }
    let (all, mut left) = (Uncounted::default(), Vec::new());
    for step in 1..=17_u32 {
        let [oracle, mine] = sides.each_mut().map(|side| {
            // Never exactly at a timeout, where the rule has expired for oxvs and not yet for Open
            // vSwitch.
            side.command("time/warp", &["900"]);
            side.command("revalidator/purge", &[]);
            if step <= 8 && step % 3 == 0 {
                for station in 1..=3 {
                    let frame = Packet::new(mac(station), mac(9)).payload(0x88b5, b"data").padded();
                    side.command("netdev-dummy/receive", &["p1", &frame.hex()]);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            side
        });
        // A delay of some milliseconds of the real clock is no fault.
        let begin = Instant::now();
        loop {
            let (expected, found) = (
                oracle.statistics("OpenFlow13", &all),
                mine.statistics("OpenFlow13", &all),
            );
            if expected == found {
                left.push(expected.len());
                break;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(3),
                "step {step}: there {expected:#?}, here {found:#?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert_eq!((left.first(), left.last()), (Some(&6), Some(&1)), "{left:?}");
}
