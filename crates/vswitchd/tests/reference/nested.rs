//! Copies within copies: clones, groups, patch ports and lookups that put tags, labels and backbone
//! headers on and take them off, beside programs that are done on the bytes of each copy.

mod bytes;
mod program;

use super::{Fast, runner, same};
use dp::{DropCause, PortNo};
use parking_lot::Mutex;
use program::{BRIDGES, Bridge, DEVICES, PATCH_IN, PATCH_OUT};
use proptest::test_runner::{TestCaseError, TestError};
use std::collections::BTreeMap;
use switch::{Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, PortConfig, Punts, SwitchConfig};

/// Three bridges in a row. A patch joins each to the next.
fn config() -> SwitchConfig {
    let mut config = SwitchConfig {
        vlan_limit: 2,
        ..SwitchConfig::default()
    };
    let mut device = 0;
    for (at, devices) in DEVICES.into_iter().enumerate() {
        let mut bridge = BridgeConfig {
            fail_mode: FailMode::Secure,
            ..BridgeConfig::default()
        };
        let mut add = |number: u32, attach: Attach| {
            let name = format!("{at}-{number}");
            let interface = InterfaceConfig {
                name: name.clone(),
                ofport: number as u16,
                attach,
                link: LinkState::UP,
                punts: Punts::default(),
            };
            let port = PortConfig {
                interfaces: vec![interface],
                ..PortConfig::default()
            };
            bridge.ports.insert(name, port);
        };
        for number in 1..=devices {
            device += 1;
            add(number, Attach::Device(PortNo(device)));
        }
        if at > 0 {
            let peer = format!("{}-{PATCH_OUT}", at - 1);
            add(PATCH_IN, Attach::Patch { peer });
        }
        if at + 1 < BRIDGES {
            let peer = format!("{}-{PATCH_IN}", at + 1);
            add(PATCH_OUT, Attach::Patch { peer });
        }
        config.bridges.insert(format!("br{at}"), bridge);
    }
    config
}

/// How much of what is to be compared there was.
#[derive(Debug, Default)]
struct Met {
    packets: usize,
    sent: usize,
    /// Packets with more tags than a key shows.
    deep: usize,
    /// Packets that have lost a header.
    bared: usize,
    /// Packets that the switch gave up, or whose way is not defined, by reason.
    left_out: BTreeMap<&'static str, usize>,
}

fn compare(bridges: &[Bridge], packets: &[(u32, bytes::Packet)], met: &mut Met) -> Result<(), TestCaseError> {
    let ports: u32 = DEVICES.iter().sum();
    let mut fast = Fast::new(config(), ports, 100_000);
    fast.noted.shared.update(|switch, now| {
        let mut changes = Vec::new();
        for (at, bridge) in bridges.iter().enumerate() {
            let name = format!("br{at}");
            // A group comes before those that name it.
            for (number, group) in (1..).zip(&bridge.groups).collect::<Vec<_>>().into_iter().rev() {
                changes.extend(switch.group_mod(&name, &group.change(number), now).unwrap());
            }
            for (table, rules) in (0..).zip(&bridge.tables) {
                for (at, rule) in rules.iter().enumerate() {
                    changes.extend(switch.flow_mod(&name, &rule.change(table, at), now).unwrap());
                }
            }
        }
        changes
    });
    let given_up = |fast: &Fast| -> u64 {
        let causes = [DropCause::Loop, DropCause::Malformed, DropCause::Recirculation];
        let drops = fast.pipeline.drops();
        let drops = drops.into_iter().filter(|(cause, _)| causes.contains(cause));
        drops.map(|(_, packets)| packets).sum()
    };
    for (port, packet) in packets {
        let plain = bytes::receive(bridges, *port, packet);
        if let Some(reason) = plain.odd {
            *met.left_out.entry(reason).or_default() += 1;
            continue;
        }
        let before = given_up(&fast);
        fast.receive(*port, &[packet.bytes()]);
        let mut sent = Vec::new();
        for port in 1..=ports {
            let taken = fast.devices[port as usize - 1].take_sent();
            sent.extend(taken.into_iter().map(|bytes| (port, testkit::to_hex(&bytes))));
        }
        if given_up(&fast) > before {
            *met.left_out.entry("given up").or_default() += 1;
            continue;
        }
        let mut expected: Vec<_> = plain
            .sent
            .iter()
            .map(|(port, bytes)| (*port, testkit::to_hex(bytes)))
            .collect();
        expected.sort();
        sent.sort();
        same(&testkit::to_hex(&packet.bytes()), &expected, &sent)?;
        met.packets += 1;
        met.sent += sent.len();
        met.deep += usize::from(plain.deep);
        met.bared += usize::from(plain.bared);
    }
    Ok(())
}

#[test]
fn what_copies_do_to_a_packet_is_theirs_alone() {
    let met = Mutex::new(Met::default());
    let outcome = runner(150).run(&program::cases(), |(bridges, packets)| {
        compare(&bridges, &packets, &mut met.lock()).map_err(|error| {
            let rules: Vec<_> = (0..)
                .zip(&bridges)
                .map(|(at, bridge)| format!("br{at}:\n{bridge}"))
                .collect();
            TestCaseError::fail(format!("{error}\n{}", rules.concat()))
        })
    });
    match outcome {
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(error) => panic!("{error}"),
        Ok(()) => {}
    }
    let met = met.into_inner();
    println!("{met:?}");
    assert!(met.sent > met.packets, "little is sent: {met:?}");
    assert!(met.packets > met.left_out.values().sum(), "much is left out: {met:?}");
    assert!(met.deep > 0 && met.bared > 0, "no headers: {met:?}");
}
