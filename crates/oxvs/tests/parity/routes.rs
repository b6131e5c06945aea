//! `ovs/route/*` beside Open vSwitch's with the kernel's routes.

use crate::noise::normalise;
use crate::run::binary;
use testkit::{Devices, Netns, Options, Vswitch, eventually, skip};

/// What both switches answer to a command in a namespace, with sorted lines.
fn answers(both: &[Vswitch; 2], command: &[&str]) -> [String; 2] {
    both.each_ref().map(|switch| {
        let done = switch.try_appctl(command);
        let mut lines: Vec<&str> = done.stdout.lines().collect();
        lines.sort_unstable();
        let stderr = normalise(&done.stderr, &switch.sandbox);
        format!("{:?}\n{}\n{stderr}", done.status, lines.join("\n"))
    })
}

#[track_caller]
fn agree(both: &[Vswitch; 2], command: &[&str]) -> String {
    let mut seen = String::new();
    eventually(&format!("the answers to {command:?} agree"), || {
        let [theirs, ours] = answers(both, command);
        seen.clone_from(&ours);
        (theirs == ours).then_some(())
    });
    seen
}

fn both_in(ns: &Netns, args: &[&str]) -> [Vswitch; 2] {
    let options = Options {
        devices: Devices::System,
        netns: Some(ns.name().to_owned()),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        ..Options::default()
    };
    [Vswitch::debian(options.clone()), Vswitch::oxvs(binary(), options)]
}

#[test]
fn the_kernels_routes_are_shown_and_followed() {
    skip!(unless root, "ip", "ovs-vswitchd", "ovsdb-server", "ovs-appctl");
    let (ns, other) = (Netns::new("routes"), Netns::new("routes-far"));
    ns.ip("link set lo up");
    ns.veth("v0", &other, "v1");
    ns.run(&["sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/v0/disable_ipv6"]);
    ns.ip("addr add 10.1.2.3/24 dev v0");
    ns.ip("addr add fd00::5/64 dev v0 nodad");
    for route in [
        "default via 10.1.2.1",
        "10.9.0.0/16 via 10.1.2.7 src 10.1.2.3",
        "10.12.0.0/16 dev v0",
        "blackhole 10.200.0.0/16",
        "fd99::/32 via fd00::9",
    ] {
        ns.ip(&format!("route add {route}"));
    }
    let both = both_in(&ns, &[]);
    let show = ["ovs/route/show"];
    let shown = agree(&both, &show);
    for line in [
        "Cached: 10.1.2.3/32 dev v0 SRC 10.1.2.3 local",
        "Cached: 10.9.0.0/16 dev v0 GW 10.1.2.7 SRC 10.1.2.3",
        "Cached: 0.0.0.0/0 dev v0 GW 10.1.2.1 SRC 10.1.2.3",
        "Cached: fd99::/32 dev v0 GW fd00::9 SRC fd00::5",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    for (change, seen) in [
        ("route add 10.13.0.0/16 via 10.1.2.8", "10.13.0.0/16 dev v0"),
        ("route del 10.9.0.0/16", "0.0.0.0/0 dev v0"),
        ("addr add 10.5.0.1/16 dev v0", "10.5.0.1/32 dev v0"),
    ] {
        ns.ip(change);
        let shown = agree(&both, &show);
        assert!(shown.contains(seen), "{change}: {shown}");
    }
    for command in [
        "add 10.6.0.0/16 v0",
        "add 10.6.0.0/16 v0 10.1.2.9",
        "add 10.6.0.0/16 v0 10.1.2.9 pkt_mark=4",
        "add 10.6.0.0/16 nobody 10.1.2.9",
        "add 10.1.2.0/24 v0",
        "add 2001:db8::/32 v0 fd00::1",
        "lookup 10.6.1.1",
        "lookup 10.6.1.1 pkt_mark=4",
        "lookup 10.9.3.4",
        "lookup 10.200.3.4",
        "lookup 10.1.2.3",
        "lookup 127.0.0.1",
        "lookup fd99::1",
        "lookup 8.8.8.8 pkt_mark=9",
        "show",
        "del 10.1.2.0/24",
        "del 10.13.0.0/16",
    ] {
        let mut words: Vec<&str> = command.split(' ').collect();
        let name = format!("ovs/route/{}", words[0]);
        words[0] = &name;
        let [theirs, ours] = answers(&both, &words);
        assert_eq!(theirs, ours, "{command}");
    }
    agree(&both, &show);
    let without = both_in(&ns, &["--disable-system-route"]);
    assert_eq!(agree(&without, &show).trim(), "Some(0)\nRoute Table:");
}
