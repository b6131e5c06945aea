//! How long a translation takes, and how long it takes to learn and to refresh stations in a large
//! table.

#[path = "../tests/support/ask.rs"]
mod ask;
use ask::Ask;
use criterion::{Criterion, criterion_group, criterion_main};
use dp::Effect;
use flow::{Field, Key, PortNo};
use nanos::Nanos;
use std::hint::black_box;
use std::time::Duration;
use switch::{Attach, BridgeConfig, InterfaceConfig, LinkState, PortConfig, Punts, Switch, SwitchConfig, VlanMode};
use wire::Vid;

/// A bridge of so many access ports in VLAN 10 and as many trunks.
fn switch(ports: u32) -> Switch {
    let mut bridge = BridgeConfig {
        mac_table_size: 1_000_000,
        ..BridgeConfig::default()
    };
    for n in 1..=2 * ports {
        let name = format!("p{n}");
        let attach = Attach::Device(PortNo(n));
        let interface = InterfaceConfig {
            name: name.clone(),
            ofport: n as u16,
            attach,
            link: LinkState::UP,
            punts: Punts::default(),
        };
        let mut port = PortConfig {
            interfaces: vec![interface],
            ..PortConfig::default()
        };
        if n % 2 == 1 {
            port.vlan_mode = VlanMode::Access;
            port.tag = Vid::new(10).ok();
        }
        bridge.ports.insert(name, port);
    }
    let mut config = SwitchConfig::default();
    config.bridges.insert("br0".to_owned(), bridge);
    let mut switch = Switch::new(1);
    switch.configure(config, Nanos::ZERO);
    switch
}

fn key(in_port: u32, src: u64, dst: u64) -> Key {
    let mut key = Key::ZERO;
    key.set(Field::InPort, in_port.into());
    key.set(Field::EthSrc, (0x0200_0000_0000 | src).into());
    key.set(Field::EthDst, (0x0200_0000_0000 | dst).into());
    key
}

fn bench(c: &mut Criterion) {
    let mut small = switch(2);
    let learned = small.ask(&key(3, 2, 9)).translation;
    small.apply(&learned.effects, Nanos::ZERO);
    c.bench_function("translate/unicast", |b| {
        b.iter(|| small.ask(black_box(&key(1, 1, 2))).translation)
    });
    c.bench_function("translate/flood-4", |b| {
        b.iter(|| small.ask(black_box(&key(1, 1, 9))).translation)
    });
    let large = switch(500);
    c.bench_function("translate/flood-1000", |b| {
        b.iter(|| large.ask(black_box(&key(1, 1, 9))).translation)
    });

    let mut full = switch(2);
    let effects: Vec<Effect> = (0..200_000)
        .flat_map(|n| full.ask(&key(1, n, 0xffff_ffff)).translation.effects)
        .collect();
    full.apply(&effects, Nanos::ZERO);
    let mut now = 0;
    let mut at = 0;
    c.bench_function("apply/refresh-of-200k", |b| {
        b.iter(|| {
            (now, at) = (now + 1, (at + 7919) % effects.len());
            full.apply(black_box(&effects[at..at + 1]), Nanos(now))
        })
    });
    let mut next = 1 << 24;
    c.bench_function("apply/new", |b| {
        b.iter(|| {
            next += 1;
            let Effect::Learn { bridge, vlan, port, .. } = effects[0] else {
                unreachable!("a station is learned");
            };
            let mac = wire::MacAddr::from_u64(0x0200_0000_0000 | next);
            full.apply(
                &[Effect::Learn {
                    bridge,
                    vlan,
                    mac,
                    port,
                }],
                Nanos(now),
            )
        })
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(1)).warm_up_time(Duration::from_millis(300));
    targets = bench
}
criterion_main!(benches);
