use super::*;
use core::time::Duration;
use nanos::Nanos;
use std::collections::BTreeMap;
use wire::MacAddr;

const MS: Duration = Duration::from_millis(1);

fn mac(n: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, n])
}

fn config(mode: Mode) -> Config {
    let member = |n: u8| MemberConfig {
        mac: mac(n),
        up: true,
        may_enable: true,
    };
    Config {
        mode,
        rebalance: Some(Duration::from_secs(10)),
        members: BTreeMap::from([("p1".to_owned(), member(1)), ("p2".to_owned(), member(2))]),
        ..Config::default()
    }
}

fn link(config: &mut Config, name: &str, up: bool) {
    if let Some(member) = config.members.get_mut(name) {
        member.up = up;
    }
}

fn log(bond: &mut Bond) -> Vec<String> {
    std::iter::from_fn(|| bond.take_event())
        .map(|event| event.text("bond0"))
        .collect()
}

#[test]
fn a_member_follows_its_link_after_the_delay_and_not_if_the_link_comes_back() {
    let mut wanted = Config {
        updelay: 200 * MS,
        downdelay: 100 * MS,
        ..config(Mode::ActiveBackup)
    };
    let at = Nanos::from_millis;
    let mut bond = Bond::new(&wanted, LacpStatus::Off, at(0));
    assert_eq!(bond.active(), Some("p1"));
    log(&mut bond);
    link(&mut wanted, "p1", false);
    bond.configure(&wanted, LacpStatus::Off, at(10));
    assert_eq!(
        log(&mut bond),
        [
            "member p1: link state down",
            "member p1: will be disabled if it stays down for 100 ms"
        ]
    );
    link(&mut wanted, "p1", true);
    bond.configure(&wanted, LacpStatus::Off, at(50));
    assert_eq!(
        log(&mut bond),
        ["member p1: link state up", "member p1: will not be disabled"]
    );
    link(&mut wanted, "p1", false);
    bond.configure(&wanted, LacpStatus::Off, at(60));
    assert_eq!((bond.next_event(), bond.active()), (Some(at(160)), Some("p1")));
    log(&mut bond);
    bond.tick(at(160));
    assert_eq!(
        log(&mut bond),
        ["member p1: disabled", "bond bond0: active member is now p2"]
    );
    assert!(bond.take_learning());
}

#[test]
fn the_first_link_to_come_up_is_used_at_once() {
    let mut wanted = Config {
        updelay: Duration::from_secs(5),
        ..config(Mode::ActiveBackup)
    };
    for name in ["p1", "p2"] {
        link(&mut wanted, name, false);
    }
    let mut bond = Bond::new(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert_eq!(bond.active(), None);
    log(&mut bond);
    link(&mut wanted, "p2", true);
    bond.configure(&wanted, LacpStatus::Off, Nanos::from_secs(1));
    let last = log(&mut bond).pop();
    assert_eq!(
        last.as_deref(),
        Some(
            "bond bond0: active member is now p2, skipping remaining 5000 ms updelay (since no other interface was up)"
        )
    );
    link(&mut wanted, "p1", true);
    bond.configure(&wanted, LacpStatus::Off, Nanos::from_secs(2));
    assert!(!bond.is_enabled("p1"));
}

#[test]
fn the_primary_takes_over_and_the_member_of_before_a_restart_stays() {
    let mut wanted = config(Mode::ActiveBackup);
    wanted.was_active = Some(mac(2));
    let mut bond = Bond::new(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert_eq!(bond.active(), Some("p2"));
    wanted.primary = Some("p1".to_owned());
    bond.configure(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert_eq!(bond.active(), Some("p1"));
    link(&mut wanted, "p1", false);
    bond.configure(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert_eq!(bond.active(), Some("p2"));
    link(&mut wanted, "p1", true);
    bond.configure(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert_eq!((bond.active(), bond.active_mac()), (Some("p1"), Some(mac(1))));
}

#[test]
fn outputs_follow_the_mode_and_lacp() {
    use LacpStatus::{Configured, Negotiated, Off};
    for (mode, lacp, fallback, expected) in [
        (Mode::ActiveBackup, Off, false, Outputs::Active),
        (Mode::Slb, Off, false, Outputs::Slb),
        (Mode::Slb, Negotiated, false, Outputs::Slb),
        (Mode::Tcp, Off, false, Outputs::Nothing),
        (Mode::Tcp, Negotiated, false, Outputs::Tcp),
        (Mode::Tcp, Configured, false, Outputs::Nothing),
        (Mode::Tcp, Configured, true, Outputs::Active),
        (Mode::Slb, Configured, true, Outputs::Active),
    ] {
        let wanted = Config {
            fallback,
            ..config(mode)
        };
        let bond = Bond::new(&wanted, lacp, Nanos::ZERO);
        assert_eq!(bond.outputs(), expected, "{mode:?} {lacp:?} {fallback}");
    }
}

#[test]
fn buckets_of_a_disabled_member_move_and_the_others_stay() {
    let mut wanted = config(Mode::Slb);
    let mut bond = Bond::new(&wanted, LacpStatus::Off, Nanos::ZERO);
    let before: Vec<_> = bond.buckets().map(|name| name.map(str::to_owned)).collect();
    assert_eq!(before.iter().filter(|name| name.as_deref() == Some("p1")).count(), 128);
    link(&mut wanted, "p1", false);
    bond.configure(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert!(bond.buckets().all(|name| name == Some("p2")));
    // A member that comes back gets buckets that carry nothing.
    let mut loads = [0; BUCKETS];
    loads[..200].fill(1);
    bond.credit(&loads);
    link(&mut wanted, "p1", true);
    bond.configure(&wanted, LacpStatus::Off, Nanos::ZERO);
    let back: Vec<usize> = (0..BUCKETS)
        .filter(|n| bond.buckets().nth(*n) == Some(Some("p1")))
        .collect();
    assert_eq!(back, (200..BUCKETS).collect::<Vec<_>>());
    for name in ["p1", "p2"] {
        link(&mut wanted, name, false);
    }
    bond.configure(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert!(bond.buckets().all(|name| name.is_none()));
}

#[test]
fn load_moves_to_the_member_that_carries_less_and_then_rests() {
    let mut bond = Bond::new(&config(Mode::Slb), LacpStatus::Off, Nanos::ZERO);
    let on_first: Vec<usize> = (0..BUCKETS)
        .filter(|n| bond.buckets().nth(*n) == Some(Some("p1")))
        .collect();
    let mut now = Nanos::ZERO;
    let mut round = |bond: &mut Bond| {
        let mut loads = [0; BUCKETS];
        for at in &on_first[..8] {
            loads[*at] = 1_000_000;
        }
        bond.credit(&loads);
        now = bond.next_event().unwrap_or(now);
        bond.tick(now);
        log(bond).iter().filter(|line| line.contains("shift")).count()
    };
    bond.take_event();
    assert_eq!(round(&mut bond), 4);
    let loads = bond.loads();
    assert_eq!(loads["p1"], loads["p2"]);
    assert_eq!((round(&mut bond), round(&mut bond)), (0, 0));
}

#[test]
fn one_heavy_bucket_does_not_move_to_and_fro() {
    let mut bond = Bond::new(&config(Mode::Slb), LacpStatus::Off, Nanos::ZERO);
    let mut loads = [0; BUCKETS];
    loads[5] = 100_000_000;
    for round in 1..10 {
        bond.credit(&loads);
        bond.tick(Nanos::from_secs(10 * round));
        assert!(log(&mut bond).iter().all(|line| !line.contains("shift")));
    }
}

#[test]
fn commands_answer_as_open_vswitch_does() {
    let mut wanted = config(Mode::Slb);
    link(&mut wanted, "p2", false);
    let mut bond = Bond::new(&wanted, LacpStatus::Off, Nanos::ZERO);
    assert_eq!(bond.migrate(7, "p9"), Err(Refused::NoMember));
    assert_eq!(bond.migrate(7, "p2"), Err(Refused::MigrateToDisabled));
    assert_eq!(bond.set_active("p2"), Err(Refused::DisabledActive));
    assert_eq!((bond.set_active("p1"), bond.migrate(7, "p1")), (Ok(false), Ok(())));
    bond.configure(&config(Mode::ActiveBackup), LacpStatus::Off, Nanos::ZERO);
    assert_eq!(bond.migrate(7, "p1"), Err(Refused::NotSlb));
    assert_eq!(bond.set_enabled("p1", false), Ok(()));
    bond.tick(Nanos::ZERO);
    assert!(bond.is_enabled("p1"));
}

#[test]
fn a_primary_that_is_taken_out_and_added_again_is_active_again() {
    let wanted = Config {
        primary: Some("p1".to_owned()),
        ..config(Mode::ActiveBackup)
    };
    let mut bond = Bond::new(&wanted, LacpStatus::Off, Nanos::ZERO);
    let mut without = wanted.clone();
    without.members.remove("p1");
    bond.configure(&without, LacpStatus::Off, Nanos::from_millis(1));
    assert_eq!(bond.active(), Some("p2"));
    bond.configure(&wanted, LacpStatus::Off, Nanos::from_millis(2));
    assert_eq!(bond.active(), Some("p1"));
}
