//! Slow protocols' frames, links that go up and down, and pauses, in any order, through LACP and a
//! bond that follows it.

use nanos::Nanos;
use protocols::bond::{self, Bond, LacpStatus, Mode, Outputs};
use protocols::lacp::wire::SlowFrame;
use protocols::lacp::{Config, Lacp, MemberConfig, timers};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::MacAddr;

/// Members of the aggregation.
const MEMBERS: u32 = 3;

/// Each step has a byte that says what it is and for which member, a byte of length or time, and
/// for a frame its bytes. Members also leave and come back, some with a key. What is sent is
/// well-formed, and not more than the standard allows; a bond without enabled members has no active
/// one.
pub fn aggregation(data: &[u8]) {
    let mut now = Nanos::from_secs(5);
    let start = now;
    let mut config = config();
    let mut lacp = Lacp::new(&config, now);
    let mut bond = Bond::new(&of(&lacp, &config), LacpStatus::Configured, now);
    let (mut sent, mut rest) = (0, data);
    // A member that comes back counts again: its limit of LACPDUs begins anew.
    let mut members = MEMBERS;
    while let [what, value, behind @ ..] = rest {
        rest = behind;
        let member = u32::from(what >> 4) % (MEMBERS + 1);
        match what % 4 {
            0 | 1 => {
                let (frame, others) = rest.split_at(usize::from(*value).min(rest.len()));
                rest = others;
                lacp.receive(member, frame, now);
            }
            2 => {
                now += Duration::from_millis(u64::from(*value) * 20);
                lacp.tick(now);
                bond.tick(now);
            }
            _ => {
                if value & 8 != 0 {
                    // It leaves, or comes back, maybe with a key.
                    if config.members.remove(&member).is_none() && member < MEMBERS {
                        config.members.insert(member, of_member(member, u16::from(value >> 4)));
                        members += 1;
                    }
                } else if let Some(member) = config.members.get_mut(&member) {
                    member.up = !member.up;
                }
                config.fallback = value & 1 != 0;
                config.fast = value & 2 != 0;
                config.active = value & 4 != 0;
                lacp.configure(&config, now);
                assert_eq!(lacp.key().is_some(), !config.members.is_empty());
            }
        }
        while let Some((member, frame)) = lacp.take_frame() {
            assert!(member < MEMBERS && SlowFrame::parse(&frame).is_ok());
            sent += 1;
        }
        let status = match lacp.is_negotiated() {
            true => LacpStatus::Negotiated,
            false => LacpStatus::Configured,
        };
        bond.configure(&of(&lacp, &config), status, now);
        while bond.take_event().is_some() {}
        let enabled = (0..MEMBERS).filter(|n| bond.is_enabled(&n.to_string())).count();
        assert_eq!(enabled > 0, bond.active().is_some());
        assert!(bond.outputs() != Outputs::Tcp || bond.buckets().all(|member| member.is_some() == (enabled > 0)));
    }
    // LACPDUs and marker responses, at most so many each in every interval and a part of one.
    let intervals = now.since(start).as_millis() / timers::FAST.as_millis() + 2;
    assert!(sent <= intervals * u128::from(members) * 2 * timers::BURST as u128);
}

fn of_member(number: u32, key: u16) -> MemberConfig {
    MemberConfig {
        port: number as u16 + 1,
        priority: 65535,
        key,
        up: true,
        mac: MacAddr([2, 0, 0, 0, 1, number as u8]),
    }
}

fn config() -> Config {
    Config {
        active: true,
        fast: true,
        fallback: false,
        system_priority: 65534,
        system: MacAddr([2, 0, 0, 0, 0, 1]),
        taken: BTreeSet::from([1]),
        members: (0..MEMBERS).map(|number| (number, of_member(number, 0))).collect(),
    }
}

/// The bond of an aggregation.
fn of(lacp: &Lacp, config: &Config) -> bond::Config {
    let members = config.members.iter().map(|(number, member)| {
        let config = bond::MemberConfig {
            mac: member.mac,
            up: member.up,
            may_enable: lacp.may_enable(*number),
        };
        (number.to_string(), config)
    });
    bond::Config {
        mode: Mode::Tcp,
        fallback: config.fallback,
        rebalance: Some(Duration::from_secs(10)),
        members: members.collect::<BTreeMap<_, _>>(),
        ..bond::Config::default()
    }
}
