//! Handles of contexts: no two contexts share one, and a bridge with too many does not harm others.

use crate::tables::contexts::Bounds;
use crate::tables::{Context, Limit, Translated};
use crate::{
    Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, OutOfDate, PortConfig, Punts, Switch, SwitchConfig,
};
use dp::{Action, DropCause, Key, PortNo};
use flow::Field;
use nanos::Nanos;
use openflow::model::FlowCommand;
use openflow::text::{Names, parse_flow};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Two bridges with a port each, whose packets of each station have a meaning of their own.
fn switch(bounds: Bounds, actions: &str) -> Switch {
    let mut config = SwitchConfig::default();
    for (bridge, port) in [("br0", 1), ("br1", 2)] {
        let interface = InterfaceConfig {
            name: format!("p{port}"),
            ofport: port as u16,
            attach: Attach::Device(PortNo(port)),
            link: LinkState::UP,
            punts: Punts::default(),
        };
        let port = PortConfig {
            interfaces: vec![interface],
            ..PortConfig::default()
        };
        let mut bridge_config = BridgeConfig {
            fail_mode: FailMode::Secure,
            ..BridgeConfig::default()
        };
        bridge_config.ports.insert(bridge.to_owned(), port);
        config.bridges.insert(bridge.to_owned(), bridge_config);
    }
    let mut switch = Switch::new(5);
    switch.configure(config, Nanos::ZERO);
    for bridge in ["br0", "br1"] {
        let rule = format!("actions=move:NXM_OF_ETH_SRC[]->NXM_NX_XXREG0[0..47],{actions}");
        let rule = parse_flow(FlowCommand::Add, &rule, &Names::default()).unwrap();
        switch.flow_mod(bridge, &rule, Nanos::ZERO).unwrap();
    }
    switch.contexts.set_bounds(bounds);
    switch
}

fn key(port: u32, station: u64) -> Key {
    let mut key = Key::ZERO;
    key.set(Field::InPort, port.into());
    key.set(Field::EthSrc, u128::from(station) << 8 | 2);
    key.set(Field::EthType, 0x0800);
    key
}

fn handle(translated: &Translated) -> u32 {
    match translated.translation.actions[..] {
        [Action::Punt { handle, .. }] => handle,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn stations_whose_hashes_collide_are_told_apart() {
    let mut switch = switch(
        Bounds {
            highest: 63,
            ..Bounds::default()
        },
        "controller",
    );
    let mut meanings = BTreeMap::new();
    for station in 0..40 {
        let translated = switch.ask(&key(1, station));
        switch.accept(&translated, Nanos::ZERO).unwrap();
        let handle = handle(&translated);
        let (_, meaning) = translated
            .controllers
            .iter()
            .find(|(known, _)| *known == handle)
            .unwrap();
        assert!(meanings.insert(handle, meaning.clone()).is_none());
        // The same station has the same handle.
        assert_eq!(self::handle(&switch.ask(&key(1, station))), handle);
    }
    for (handle, meaning) in &meanings {
        assert_eq!(
            **switch.contexts.get(*handle).unwrap(),
            Context::Controller(Box::new(meaning.clone()))
        );
    }
}

#[test]
fn of_two_translations_with_a_new_meaning_the_second_is_made_again() {
    let mut switch = switch(Bounds::default(), "controller");
    let (first, second) = (switch.ask(&key(1, 0)), switch.ask(&key(1, 0)));
    assert_eq!((handle(&first), handle(&second)), (1, 2));
    switch.accept(&first, Nanos::ZERO).unwrap();
    assert_eq!(switch.accept(&second, Nanos::ZERO), Err(OutOfDate(Vec::new())));
    let again = switch.ask(&key(1, 0));
    assert_eq!(handle(&again), 1);
    switch.accept(&again, Nanos::ZERO).unwrap();
}

#[test]
fn a_bridge_with_too_many_meanings_loses_only_copies_of_its_own_and_gets_room_again() {
    let mut switch = switch(
        Bounds {
            per_bridge: 10,
            ..Bounds::default()
        },
        "controller",
    );
    let changes = RefCell::new(Vec::new());
    let ask = |switch: &mut Switch, port, station| {
        for _ in 0..2 {
            let translated = switch.ask(&key(port, station));
            match switch.accept(&translated, Nanos::ZERO) {
                Ok(stale) => {
                    changes.borrow_mut().extend(stale);
                    return translated;
                }
                Err(OutOfDate(stale)) => changes.borrow_mut().extend(stale),
            }
        }
        panic!("there is no answer");
    };
    let known = ask(&mut switch, 1, 0);
    let other = ask(&mut switch, 2, 0);
    for station in 1..10 {
        assert!(handle(&ask(&mut switch, 1, station)) != 0);
    }
    let refused: Vec<Translated> = (10..100).map(|station| ask(&mut switch, 1, station)).collect();
    for translated in &refused {
        assert_eq!(handle(translated), 0);
        assert_eq!(translated.ran_out.map(|reached| reached.limit), Some(Limit::Handles));
    }
    // This affects neither known handles nor the other bridge.
    assert_eq!(changes.take(), []);
    assert_eq!(handle(&ask(&mut switch, 1, 0)), handle(&known));
    assert!(handle(&ask(&mut switch, 2, 1)) != 0);
    // Translations that were refused run again when there is room.
    let changes = switch.tick(Nanos::from_secs(20));
    assert!(changes.iter().any(|change| refused[0].translation.depends_on(change)));
    assert!(!changes.iter().any(|change| other.translation.depends_on(change)));
    assert!(switch.take_forgotten().contains(&handle(&known)));
    assert!(handle(&ask(&mut switch, 1, 10)) != 0);
}

#[test]
fn a_packet_that_cannot_recirculate_for_want_of_a_handle_is_dropped_for_that() {
    let bounds = Bounds {
        per_bridge: 0,
        ..Bounds::default()
    };
    let mut switch = switch(bounds, "pop_mpls:0x0800,resubmit(,1)");
    let mut labelled = key(1, 1);
    labelled.set(Field::EthType, 0x8847);
    labelled.set(Field::MplsLse0, 0x5140);
    let first = switch.ask(&labelled);
    assert!(!first.contexts.is_empty(), "{:?}", first.translation.actions);
    assert!(switch.accept(&first, Nanos::ZERO).is_err());
    let second = switch.ask(&labelled);
    assert_eq!(switch.accept(&second, Nanos::ZERO), Ok(Vec::new()));
    assert_eq!(second.translation.drop, Some(DropCause::HandleLimit));
}
