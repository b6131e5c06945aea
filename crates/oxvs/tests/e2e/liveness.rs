//! BFD and CFM with Debian's Open vSwitch at the other end, and bonds that follow them.

use crate::fixture::Pair;
use testkit::{Vswitch, eventually, ping, skip};

/// Waits until `bfd_status` of an interface has a value.
pub(crate) fn wait_for(switch: &Vswitch, interface: &str, key: &str, value: &str) {
    switch.wait_for("interface", interface, &format!("bfd_status:{key}"), |now| {
        now.trim_matches('"') == value
    });
}

/// The state of port 1 as controllers see it.
fn port_state(switch: &Vswitch) -> String {
    let shown = switch.tool("ovs-ofctl", &["-O", "OpenFlow14", "dump-ports-desc", "br0", "1"]);
    let shown = shown.expect_ok().to_owned();
    let line = shown.lines().find(|line| line.contains("state:"));
    line.unwrap_or_default().trim().to_owned()
}

macro_rules! needs {
    ($($more:literal),*) => {
        skip!(unless root, "ip", "ping", "ovs-vsctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "setpriv" $(, $more)*);
    };
}

#[test]
fn bfd_to_open_vswitch_comes_up_tells_of_broken_paths_and_notices_silence() {
    needs!();
    let mut pair = Pair::new(&["m1"]);
    pair.both("add-port br0 m1 -- set interface m1 ofport_request=1 bfd:enable=true bfd:min_rx=100 bfd:min_tx=100");
    for switch in [&pair.ours, &pair.theirs] {
        wait_for(switch, "m1", "state", "up");
        wait_for(switch, "m1", "forwarding", "true");
        wait_for(switch, "m1", "remote_state", "up");
    }
    assert!(port_state(&pair.ours).contains("LIVE"));
    // Longer than any detection time: nothing flaps.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(pair.ours.get("interface", "m1", "bfd_status:flap_count"), "\"1\"");

    for (broken, other) in [(&pair.ours, &pair.theirs), (&pair.theirs, &pair.ours)] {
        broken.vsctl("set interface m1 bfd:cpath_down=true");
        wait_for(other, "m1", "forwarding", "false");
        wait_for(other, "m1", "remote_diagnostic", "Concatenated Path Down");
        wait_for(broken, "m1", "forwarding", "true");
        broken.vsctl("set interface m1 bfd:cpath_down=false");
        wait_for(other, "m1", "forwarding", "true");
    }

    // New intervals are agreed on, in both directions.
    pair.ours.vsctl("set interface m1 bfd:min_tx=300 bfd:min_rx=250");
    eventually("the intervals are agreed on", || {
        let shown = pair.theirs.appctl(&["bfd/show", "m1"]);
        (shown.contains("TX Interval: Approx 250ms") && shown.contains("RX Interval: Approx 300ms")).then_some(())
    });
    pair.theirs.vsctl("set interface m1 bfd:min_tx=400 bfd:mult=5");
    eventually("the intervals are agreed on", || {
        let shown = pair.ours.appctl(&["bfd/show", "m1"]);
        (shown.contains("RX Interval: Approx 400ms") && shown.contains("Remote Detect Multiplier: 5")).then_some(())
    });
    assert_eq!(pair.theirs.get("interface", "m1", "bfd_status:state"), "up");

    // Ended here: the other end hears of it, and says so.
    pair.ours.vsctl("set interface m1 bfd:enable=false");
    wait_for(&pair.theirs, "m1", "diagnostic", "Neighbor Signaled Session Down");
    assert_eq!(pair.ours.get("interface", "m1", "bfd_status"), "{}");
    pair.ours.vsctl("set interface m1 bfd:enable=true");
    wait_for(&pair.ours, "m1", "state", "up");

    // A peer that is gone.
    pair.theirs.kill();
    wait_for(&pair.ours, "m1", "diagnostic", "Control Detection Time Expired");
    wait_for(&pair.ours, "m1", "forwarding", "false");
    eventually("controllers see it", || {
        (!port_state(&pair.ours).contains("LIVE")).then_some(())
    });
    assert_eq!(pair.ours.get("interface", "m1", "link_state"), "up");
}

#[test]
fn a_bond_leaves_a_member_whose_other_end_is_silent() {
    needs!();
    let pair = Pair::new(&["m1", "m2"]);
    let hosts = [
        Vswitch::host(&pair.near, "h1", "h1", "10.1.0.1/24"),
        Vswitch::host(&pair.far, "h2", "h2", "10.1.0.2/24"),
    ];
    pair.both(
        "add-bond br0 bond0 m1 m2 bond_mode=active-backup other_config:bond-primary=m1 \
         -- set interface m1 bfd:enable=true bfd:min_rx=100 -- set interface m2 bfd:enable=true bfd:min_rx=100",
    );
    pair.ours.vsctl("add-port br0 h1");
    pair.theirs.vsctl("add-port br0 h2");
    let active = |member: &str| {
        eventually(&format!("{member} is active"), || {
            let shown = pair.ours.appctl(&["bond/show", "bond0"]);
            shown
                .contains(&format!("member {member}: enabled\n  active member\n"))
                .then_some(())
        });
        eventually("pings", || (ping(&hosts[0], "10.1.0.2", 3).received == 3).then_some(()));
    };
    active("m1");
    // The links stay up; the far end does not answer on one, and uses the other itself.
    let primary = |member: &str| format!("set port bond0 other_config:bond-primary={member}");
    pair.theirs
        .vsctl(&format!("set interface m1 bfd:enable=false -- {}", primary("m2")));
    active("m2");
    pair.theirs
        .vsctl(&format!("set interface m1 bfd:enable=true -- {}", primary("m1")));
    active("m1");
}

#[test]
fn cfm_to_open_vswitch_comes_up_and_tells_both_ends_of_faults() {
    needs!();
    for extended in [false, true] {
        let mut pair = Pair::new(&["m1"]);
        let settings = |point: u32| {
            format!(
                "add-port br0 m1 -- set interface m1 ofport_request=1 cfm_mpid={point} \
                 other_config:cfm_interval=100 other_config:cfm_extended={extended}"
            )
        };
        pair.ours.vsctl(&settings(1));
        pair.theirs.vsctl(&settings(2));
        for (switch, other) in [(&pair.ours, "[2]"), (&pair.theirs, "[1]")] {
            switch.wait_for("interface", "m1", "cfm_fault", |fault| fault == "false");
            switch.wait_for("interface", "m1", "cfm_remote_mpids", |points| points == other);
            switch.wait_for("interface", "m1", "cfm_health", |health| health == "100");
        }
        eventually("the port is live", || {
            port_state(&pair.ours).contains("LIVE").then_some(())
        });
        if extended {
            for (down, other) in [(&pair.ours, &pair.theirs), (&pair.theirs, &pair.ours)] {
                down.vsctl("set interface m1 other_config:cfm_opstate=down");
                other.wait_for("interface", "m1", "cfm_remote_opstate", |state| state == "down");
                down.vsctl("set interface m1 other_config:cfm_opstate=up");
                other.wait_for("interface", "m1", "cfm_remote_opstate", |state| state == "up");
            }
        }
        // One end alone: it hears nobody.
        pair.ours.vsctl("clear interface m1 cfm_mpid");
        pair.theirs
            .wait_for("interface", "m1", "cfm_fault_status", |faults| faults.contains("recv"));
        assert_eq!(pair.ours.get("interface", "m1", "cfm_fault"), "[]");
        pair.ours.vsctl("set interface m1 cfm_mpid=1");
        pair.theirs
            .wait_for("interface", "m1", "cfm_fault", |fault| fault == "false");
        pair.theirs.kill();
        pair.ours
            .wait_for("interface", "m1", "cfm_fault_status", |faults| faults.contains("recv"));
        eventually("controllers see it", || {
            (!port_state(&pair.ours).contains("LIVE")).then_some(())
        });
    }
}

#[test]
fn a_fast_failover_group_leaves_a_port_whose_other_end_is_silent() {
    needs!();
    let cases = [
        (
            "bfd:enable=true bfd:min_rx=100",
            "bfd:enable=true bfd:min_rx=100",
            "set interface m1 bfd:enable=false",
        ),
        (
            "cfm_mpid=1 other_config:cfm_interval=100",
            "cfm_mpid=2 other_config:cfm_interval=100",
            "clear interface m1 cfm_mpid",
        ),
    ];
    for (ours, theirs, silence) in cases {
        let pair = Pair::new(&["m1", "m2"]);
        let hosts = [
            Vswitch::host(&pair.near, "host", "host", "10.1.0.1/24"),
            Vswitch::host(&pair.far, "host", "host", "10.1.0.2/24"),
        ];
        for (switch, settings) in [(&pair.ours, ours), (&pair.theirs, theirs)] {
            switch.vsctl(&format!(
                "add-port br0 m1 -- set interface m1 ofport_request=1 {settings} \
                 -- add-port br0 m2 -- set interface m2 ofport_request=2 {settings} \
                 -- add-port br0 host -- set interface host ofport_request=3"
            ));
            let ofctl = |words: &[&str]| drop(switch.tool("ovs-ofctl", words).expect_ok().to_owned());
            let group = "group_id=1,type=ff,bucket=watch_port:1,actions=output:1,bucket=watch_port:2,actions=output:2";
            ofctl(&["-O", "OpenFlow13", "add-group", "br0", group]);
            ofctl(&["-O", "OpenFlow13", "del-flows", "br0"]);
            ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=3,actions=group:1"]);
            for link in ["in_port=1,actions=output:3", "in_port=2,actions=output:3"] {
                ofctl(&["-O", "OpenFlow13", "add-flow", "br0", link]);
            }
        }
        // The bucket that the next packet takes, and then real ones.
        let takes = |link: u32| {
            eventually(&format!("the group uses m{link}"), || {
                let flow = "in_port=3,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02";
                let trace = pair.ours.appctl(&["ofproto/trace", "br0", flow]);
                trace.contains(&format!("-> using bucket {}", link - 1)).then_some(())
            });
            eventually("pings", || (ping(&hosts[0], "10.1.0.2", 3).received == 3).then_some(()));
        };
        takes(1);
        pair.theirs.vsctl(silence);
        takes(2);
        eventually("the port is not live", || {
            (!port_state(&pair.ours).contains("LIVE")).then_some(())
        });
        // The link itself is up all the time.
        assert_eq!(pair.ours.get("interface", "m1", "link_state"), "up");
        pair.theirs.vsctl(&format!("set interface m1 {theirs}"));
        takes(1);
    }
}
