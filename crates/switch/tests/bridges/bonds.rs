//! Bonds: what a bridge accepts on members, and by which member packets leave.

use crate::lab::Lab;
use dp::{Action, DropCause, bucket_of_bond};
use flow::{Field, PortNo};
use protocols::bond::{BUCKETS, LacpStatus, Mode, Outputs, hash_of_source};
use std::collections::BTreeSet;
use switch::{BondState, LinkState, PortConfig};
use testkit::Packet;
use wire::MacAddr;

fn out(ports: &str) -> Result<Vec<String>, DropCause> {
    Ok(ports.split_whitespace().map(str::to_owned).collect())
}

fn state(mode: Mode, lacp: LacpStatus) -> BondState {
    BondState {
        id: 4,
        mode,
        lacp,
        fallback: false,
        all_members_active: false,
        basis: 0,
        outputs: match (mode, lacp) {
            (Mode::ActiveBackup, _) => Outputs::Active,
            (Mode::Slb, _) => Outputs::Slb,
            (Mode::Tcp, LacpStatus::Negotiated) => Outputs::Tcp,
            (Mode::Tcp, _) => Outputs::Nothing,
        },
        active: Some(2),
        enabled: BTreeSet::from([2, 3]),
        buckets: (0..BUCKETS as u32).map(|n| Some(2 + n % 2)).collect(),
    }
}

/// A bridge of a port `a`, a bond `b` of `b` (2) and `c` (3), and a port `d`.
fn lab(bond: BondState) -> Lab {
    let mut lab = Lab::with_ports(&["a"]);
    for name in ["b", "c", "d"] {
        lab.port("br0", name, PortConfig::default());
    }
    let second = lab.bridge("br0").ports.remove("c").unwrap().interfaces;
    lab.port_mut("b").interfaces.extend(second);
    lab.configure();
    lab.changes = lab.switch.set_bonds("br0", vec![("b".to_owned(), Some(bond))]);
    assert!(!lab.changes.is_empty());
    lab
}

const OFF: LacpStatus = LacpStatus::Off;

#[test]
fn an_active_backup_bond_uses_its_active_member_only() {
    let mut lab = lab(state(Mode::ActiveBackup, OFF));
    assert_eq!(lab.send("a", 1, 9), out("b d"));
    assert_eq!(lab.send("c", 2, 1), Err(DropCause::Loop));
    assert_eq!(lab.send("b", 2, 1), out("a"));
    let other = BondState {
        active: Some(3),
        ..state(Mode::ActiveBackup, OFF)
    };
    lab.changes = lab.switch.set_bonds("br0", vec![("b".to_owned(), Some(other))]);
    // The station is on the bond, so nothing is learned again.
    assert_eq!(lab.send("a", 1, 2), out("c"));
}

#[test]
fn a_balance_slb_bond_sends_by_source_and_drops_what_comes_back() {
    let mut lab = lab(state(Mode::Slb, OFF));
    let by = |station: u32| match hash_of_source(MacAddr(testkit::mac(station)), 0, 0) % 2 {
        0 => "b",
        _ => "c",
    };
    let mut used = BTreeSet::new();
    for station in 20..40 {
        used.insert(by(station));
        assert_eq!(lab.send("a", station, 9), out(&format!("{} d", by(station))));
    }
    assert_eq!(used.len(), 2);
    // The bridge's own flooded packet comes back on the active member.
    assert_eq!(lab.send("b", 20, 9), Err(DropCause::Loop));
    assert_eq!(lab.send("c", 60, 20), out("a"));
}

#[test]
fn multicast_is_accepted_on_the_active_member_or_on_all_if_asked() {
    let broadcast = |source| Packet::new(testkit::mac(source), [255; 6]).payload(0x88b5, b"");
    let mut bond = state(Mode::Slb, OFF);
    for all in [false, true] {
        bond.all_members_active = all;
        let lab = lab(bond.clone());
        let outputs = |port| lab.translate(port, broadcast(60)).actions.len();
        assert_eq!((outputs("b"), outputs("c")), (2, if all { 2 } else { 0 }));
    }
}

#[test]
fn a_station_that_moves_to_another_port_may_say_so_by_gratuitous_arp() {
    let mut lab = lab(state(Mode::Slb, OFF));
    assert!(lab.send("b", 20, 9).is_ok());
    lab.send("a", 20, 9).unwrap();
    assert_eq!(lab.send("b", 20, 1), Err(DropCause::Loop));
    let address = [10, 0, 0, 1];
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
    arp.extend(testkit::mac(20));
    arp.extend(address);
    arp.extend([0; 6]);
    arp.extend(address);
    let packet = Packet::new(testkit::mac(20), [255; 6]).payload(0x0806, &arp);
    assert_eq!(lab.translate("b", packet).actions.len(), 2);
}

#[test]
fn a_balance_tcp_bond_needs_lacp_and_sends_each_flow_by_one_member() {
    let without = lab(state(Mode::Tcp, OFF));
    let packet = |port: u16| {
        Packet::new(testkit::mac(1), testkit::mac(9))
            .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
            .udp(port, 53, b"x")
    };
    let to = |lab: &Lab, port: u16| lab.translate("a", packet(port)).actions.len();
    assert_eq!(to(&without, 1), 1);
    let mut lab = lab(state(Mode::Tcp, LacpStatus::Negotiated));
    // The datapath selects the member.
    let translated = lab.translate("a", packet(1));
    assert!(translated.actions.contains(&Action::OutputBond(4)));
    assert_eq!(translated.mask.get(Field::TpSrc), 0);
    // The switch does so for exports, and selects the same.
    lab.bridge("br0").export.netflow = true;
    lab.configure();
    let bucket = |port: u16| {
        let packet = packet(port).bytes();
        bucket_of_bond(&flow::extract(&packet, &PortNo(1).into()).unwrap(), 0)
    };
    let mut members = BTreeSet::new();
    for port in 0..64 {
        let translated = lab.translate("a", packet(port));
        assert_eq!(translated.mask.get(Field::TpSrc), 0xffff);
        let bond: Vec<PortNo> = translated
            .actions
            .iter()
            .filter_map(|action| match action {
                Action::Output(port) if *port == PortNo(2) || *port == PortNo(3) => Some(*port),
                _ => None,
            })
            .collect();
        assert_eq!(bond, [PortNo(2 + u32::from(bucket(port)) % 2)]);
        members.extend(bond);
    }
    assert_eq!(members.len(), 2);
}

#[test]
fn a_negotiated_bond_accepts_on_every_enabled_member() {
    let mut bond = state(Mode::Tcp, LacpStatus::Negotiated);
    bond.enabled = BTreeSet::from([3]);
    let mut lab = lab(bond);
    assert_eq!(lab.send("c", 2, 9), out("a d"));
    assert_eq!(lab.send("b", 2, 9), Err(DropCause::Loop));
}

#[test]
fn a_bond_stays_as_it_is_when_the_configuration_is_applied_again() {
    let mut lab = lab(state(Mode::ActiveBackup, OFF));
    let bond = BondState {
        active: Some(3),
        ..state(Mode::ActiveBackup, OFF)
    };
    lab.changes = lab.switch.set_bonds("br0", vec![("b".to_owned(), Some(bond.clone()))]);
    lab.configure();
    assert_eq!(lab.changes, []);
    assert_eq!(lab.switch.set_bonds("br0", vec![("b".to_owned(), Some(bond))]), []);
    assert_eq!(
        lab.switch
            .set_links(
                "br0",
                &[(
                    2,
                    LinkState {
                        up: false,
                        ..LinkState::UP
                    }
                )]
            )
            .len(),
        2
    );
    assert_eq!(lab.send("a", 1, 9), out("c d"));
}

#[test]
fn a_change_of_buckets_alone_leaves_cached_flows_of_balance_tcp() {
    let mut lab = lab(state(Mode::Tcp, LacpStatus::Negotiated));
    let moved = BondState {
        buckets: vec![Some(3); BUCKETS],
        ..state(Mode::Tcp, LacpStatus::Negotiated)
    };
    let set = |lab: &mut Lab, bond| lab.switch.set_bonds("br0", vec![("b".to_owned(), Some(bond))]);
    assert!(set(&mut lab, moved.clone()).is_empty());
    let alone = BondState {
        enabled: BTreeSet::from([3]),
        ..moved
    };
    assert!(!set(&mut lab, alone).is_empty());
}
