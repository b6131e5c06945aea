//! IGMP and MLD frames, pauses and changes of settings, in any order, through a bridge's table.

use nanos::Nanos;
use protocols::snooping::{Config, Event, PortConfig, ProxyConfig, Snooping};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;
use wire::{MacAddr, Vid};

/// Ports of the bridge.
const PORTS: u32 = 4;

/// Each step is a byte that chooses a port or something else, and a frame behind its length. A
/// reader of the events knows the same members as the table, and the next event is not over.
pub fn snooping(mut data: &[u8]) {
    let mut machine = Snooping::default();
    let mut now = Nanos::from_secs(1000);
    let mut known = BTreeMap::new();
    machine.configure(config(0), now);
    while let [what, len, rest @ ..] = data {
        let (frame, behind) = rest.split_at(usize::from(*len).min(rest.len()));
        data = behind;
        match what & 0xf {
            port if u32::from(port) < PORTS => machine.receive(port.into(), Vid::NONE, frame, now),
            8 => machine.receive(1, Vid::from_tci(what.wrapping_mul(*len).into()), frame, now),
            9 => machine.configure(config(*len), now),
            10 => machine.flush(),
            11 => machine.flush_port(u32::from(*len) % PORTS),
            _ => {
                now += Duration::from_secs((*len).into());
                machine.tick(now);
            }
        }
        while machine.take_frame().is_some() {}
        while let Some(event) = machine.take_event() {
            if let Event::Group { vlan, group, members } = event {
                known.remove(&(vlan, group));
                if !members.is_empty() {
                    known.insert((vlan, group), members);
                }
            }
        }
    }
    machine.tick(now);
    assert!(machine.next_event().is_none_or(|next| next > now));
    let all: BTreeMap<_, _> = machine
        .groups(now)
        .into_iter()
        .map(|e| ((e.vlan, e.group), ()))
        .collect();
    while let Some(event) = machine.take_event() {
        if let Event::Group { vlan, group, members } = event {
            known.remove(&(vlan, group));
            if !members.is_empty() {
                known.insert((vlan, group), members);
            }
        }
    }
    assert!(known.keys().eq(all.keys()));
    for ((vlan, group), members) in known {
        for (port, filter) in members {
            assert_eq!(machine.filter(port, vlan, group), Some(filter));
        }
    }
}

fn config(what: u8) -> Config {
    let port = |number: u32| PortConfig {
        flood: number == 3 && what & 1 != 0,
        flood_reports: number == 2 && what & 2 != 0,
    };
    Config {
        aging: Duration::from_secs(u64::from(what) * 4),
        table_size: 10,
        fast_leave: what & 4 == 0,
        querier: None,
        proxy: (what & 16 != 0).then_some(ProxyConfig {
            address: Ipv4Addr::UNSPECIFIED,
            mac: MacAddr::ZERO,
        }),
        ports: (0..PORTS - u32::from(what & 8 != 0))
            .map(|number| (number, port(number)))
            .collect(),
    }
}
