use super::*;
use dp_user::pipeline::{Budget, Pipeline};
use netdev::{Dummy, Netdev};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use switch::{Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, PortConfig, Punts, SwitchConfig};

/// A bridge `br0` of ports 1, 2, ….
pub(super) fn bridge_of(ports: u16, fail_mode: FailMode) -> SwitchConfig {
    let mut bridge = BridgeConfig {
        fail_mode,
        ..BridgeConfig::default()
    };
    for number in 1..=ports {
        let interface = InterfaceConfig {
            name: format!("p{number}"),
            ofport: number,
            attach: Attach::Device(PortNo(number.into())),
            link: LinkState::UP,
            punts: Punts::default(),
        };
        let port = PortConfig {
            interfaces: vec![interface],
            ..PortConfig::default()
        };
        bridge.ports.insert(format!("p{number}"), port);
    }
    let mut config = SwitchConfig::default();
    config.bridges.insert("br0".to_owned(), bridge);
    config
}

fn packet(dst: u8, src: u8) -> [u8; 60] {
    let mut packet = [0; 60];
    packet[..6].copy_from_slice(&[2, 0, 0, 0, 0, dst]);
    packet[6..12].copy_from_slice(&[2, 0, 0, 0, 0, src]);
    packet[12] = 0x88;
    packet[13] = 0xb5;
    packet
}

#[test]
fn a_worker_forwards_known_packets_while_a_configuration_is_applied_and_new_ones_after_that() {
    let shared = Shared::new(1);
    shared.update(|switch, now| switch.configure(bridge_of(2, FailMode::default()), now));
    let mut pipeline = Pipeline::new(1000, Duration::from_secs(10), shared.clone(), shared.changes.clone());
    let devices = [1, 2].map(|n| Arc::new(Dummy::open(&format!("p{n}"), &BTreeMap::new()).unwrap()));
    for (n, device) in (1..).zip(&devices) {
        pipeline.add_port(PortNo(n), device.clone());
    }
    let rx = devices[0].open_rx().unwrap().remove(0);
    let mut rx_queue = Pipeline::rx_queue(PortNo(1), rx, Budget::new(8, 256));
    let mut now = Nanos::from_secs(1);
    let (ask, asked) = mpsc::channel::<[u8; 60]>();
    let (answer, sent) = mpsc::channel();
    let worker = thread::spawn(move || {
        for packet in asked {
            assert!(devices[0].inject(&packet));
            now += Duration::from_millis(2);
            while pipeline.receive(&mut rx_queue, false, now).unwrap() > 0 && !rx_queue.waits() {}
            answer.send(devices[1].take_sent().len()).unwrap();
        }
    });
    let receive = |packet| {
        ask.send(packet).unwrap();
        sent.recv_timeout(Duration::from_secs(60))
            .expect("the worker does not wait")
    };
    assert_eq!(receive(packet(9, 1)), 1);
    let configuring = shared.switch.write();
    assert_eq!(receive(packet(9, 1)), 1);
    assert_eq!(receive(packet(9, 2)), 0);
    assert_eq!(receive(packet(9, 1)), 1);
    drop(configuring);
    assert_eq!(receive(packet(9, 1)), 2);
    drop(ask);
    worker.join().unwrap();
}
