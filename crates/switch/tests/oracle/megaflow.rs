//! Guarantees of translations that a datapath relies on when it caches them.

use crate::ask::Ask;
use crate::model::{BRIDGES, Config, Shot, Topology};
use dp::{Change, Translation};
use flow::{Field, Key};
use nanos::Nanos;
use switch::{BridgeConfig, FailMode, Switch};
use testkit::Rng;
use wire::{MacAddr, Vid};

const ROUNDS: u64 = 60;

/// The parts of a translation that a datapath keeps.
fn parts(t: &Translation) -> impl PartialEq + std::fmt::Debug + use<> {
    (t.actions.clone(), t.deps.to_vec(), t.effects.to_vec(), t.drop, t.mask)
}

/// A switch with a random configuration, some stations, and some traffic behind it.
fn switch(rng: &mut Rng, topology: &Topology) -> (Switch, Config) {
    let config = Config::random(rng);
    let mut switch = Switch::new(rng.number());
    switch.configure(config.switch(topology), Nanos::ZERO);
    for _ in 0..20 {
        let translation = switch.ask(&Shot::random(rng, topology).key()).translation;
        switch.apply(&translation.effects, Nanos::ZERO);
    }
    (switch, config)
}

#[test]
fn every_packet_that_a_megaflow_covers_would_be_translated_alike() {
    let topology = Topology::fixed();
    for round in 0..ROUNDS {
        let mut rng = Rng::new(round);
        let (switch, _) = switch(&mut rng, &topology);
        for _ in 0..30 {
            let key = Shot::random(&mut rng, &topology).key();
            let translation = switch.ask(&key).translation;
            for _ in 0..20 {
                let mut other = key;
                for field in Field::ALL {
                    let free = !translation.mask.get(*field);
                    let noise = u128::from(rng.number()) << 64 | u128::from(rng.number());
                    // Few bits differ, or many.
                    let noise = if rng.chance(50) {
                        noise
                    } else {
                        noise & u128::from(rng.number())
                    };
                    other.set(*field, key.get(*field) ^ noise & free);
                }
                assert!(translation.mask.eq_key(&key, &other));
                let full = flow::Mask::full();
                let again = switch.ask(&other).translation;
                assert_eq!(
                    parts(&translation),
                    parts(&again),
                    "round {round}: {} and {}",
                    key.display(&full),
                    other.display(&full)
                );
            }
        }
    }
}

#[test]
fn a_cached_translation_is_right_until_a_change_says_otherwise() {
    let topology = Topology::fixed();
    let mut survived = 0;
    for round in 0..ROUNDS {
        let mut rng = Rng::new(1000 + round);
        let (mut switch, mut config) = switch(&mut rng, &topology);
        let mut now = Nanos::ZERO;
        let mut cache: Vec<(Key, Translation)> = Vec::new();
        for step in 0..60 {
            let key = Shot::random(&mut rng, &topology).key();
            let translation = switch.ask(&key).translation;
            cache.push((key, translation.clone()));
            let changes = match rng.below(20) {
                0 => {
                    config.change(&mut rng);
                    switch.configure(config.switch(&topology), now)
                }
                1 => remove_and_add(&mut switch, &config, &topology, &mut rng, now),
                2 => {
                    now += std::time::Duration::from_secs(40 * rng.below(10) as u64);
                    switch.tick(now)
                }
                3 => switch.fdb_flush(BRIDGES[rng.below(2)], None).unwrap_or_default(),
                4 => {
                    let (vlan, mac) = station(&mut rng);
                    switch
                        .fdb_add("br0", ["a1", "a2", "x0"][rng.below(3)], vlan, mac)
                        .unwrap()
                }
                5 => {
                    let (vlan, mac) = station(&mut rng);
                    switch.fdb_del("br0", vlan, mac).unwrap_or_default()
                }
                _ => switch.apply(&translation.effects, now),
            };
            cache.retain(|(key, cached)| !changes.iter().any(|change| cached.is_stale_for(key, change)));
            for (key, cached) in &cache {
                let fresh = switch.ask(key).translation;
                assert_eq!(parts(cached), parts(&fresh), "round {round}, step {step}: {changes:?}");
            }
        }
        survived += cache.len();
    }
    assert!(
        survived > 5 * ROUNDS as usize,
        "nearly everything is thrown away: {survived}"
    );
}

#[test]
fn in_a_steady_state_nothing_changes() {
    let topology = Topology::fixed();
    for round in 0..ROUNDS {
        let mut rng = Rng::new(2000 + round);
        let (mut switch, config) = switch(&mut rng, &topology);
        let none: [Change; 0] = [];
        assert_eq!(switch.configure(config.switch(&topology), Nanos::ZERO), none);
        for _ in 0..20 {
            let key = Shot::random(&mut rng, &topology).key();
            let translation = switch.ask(&key).translation;
            switch.apply(&translation.effects, Nanos::ZERO);
            assert!(!switch.ask(&key).news.changes);
            assert_eq!(switch.apply(&translation.effects, Nanos::from_secs(1)), none);
        }
        assert_eq!(switch.tick(Nanos::from_secs(1)), none);
    }
}

fn station(rng: &mut Rng) -> (Vid, MacAddr) {
    let vlan = *rng.pick(&[0, 10, 20]);
    (Vid::from_tci(vlan), MacAddr(testkit::mac(1 + rng.below(4) as u32)))
}

/// A bridge loses a port, is deleted, or stops switching; then the configuration is restored.
fn remove_and_add(switch: &mut Switch, config: &Config, topology: &Topology, rng: &mut Rng, now: Nanos) -> Vec<Change> {
    let mut less = config.switch(topology);
    let bridge: &mut BridgeConfig = less.bridges.get_mut("br1").unwrap();
    match rng.below(4) {
        0 => {
            less.bridges.remove("br1");
        }
        1 => {
            bridge.ports.remove("b1");
        }
        2 => bridge.fail_mode = FailMode::Secure,
        _ => bridge.ports.get_mut("b2").unwrap().interfaces[0].link.up = false,
    }
    let mut changes = switch.configure(less, now);
    if rng.chance(50) {
        changes.extend(switch.configure(config.switch(topology), now));
    }
    changes
}
