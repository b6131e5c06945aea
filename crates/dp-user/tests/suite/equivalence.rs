//! The caches give the tables' result after any sequence of changes.

use crate::common::{Bench, FakeSwitch, depending, number, packet, translation};
use dp::{Action, Change, Changes, Dep, PortNo, Translation};
use flow::{Field, Key, Mask};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const PORTS: u32 = 4;

/// A rule for packets whose addresses have certain bits; the last one matches all.
#[derive(Clone, Copy, Debug)]
struct Rule {
    dst: (u8, u8),
    src: (u8, u8),
    /// 0 drops.
    port: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Packets(Vec<(u8, u8)>),
    /// Another port for a rule; announced under the rule's dependency.
    Change {
        rule: usize,
        port: u32,
    },
    /// Another rule; announced as a change of everything.
    Replace {
        rule: usize,
        with: Rule,
    },
    /// The same as `Change`, while the answer to the next upcall is on its way.
    Race {
        rule: usize,
        port: u32,
    },
    Wait(u64),
}

struct World {
    rules: Vec<Rule>,
    race: Option<(usize, u32)>,
    /// Numbers of the packets whose upcall a change raced with.
    raced: Vec<u32>,
}

impl World {
    fn answer(&self, key: &Key) -> Translation {
        let mut mask = Mask::EMPTY;
        let (dst, src) = (key.get(Field::EthDst) as u8, key.get(Field::EthSrc) as u8);
        for (number, rule) in (0..).zip(&self.rules) {
            mask.add_bits(Field::EthDst, rule.dst.0.into());
            mask.add_bits(Field::EthSrc, rule.src.0.into());
            if dst & rule.dst.0 == rule.dst.1 && src & rule.src.0 == rule.src.1 {
                let actions: &[Action] = match rule.port {
                    0 => &[],
                    port => &[Action::Output(PortNo(port))],
                };
                let mut answer = depending(translation(actions, &[]), &[number]);
                answer.mask = mask;
                return answer;
            }
        }
        let mut answer = translation(&[], &[]);
        answer.mask = mask;
        answer
    }

    fn port(&self, dst: u8, src: u8) -> u32 {
        let mut key = Key::default();
        key.set(Field::EthDst, dst.into());
        key.set(Field::EthSrc, src.into());
        match self.answer(&key).actions[..] {
            [Action::Output(port)] => port.0,
            _ => 0,
        }
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let bits = || prop_oneof![Just(0u8), Just(0xff), Just(0x03), any::<u8>()];
    (bits(), any::<u8>(), bits(), any::<u8>(), 0..PORTS).prop_map(|(dst_mask, dst, src_mask, src, port)| Rule {
        dst: (dst_mask, dst & dst_mask),
        src: (src_mask, src & src_mask),
        port,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let address = || prop_oneof![0..8u8, any::<u8>()];
    prop_oneof![
        5 => prop::collection::vec((address(), address()), 1..80).prop_map(Step::Packets),
        2 => (0..8usize, 0..PORTS).prop_map(|(rule, port)| Step::Change { rule, port }),
        1 => (0..8usize, any_rule()).prop_map(|(rule, with)| Step::Replace { rule, with }),
        2 => (0..8usize, 0..PORTS).prop_map(|(rule, port)| Step::Race { rule, port }),
        1 => (0..15u64).prop_map(Step::Wait),
    ]
}

fn switch(world: &Arc<Mutex<World>>, changes: &Arc<Changes>) -> Arc<FakeSwitch> {
    let (world, changes) = (world.clone(), changes.clone());
    FakeSwitch::with_packet(move |key, packet| {
        let mut world = world.lock();
        let answer = world.answer(key);
        if let Some((rule, port)) = world.race.take() {
            world.rules[rule].port = port;
            world.raced.push(number(packet));
            changes.publish(&[Change::Dep(Dep(rule as u64))]);
        }
        answer
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_goes_where_the_tables_say(
        rules in prop::collection::vec(any_rule(), 8),
        steps in prop::collection::vec(any_step(), 1..30),
        limit in prop_oneof![Just(4usize), Just(1000)],
    ) {
        let changes = Arc::new(Changes::new());
        let world = Arc::new(Mutex::new(World { rules, race: None, raced: Vec::new() }));
        let mut bench = Bench::with(PORTS, switch(&world, &changes), changes.clone(), limit);
        let mut next = 0;
        for step in steps {
            match step {
                Step::Packets(packets) => {
                    let first = next;
                    next += packets.len() as u32;
                    let bytes: Vec<_> =
                        (first..).zip(&packets).map(|(n, (dst, src))| packet((*dst).into(), (*src).into(), n)).collect();
                    let (before, race) = {
                        let world = world.lock();
                        (world.rules.clone(), world.race)
                    };
                    bench.receive(0, &bytes);
                    let after = std::mem::take(&mut world.lock().raced);
                    // Up to the packet whose upcall raced, that included, the old tables hold.
                    let mut old = World { rules: before, race: None, raced: Vec::new() };
                    let mut expected = vec![Vec::new(); PORTS as usize];
                    for (n, (dst, src)) in (first..).zip(&packets) {
                        expected[old.port(*dst, *src) as usize].push(n);
                        if after.contains(&n) {
                            let (rule, port) = race.unwrap();
                            old.rules[rule].port = port;
                        }
                    }
                    for (port, expected) in expected.iter().enumerate().skip(1) {
                        prop_assert_eq!(&bench.numbers(port), expected);
                    }
                    prop_assert!(bench.pipeline.cache_stats().flows <= limit as u64);
                }
                Step::Change { rule, port } => {
                    world.lock().rules[rule].port = port;
                    changes.publish(&[Change::Dep(Dep(rule as u64))]);
                }
                Step::Replace { rule, with } => {
                    world.lock().rules[rule] = with;
                    changes.publish(&[Change::All]);
                }
                Step::Race { rule, port } => world.lock().race = Some((rule, port)),
                Step::Wait(seconds) => {
                    bench.now += Duration::from_secs(seconds);
                    bench.housekeep();
                }
            }
        }
    }
}
