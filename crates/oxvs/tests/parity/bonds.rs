//! `bond/*` and `lacp/*` beside Open vSwitch's, and the columns of bonds.

use crate::both::Both;
use testkit::{eventually, skip};

fn both(configuration: &str) -> Both {
    let both = Both::start(without_chance);
    both.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy other_config:hwaddr=aa:55:aa:55:00:00");
    both.vsctl(configuration);
    both
}

/// A line without the time to the next rebalancing and the addresses of dummies.
fn without_chance(line: &str) -> String {
    const MAC: &str = "active member mac: aa:55:aa:55:";
    match line.strip_prefix(MAC).and_then(|rest| rest.get(5..)) {
        Some(member) => format!("active member mac: {member}"),
        None if line.starts_with("next rebalance: ") => "next rebalance".to_owned(),
        None => line.to_owned(),
    }
}

#[test]
fn commands_of_bonds_answer_as_open_vswitchs() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server");
    let both = both(
        "add-bond br0 bond0 p1 p2 bond_mode=balance-slb bond_updelay=50 bond_downdelay=60 \
         other_config:bond-hash-basis=7 other_config:bond-primary=p1 -- set interface p1 type=dummy -- set interface p2 type=dummy \
         -- add-bond br0 bond1 q1 q2 bond_mode=active-backup other_config:bond-primary=q2 \
         -- set interface q1 type=dummy -- set interface q2 type=dummy",
    );
    both.appctl("bond/set-active-member bond0 p1");
    both.appctl("bond/set-active-member bond1 q2");
    for command in [
        "bond/show bond0",
        "bond/show bond1",
        "bond/show nope",
        "bond/hash 00:00:00:00:00:01",
        "bond/hash 00:00:00:00:00:01 5",
        "bond/hash 00:00:00:00:00:01 5 7",
        "bond/hash ff:ff:ff:ff:ff:ff 4095 4294967295",
        "bond/hash x",
        "bond/hash 00:00:00:00:00:01 x",
        "bond/hash 00:00:00:00:00:01 5 x",
        "bond/migrate bond0 1 p2",
        "bond/migrate bond0 256 p2",
        "bond/migrate bond0 x p2",
        "bond/migrate bond0 3 nope",
        "bond/migrate bond1 3 q1",
        "bond/migrate bond1 x q1",
        "bond/migrate nope 3 q1",
        "bond/set-active-member bond0 p1",
        "bond/set-active-member bond0 nope",
        "bond/set-active-member nope p1",
        "bond/set-active-slave bond0 p2",
        "bond/show bond0",
        "bond/enable-member bond0 p1",
        "bond/enable-member bond0 nope",
        "bond/enable-slave nope p1",
        "bond/disable-member bond0 nope",
        "lacp/show bond0",
        "lacp/show-stats bond0",
        "lacp/show",
        "lacp/show-stats",
    ] {
        both.agree(command);
    }
    both.appctl("netdev-dummy/set-admin-state q2 down");
    both.come_to_agree("bond/show bond1");
    both.appctl("netdev-dummy/set-admin-state q2 up");
    both.come_to_agree("bond/show bond1");
}

#[test]
fn lacp_without_a_partner_shows_what_open_vswitch_shows() {
    skip!(unless "ovs-vsctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server");
    let both = both(
        "add-bond br0 bond0 p1 p2 bond_mode=balance-tcp lacp=active other_config:lacp-time=fast \
         other_config:lacp-system-id=aa:00:00:00:00:09 other_config:lacp-system-priority=77 \
         -- set interface p1 type=dummy ofport_request=1 other_config:lacp-port-id=11 \
         other_config:lacp-port-priority=12 other_config:lacp-aggregation-key=13 \
         -- set interface p2 type=dummy ofport_request=2 other_config:lacp-port-id=21 \
         other_config:lacp-aggregation-key=13",
    );
    both.come_to_agree("lacp/show bond0");
    for (table, row, column) in [
        ("interface", "p1", "lacp_current"),
        ("port", "br0", "bond_active_slave"),
    ] {
        eventually("the columns agree", || {
            let [theirs, ours] = both.switches.each_ref().map(|switch| switch.get(table, row, column));
            (theirs == ours).then_some(())
        });
    }
    // The partner does not come: the members give it up.
    for _ in 0..14 {
        both.appctl("time/stop");
        both.appctl("time/warp 500");
    }
    both.come_to_agree("lacp/show bond0");
}
