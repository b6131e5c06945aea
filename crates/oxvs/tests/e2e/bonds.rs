//! Bonds with Debian's Open vSwitch at the other end, and what they leave in the database.

use crate::fixture::{Pair, dummy, in_namespace, stand_in};
use testkit::{Netns, Packet, Vswitch, eventually, mac, ping, skip};

/// Our switch and Open vSwitch with bonds of two links between them, and a host behind each.
struct Bonds {
    ends: Pair,
    /// The hosts, ours first.
    hosts: [Netns; 2],
}

impl Bonds {
    fn new(ours: &str, theirs: &str) -> Bonds {
        let ends = Pair::new(&["m1", "m2"]);
        let hosts = [
            Vswitch::host(&ends.near, "h1", "h1", "10.1.0.1/24"),
            Vswitch::host(&ends.far, "h2", "h2", "10.1.0.2/24"),
        ];
        for (switch, settings, host) in [(&ends.ours, ours, "h1"), (&ends.theirs, theirs, "h2")] {
            match settings {
                // The bond at the other end has to prevent loops.
                "" => switch.vsctl("add-port br0 m1 -- add-port br0 m2"),
                _ => switch.vsctl(&format!("add-bond br0 bond0 m1 m2 {settings}")),
            };
            switch.vsctl(&format!("add-port br0 {host}"));
        }
        Bonds { ends, hosts }
    }

    fn wait_for_pings(&self, why: &str) {
        eventually(why, || {
            (ping(&self.hosts[0], "10.1.0.2", 3).received == 3).then_some(())
        });
    }

    fn show(&self, what: &str) -> String {
        self.ends.ours.appctl(&[what, "bond0"])
    }

    /// Takes each link down in turn; the pings go on by the other one.
    fn fail_over(&self) {
        for link in ["m1", "m2"] {
            self.ends.far.ip(&format!("link set {link} down"));
            eventually("the member is disabled", || {
                self.show("bond/show")
                    .contains(&format!("member {link}: disabled"))
                    .then_some(())
            });
            self.wait_for_pings("pings by the other link");
            self.ends.far.ip(&format!("link set {link} up"));
            eventually("both members are enabled", || {
                (self.show("bond/show").matches(": enabled").count() == 2).then_some(())
            });
            self.wait_for_pings("pings by both links");
        }
    }
}

macro_rules! needs {
    () => {
        skip!(unless root, "ip", "ping", "ovs-vsctl", "ovs-vswitchd", "ovsdb-server", "setpriv");
    };
}

#[test]
fn an_active_backup_bond_to_open_vswitch_fails_over() {
    needs!();
    let bonds = Bonds::new(
        "bond_mode=active-backup",
        "bond_mode=active-backup other_config:bond-primary=m1",
    );
    // Without LACP the two ends do not know of each other: the bond uses the link that they do.
    bonds.ends.ours.vsctl("set port bond0 other_config:bond-primary=m1");
    bonds.wait_for_pings("pings by the primary");
    bonds.fail_over();
}

#[test]
fn a_bond_does_not_move_to_a_member_that_was_lost_at_the_same_time() {
    skip!(unless root, "ip", "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch believes the kernel's news, which come late");
    }
    let (near, far) = (Netns::new("near"), Netns::new("far"));
    let switch = in_namespace(&near);
    // The kernel takes a device with the number of its lower one for hardware, and tells of at most
    // one lost carrier of hardware in a second.
    for (name, own, lower) in [("m1", 101, 201), ("m2", 102, 102), ("m3", 103, 203)] {
        let peer = format!("peer name {name} index {lower} netns {}", far.name());
        near.ip(&format!("link add {name} index {own} type veth {peer}"));
        near.ip(&format!("link set {name} up"));
        far.ip(&format!("link set {name} up"));
    }
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-bond br0 bond0 m1 m2 m3 bond_mode=active-backup",
    );
    let members_enabled = |count: usize| {
        eventually("members are enabled", || {
            let shown = switch.appctl(&["bond/show", "bond0"]);
            (shown.matches(": enabled").count() == count).then_some(())
        });
    };
    members_enabled(3);
    switch.appctl(&["bond/set-active-member", "bond0", "m1"]);
    // From now on the next carrier of hardware is a second away.
    far.ip("link set m2 down");
    members_enabled(2);
    far.ip("link set m2 up");
    members_enabled(3);
    far.run(&[
        "sh",
        "-c",
        "printf 'link set m2 down\nlink set m1 down\n' | ip -batch -",
    ]);
    members_enabled(1);
    let log = std::fs::read_to_string(switch.sandbox.path("switch.log")).unwrap();
    assert!(
        log.contains("active member is now m3") && !log.contains("active member is now m2"),
        "{log}"
    );
}

#[test]
fn a_bond_that_asks_its_members_phys_fails_over() {
    needs!();
    let settings = "other_config:bond-detect-mode=miimon other_config:bond-miimon-interval=20";
    let bonds = Bonds::new(
        &format!("bond_mode=active-backup {settings} other_config:bond-primary=m1"),
        "bond_mode=active-backup other_config:bond-primary=m1",
    );
    bonds.wait_for_pings("pings by the primary");
    bonds.fail_over();
    assert_eq!(bonds.ends.ours.get("port", "bond0", "status"), "{}");
    // The kernel's word counts again.
    bonds.ends.ours.vsctl("remove port bond0 other_config bond-detect-mode");
    bonds.fail_over();
    bonds
        .ends
        .ours
        .vsctl("set port bond0 other_config:bond-detect-mode=mii");
    if !stand_in() {
        bonds.ends.ours.wait_for("port", "bond0", "status", |s| {
            s.contains("unsupported bond-detect-mode mii")
        });
    }
}

#[test]
fn the_interface_with_the_name_of_a_bond_is_a_port_of_openflow_only() {
    skip!(unless root, "ip", "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch's userspace datapath has no such interface");
    }
    let ns = Netns::new("sw");
    let switch = in_namespace(&ns);
    for name in ["m1", "m2", "h1"] {
        ns.ip(&format!("link add {name} type veth peer name {name}-peer"));
        ns.ip(&format!("link set {name}-peer up"));
    }
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=netdev -- add-bond br0 bond0 m1 m2 bond_fake_iface=true \
         -- add-port br0 h1",
    );
    assert!(ns.ip("link show bond0").contains("bond0"));
    assert!(
        switch
            .tool("ovs-ofctl", &["show", "br0"])
            .expect_ok()
            .contains("(bond0)")
    );
    ns.ip("link set bond0 up");
    // What the host sends there goes nowhere; a rule can use the port.
    let trace = |flow: &str| switch.appctl(&["ofproto/trace", "br0", flow]);
    assert!(trace("in_port=bond0,dl_dst=ff:ff:ff:ff:ff:ff").contains("no input bundle, dropping"));
    let flooded = trace("in_port=h1,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff");
    assert!(flooded.contains("flooding"), "{flooded}");
    switch.vsctl("set port bond0 bond_fake_iface=false");
    eventually("the interface is gone", || {
        (!ns.ip("link show").contains("bond0")).then_some(())
    });
    switch.vsctl("set port bond0 bond_fake_iface=true -- set port h1 bond_fake_iface=true");
    assert!(ns.ip("link show bond0").contains("bond0"));
}

#[test]
fn a_balance_slb_bond_to_open_vswitch_without_one_fails_over() {
    needs!();
    let bonds = Bonds::new("bond_mode=balance-slb", "");
    bonds.wait_for_pings("pings");
    bonds.fail_over();
}

#[test]
fn a_balance_tcp_bond_negotiates_lacp_with_open_vswitch_and_fails_over() {
    needs!();
    let settings = "bond_mode=balance-tcp lacp=active other_config:lacp-time=fast";
    let bonds = Bonds::new(settings, settings);
    bonds.wait_for_pings("pings");
    let shown = bonds.show("lacp/show");
    assert!(shown.contains("status: active negotiated"), "{shown}");
    eventually("both members are current", || {
        (bonds.show("lacp/show").matches(": current attached").count() == 2).then_some(())
    });
    for switch in [&bonds.ends.ours, &bonds.ends.theirs] {
        assert_eq!(switch.get("interface", "m1", "lacp_current"), "true");
    }
    // Each names the other as its partner.
    let system = |switch: &Vswitch, end: &str| {
        let shown = switch.appctl(&["lacp/show", "bond0"]);
        let line = shown.lines().find(|line| line.contains(&format!("{end} sys_id")));
        line.and_then(|line| line.split_whitespace().last().map(str::to_owned))
    };
    assert_eq!(system(&bonds.ends.ours, "actor"), system(&bonds.ends.theirs, "partner"));
    assert_eq!(system(&bonds.ends.ours, "partner"), system(&bonds.ends.theirs, "actor"));
    bonds.fail_over();
    // A partner that falls silent is noticed though the links stay up.
    bonds.ends.theirs.vsctl("set port bond0 lacp=off");
    eventually("the partner is gone", || {
        bonds
            .show("bond/show")
            .contains("lacp_status: configured")
            .then_some(())
    });
}

#[test]
fn a_bond_with_the_fallback_carries_traffic_before_the_partner_speaks_lacp() {
    needs!();
    let settings = "bond_mode=balance-tcp lacp=active other_config:lacp-time=fast";
    let bonds = Bonds::new(
        &format!("{settings} other_config:bond-primary=m1"),
        "bond_mode=active-backup other_config:bond-primary=m1",
    );
    let active = |bonds: &Bonds| {
        bonds
            .show("bond/show")
            .contains("member m1: enabled\n  active member\n")
    };
    // Without the fallback nothing passes.
    assert!(!active(&bonds) && ping(&bonds.hosts[0], "10.1.0.2", 1).received == 0);
    bonds
        .ends
        .ours
        .vsctl("set port bond0 other_config:lacp-fallback-ab=true");
    bonds.wait_for_pings("pings by the active member");
    assert!(active(&bonds) && bonds.show("lacp/show").contains("status: active\n"));
    bonds.fail_over();
    bonds.ends.theirs.vsctl(&format!("set port bond0 {settings}"));
    eventually("LACP is negotiated", || {
        bonds
            .show("lacp/show")
            .contains("status: active negotiated")
            .then_some(())
    });
    bonds.wait_for_pings("pings by LACP's choice");
}

#[test]
fn balance_tcp_spreads_flows_of_one_megaflow_and_moves_them_at_once() {
    needs!();
    const FLOWS: u64 = 64;
    let settings = "bond_mode=balance-tcp lacp=active other_config:lacp-time=fast";
    let bonds = Bonds::new(settings, settings);
    bonds.wait_for_pings("pings");
    eventually("both members are enabled", || {
        (bonds.show("bond/show").matches(": enabled").count() == 2).then_some(())
    });
    let sockets: Vec<_> = bonds.hosts[0].enter(|| {
        let bind = |_| std::net::UdpSocket::bind("10.1.0.1:0").unwrap();
        (0..FLOWS).map(bind).collect()
    });
    let sent_by = |link: &str| {
        let statistics = bonds.ends.ours.get("interface", link, "statistics:tx_packets");
        statistics.parse::<u64>().unwrap()
    };
    // Some packets of each flow: the kernel forwards the later ones.
    let send = || {
        for _ in 0..10 {
            sockets
                .iter()
                .for_each(|socket| drop(socket.send_to(b"x", "10.1.0.2:9")));
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    send();
    eventually("both members carry flows", || {
        [sent_by("m1"), sent_by("m2")]
            .iter()
            .all(|sent| *sent > 10 * FLOWS / 4)
            .then_some(())
    });
    if !stand_in() {
        // One megaflow has all flows.
        let dumped = bonds.ends.ours.appctl(&["dpctl/dump-flows", "-m"]);
        let carries = |line: &&str| line.contains("lb_output(") && !line.contains("packets:0,");
        let all = dumped.lines().filter(carries).count();
        assert!((1..10).contains(&all), "{dumped}");
    }
    bonds.ends.far.ip("link set m1 down");
    eventually("m1 is disabled", || {
        bonds.show("bond/show").contains("member m1: disabled").then_some(())
    });
    let before = sent_by("m1");
    send();
    eventually("m2 carries all flows", || (sent_by("m2") >= 10 * FLOWS).then_some(()));
    // LACP goes on.
    assert!(sent_by("m1") < before + FLOWS);
}

#[test]
fn the_active_member_of_before_a_restart_is_active_again() {
    skip!(unless "ovs-vsctl", "setpriv");
    if stand_in() {
        skip!("Open vSwitch chooses by chance");
    }
    let mut switch = dummy();
    // In one transaction: devices have the same addresses after the restart.
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy -- add-bond br0 bond0 b1 b2 \
         -- set interface b1 type=dummy -- set interface b2 type=dummy",
    );
    let before = switch.get("port", "bond0", "bond_active_slave");
    assert_eq!(switch.appctl(&["bond/set-active-member", "bond0", "b2"]).trim(), "done");
    switch.wait_for("port", "bond0", "bond_active_slave", |mac| mac != before);
    switch.kill();
    switch.boot();
    eventually("b2 is active", || {
        // At first it has no bond yet.
        let shown = switch.try_appctl(&["bond/show", "bond0"]).stdout;
        shown.contains("member b2: enabled\n  active member\n").then_some(())
    });
}

#[test]
fn controllers_and_commands_address_a_bond_by_its_members() {
    skip!(unless "ovs-vsctl", "ovs-ofctl", "setpriv");
    let switch = dummy();
    switch.vsctl(
        "add-br br0 -- set bridge br0 datapath_type=dummy -- add-bond br0 bond0 b1 b2 lacp=passive \
         bond_mode=balance-tcp -- set interface b1 type=dummy ofport_request=1 \
         -- set interface b2 type=dummy ofport_request=2",
    );
    // An LACPDU of a link that is aggregated and in use.
    let information = |kind: u8, system: [u8; 6], state: u8| {
        let mut octets = vec![kind, 20, 0x80, 0];
        octets.extend(system);
        octets.extend([0, 1, 0x80, 0, 0, 1, state, 0, 0, 0]);
        octets
    };
    let mut pdu = vec![1, 1];
    pdu.extend(information(1, mac(1), 0x3d));
    pdu.extend(information(2, [0; 6], 0));
    pdu.resize(110, 0);
    let frame = Packet::new(mac(1), [0x01, 0x80, 0xc2, 0, 0, 2]).payload(0x8809, &pdu);
    let sent = format!("in_port=1 packet={} actions=drop", frame.hex());
    switch.tool("ovs-ofctl", &["packet-out", "br0", &sent]).expect_ok();
    switch.wait_for("interface", "b1", "lacp_current", |current| current == "true");
    assert_eq!(switch.get("interface", "b2", "lacp_current"), "false");

    // A station behind the bond, added by the name of a member.
    switch.appctl(&["fdb/add", "br0", "b2", "0", "00:00:00:00:00:07"]);
    let shown = switch.appctl(&["fdb/show", "br0"]);
    let line = shown.lines().find(|line| line.contains("00:00:00:00:00:07"));
    assert!(line.is_some_and(|line| line.ends_with("static")), "{shown}");
}
