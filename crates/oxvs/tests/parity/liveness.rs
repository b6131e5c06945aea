//! `bfd/*` and `cfm/*` beside Open vSwitch's, their columns, and what they make of ports.

use crate::noise::normalise;
use crate::run::binary;
use testkit::{Options, Vswitch, skip};

/// Two bridges with a patch between them in each switch; the clocks stand still.
fn both() -> [Vswitch; 2] {
    let both = [
        Vswitch::debian(Options::default()),
        Vswitch::oxvs(binary(), Options::default()),
    ];
    for switch in &both {
        switch.vsctl(
            "add-br br0 -- set bridge br0 datapath_type=dummy other_config:hwaddr=aa:55:aa:55:00:00 \
             -- add-br br1 -- set bridge br1 datapath_type=dummy other_config:hwaddr=aa:55:aa:55:00:01 \
             -- add-port br0 p0 -- set interface p0 type=patch options:peer=p1 ofport_request=1 \
             -- add-port br1 p1 -- set interface p1 type=patch options:peer=p0 ofport_request=1",
        );
        switch.appctl(&["time/stop"]);
    }
    both
}

fn configure(both: &[Vswitch; 2], settings: &str) {
    for switch in both {
        switch.vsctl(settings);
    }
}

fn warp(both: &[Vswitch; 2], millis: u32) {
    for switch in both {
        for _ in 0..millis / 50 {
            switch.appctl(&["time/warp", "50"]);
        }
    }
}

/// The answer without what depends on chance: discriminators, and times that jitter decides.
fn answer(switch: &Vswitch, command: &[&str]) -> String {
    let done = switch.try_appctl(command);
    let out: Vec<String> = done.stdout.lines().map(without_chance).collect();
    let error = normalise(&done.stderr, &switch.sandbox);
    format!("{:?}\n{}\n{error}", done.status, out.join("\n"))
}

fn without_chance(line: &str) -> String {
    match line.split_once(':') {
        Some((name, value)) if name.ends_with("Discriminator") => format!("{name}: set {}", value != " 0x0"),
        Some((name, value)) if name.ends_with("Time") => {
            assert!(value.starts_with(" now ") && value.ends_with("ms"), "{line}");
            name.to_owned()
        }
        // Messages between two settings count, too.
        Some((name @ "  average health", value)) => format!("{name}: known {}", value != " undefined"),
        Some((name @ ("  next CCM tx" | "  next fault check" | "  recv since check"), _)) => name.to_owned(),
        _ => line.to_owned(),
    }
}

#[track_caller]
fn agree(both: &[Vswitch; 2], command: &str) {
    let words: Vec<&str> = command.split_whitespace().collect();
    let [theirs, ours] = both.each_ref().map(|switch| answer(switch, &words));
    assert_eq!(ours, theirs, "{command}");
}

/// Waits until both give the same answer: the last packets and statuses need not have come.
#[track_caller]
fn come_to_agree(both: &[Vswitch; 2], what: &str, answer: impl Fn(&Vswitch) -> String) {
    let mut last = [String::new(), String::new()];
    for _ in 0..60 {
        last = both.each_ref().map(&answer);
        if last[0] == last[1] {
            return;
        }
        warp(both, 50);
    }
    let [theirs, ours] = last;
    assert_eq!(ours, theirs, "{what}");
}

#[track_caller]
fn sessions_agree(both: &[Vswitch; 2]) {
    for port in ["p0", "p1"] {
        come_to_agree(both, port, |switch| answer(switch, &["bfd/show", port]));
        come_to_agree(both, port, |switch| switch.get("interface", port, "bfd_status"));
        come_to_agree(both, port, |switch| switch.get("interface", port, "link_state"));
    }
    for bridge in ["br0", "br1"] {
        come_to_agree(both, bridge, |switch| port_state(switch, bridge));
    }
}

/// The state of a bridge's port 1, as controllers see it.
fn port_state(switch: &Vswitch, bridge: &str) -> String {
    let shown = switch.tool("ovs-ofctl", &["-O", "OpenFlow14", "dump-ports-desc", bridge, "1"]);
    let shown = shown.expect_ok().to_owned();
    shown
        .lines()
        .filter(|line| line.trim_start().starts_with("state:"))
        .collect()
}

#[test]
fn bfd_shows_and_does_what_open_vswitchs_does() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server");
    let both = both();
    agree(&both, "bfd/show");
    agree(&both, "bfd/show p0");
    agree(&both, "bfd/set-forwarding true");
    configure(
        &both,
        "set interface p0 bfd:enable=true bfd:min_tx=300 bfd:min_rx=200 bfd:mult=7 \
         -- set interface p1 bfd:enable=TRUE bfd:bfd_local_dst_mac=aa:55:aa:55:00:07",
    );
    warp(&both, 4000);
    sessions_agree(&both);
    assert!(answer(&both[1], &["bfd/show", "p0"]).contains("Local Session State: up"));

    // The path behind one end is down; it comes back.
    configure(&both, "set interface p0 bfd:cpath_down=true");
    warp(&both, 1000);
    sessions_agree(&both);
    configure(&both, "set interface p0 bfd:cpath_down=false");
    warp(&both, 1000);
    sessions_agree(&both);

    // Values that are wrong or missing.
    configure(
        &both,
        "set interface p0 bfd:min_tx=x bfd:min_rx=0 bfd:mult=256 bfd:bfd_src_ip=x bfd:decay_min_rx=-1",
    );
    warp(&both, 3000);
    sessions_agree(&both);
    configure(&both, "set interface p0 bfd:min_rx=500 bfd:min_tx=-4 bfd:mult=0");
    warp(&both, 3000);
    sessions_agree(&both);

    for command in [
        "bfd/show nope",
        "bfd/set-forwarding nope true",
        "bfd/set-forwarding p0 maybe",
        "bfd/set-forwarding p0 FALSE",
        "bfd/show p0",
        "bfd/set-forwarding p0 true",
        "bfd/show p0",
        "bfd/set-forwarding false",
        "bfd/show p1",
        "bfd/set-forwarding normal",
        "bfd/show p1",
    ] {
        agree(&both, command);
    }
    sessions_agree(&both);

    // An idle interface.
    configure(&both, "set interface p0 bfd:decay_min_rx=3000");
    warp(&both, 9000);
    sessions_agree(&both);
    configure(&both, "remove interface p0 bfd decay_min_rx");
    warp(&both, 4000);
    sessions_agree(&both);
}

#[test]
fn bfd_takes_the_frames_that_open_vswitchs_takes() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server");
    let both = both();
    let settings = [
        "bfd:enable=false",
        "bfd:enable=true",
        "bfd:bfd_remote_dst_mac=00:00:00:00:00:09",
        "bfd:bfd_src_ip=10.0.0.9",
        "bfd:bfd_remote_dst_mac=00:00:00:00:00:00",
        "bfd:check_tnl_key=true",
    ];
    let frame = |mac: &str, ip: &str, port: u16| {
        format!(
            "in_port=1,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:{mac},dl_type=0x0800,\
             nw_proto=17,nw_src=10.0.0.1,nw_dst=10.0.0.{ip},nw_ttl=255,udp_src=49152,udp_dst={port}"
        )
    };
    let mut frames: Vec<String> = vec![
        "in_port=1,dl_dst=00:00:00:00:00:09,dl_type=0x86dd,nw_proto=17,udp_dst=3784".to_owned(),
        frame("09", "9", 3784) + ",dl_vlan=5",
        frame("09", "9", 3784) + ",nw_frag=later",
        frame("09", "9", 3784) + ",tun_id=1",
    ];
    for (mac, ip) in [("09", "9"), ("09", "8"), ("08", "9")] {
        for port in [3784, 3785] {
            frames.push(frame(mac, ip, port));
        }
    }
    // Whether it goes to BFD; the rest of a trace has tests of its own.
    let taken = |switch: &Vswitch, frame: &str| {
        let trace = switch.appctl(&["ofproto/trace", "br0", frame]);
        let line = trace.lines().find(|line| line.starts_with("Datapath actions:"));
        match trace.to_lowercase().contains("bfd") {
            true => "BFD".to_owned(),
            false => line.unwrap_or_default().to_owned(),
        }
    };
    let mut answers = std::collections::BTreeSet::new();
    for setting in settings {
        configure(&both, &format!("set interface p0 {setting}"));
        for frame in &frames {
            let [theirs, ours] = both.each_ref().map(|switch| taken(switch, frame));
            assert_eq!(ours, theirs, "{setting}: {frame}");
            answers.insert(ours);
        }
    }
    assert!(answers.len() > 1 && answers.contains("BFD"), "{answers:?}");
}

#[track_caller]
fn points_agree(both: &[Vswitch; 2]) {
    for port in ["p0", "p1"] {
        come_to_agree(both, port, |switch| answer(switch, &["cfm/show", port]));
        for column in ["fault", "fault_status", "remote_mpids", "remote_opstate"] {
            let column = format!("cfm_{column}");
            come_to_agree(both, &column, |switch| switch.get("interface", port, &column));
        }
    }
    for bridge in ["br0", "br1"] {
        come_to_agree(both, bridge, |switch| port_state(switch, bridge));
    }
}

#[test]
fn cfm_shows_and_does_what_open_vswitchs_does() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-ofctl", "ovs-vswitchd", "ovsdb-server");
    let both = both();
    agree(&both, "cfm/show");
    agree(&both, "cfm/show p0");
    agree(&both, "cfm/set-fault true");
    // Alone, then with the other end, until the health is known.
    configure(&both, "set interface p0 cfm_mpid=1 other_config:cfm_interval=150");
    agree(&both, "cfm/show p0");
    warp(&both, 800);
    points_agree(&both);
    assert!(answer(&both[1], &["cfm/show", "p0"]).contains("fault: recv"));
    configure(&both, "set interface p1 cfm_mpid=2 other_config:cfm_interval=150");
    warp(&both, 5200);
    points_agree(&both);
    for switch in &both {
        assert_eq!(switch.get("interface", "p0", "cfm_health"), "100");
        assert_eq!(switch.get("interface", "p0", "cfm_flap_count"), "2");
        assert_eq!(switch.get("interface", "p1", "cfm_flap_count"), "0");
    }

    // Wrong numbers and intervals.
    for settings in [
        "set interface p1 cfm_mpid=1",
        "set interface p1 cfm_mpid=8191 other_config:cfm_interval=1000",
        "set interface p1 cfm_mpid=8192",
        "set interface p1 other_config:cfm_extended=true other_config:cfm_interval=150",
        "set interface p0 other_config:cfm_extended=true other_config:cfm_opstate=down",
        "set interface p0 cfm_mpid=9223372036854775807 other_config:cfm_opstate=up",
        "set interface p0 other_config:cfm_demand=true other_config:cfm_ccm_vlan=7 other_config:cfm_ccm_pcp=3",
        "set interface p1 other_config:cfm_demand=true other_config:cfm_ccm_vlan=random",
        "set interface p0 other_config:cfm_interval=x -- set interface p1 other_config:cfm_interval=0",
        // Other intervals at the other end.
        "set interface p0 other_config:cfm_interval=150 -- set interface p1 other_config:cfm_interval=400",
        "set interface p1 other_config:cfm_interval=1000",
        "set interface p0 other_config:cfm_demand=false -- set interface p1 other_config:cfm_interval=250",
        "set interface p0 cfm_mpid=1 other_config:cfm_extended=false other_config:cfm_interval=1000 \
         -- set interface p1 cfm_mpid=2 other_config:cfm_extended=false other_config:cfm_interval=100",
    ] {
        configure(&both, settings);
        warp(&both, 2000);
        points_agree(&both);
    }
    for command in [
        "cfm/show nope",
        "cfm/set-fault nope true",
        "cfm/set-fault p0 maybe",
        "cfm/set-fault p0 TRUE",
        "cfm/show p0",
        "cfm/set-fault false",
        "cfm/show p1",
    ] {
        agree(&both, command);
    }
    points_agree(&both);
    agree(&both, "cfm/set-fault normal");
    configure(
        &both,
        "clear interface p1 cfm_mpid -- remove interface p0 other_config cfm_demand",
    );
    warp(&both, 7500);
    points_agree(&both);
    // BFD and CFM on one interface: either is enough.
    configure(
        &both,
        "set interface p0 bfd:enable=true -- set interface p1 bfd:enable=true",
    );
    warp(&both, 4000);
    points_agree(&both);
    sessions_agree(&both);
    assert!(port_state(&both[1], "br0").contains("LIVE"));
}
