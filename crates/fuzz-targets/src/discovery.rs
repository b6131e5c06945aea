//! Frames of LLDP, changes of the configuration and pauses, in any order.

use nanos::Nanos;
use protocols::lldp::auto_attach::Isid;
use protocols::lldp::wire::Lldpdu;
use protocols::lldp::{Config, Lldp, MOST_OF_PORT, PortConfig, timers};
use std::time::Duration;
use wire::{MacAddr, Vid};

/// Each step has a byte that says what it is and for which interface, a byte of length or time, and
/// for a frame its bytes. What is sent is well-formed, and not more than the standard allows; what
/// was read can be sent and read again.
pub fn discovery(data: &[u8]) {
    let mut now = Nanos::from_secs(5);
    let start = now;
    let mut config = Config::default();
    for number in 0..2_u8 {
        let port = PortConfig {
            mac: MacAddr([2, 0, 0, 0, 1, number]),
            chassis: MacAddr([2, 0, 0, 0, 0, 1]),
            up: true,
            ..PortConfig::default()
        };
        config.ports.insert(name(number), port);
    }
    let mut lldp = Lldp::default();
    lldp.configure(config.clone(), now);
    let (mut sent, mut ended, mut rest) = (0_u64, 0_u64, data);
    while let [what, value, behind @ ..] = rest {
        rest = behind;
        let port = name(what >> 4 & 1);
        match what % 4 {
            0 | 1 => {
                let len = usize::from(*value) << (what >> 5 & 1);
                let (frame, others) = rest.split_at(len.min(rest.len()));
                rest = others;
                again(frame);
                lldp.receive(&port, frame, now);
            }
            2 => now += Duration::from_millis(u64::from(*value) * 200),
            _ => change(&mut config, &port, *value),
        }
        if what % 4 == 3 {
            lldp.configure(config.clone(), now);
        }
        lldp.tick(now);
        while let Some((_, frame)) = lldp.take_frame() {
            let pdu = Lldpdu::parse(&frame).expect("what is sent is well-formed");
            match pdu.ttl {
                0 => ended += 1,
                _ => sent += 1,
            }
        }
        for name in ["p0", "p1"] {
            assert!(lldp.neighbors(name).count() <= MOST_OF_PORT);
            assert!(lldp.neighbors(name).all(|neighbor| neighbor.expires() > now));
        }
        assert!(lldp.next_event().is_none_or(|due| due > now));
    }
    // An interface that begins again has its credit again.
    let seconds = now.since(start).as_secs() + 1;
    assert!(sent <= (2 + ended) * (u64::from(timers::TX_CREDIT) + seconds));
}

fn name(number: u8) -> String {
    format!("p{number}")
}

/// Changes what an interface says, whether its link works, or whether it speaks LLDP.
fn change(config: &mut Config, port: &str, value: u8) {
    if value == 0 {
        config.ports.remove(port);
        return;
    }
    let entry = config.ports.entry(port.to_owned()).or_default();
    entry.up = value & 1 != 0;
    entry.system_name = "n".repeat(usize::from(value) * 2);
    let mappings = (0..u32::from(value)).filter_map(|n| Some((Isid::new(n)?, Vid::new(n as u16 + 1).ok()?)));
    entry.mappings = mappings.collect();
}

fn again(frame: &[u8]) {
    if let Ok(mut read) = Lldpdu::parse(frame) {
        let again = Lldpdu::parse(&read.emit(MacAddr::ZERO)).expect("it can be sent");
        read.unrecognized = 0;
        assert_eq!(again, read);
        let _ = (read.chassis_text(), read.port_text());
    }
}
