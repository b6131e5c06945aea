//! Controllers and switches that end under traffic.

use super::{Network, needs_ovn};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use testkit::{Daemon, eventually, eventually_within};

/// Pings of `pb` by `pa`, a hundred a second, with the time of each answer.
fn pings(network: &Network) -> Daemon {
    let mut command = network.a.prefix();
    command.extend(["ping", "-n", "-D", "-i", "0.01", "10.1.0.12"].map(str::to_owned));
    Daemon::start("pings", &command, &network.central.sandbox)
}

/// When the first answer came after that time.
fn answered_after(network: &Network, time: f64) -> Option<f64> {
    let shown = network.central.sandbox.read("pings.out");
    let times = shown
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split(']').next()?.parse::<f64>().ok());
    times.into_iter().find(|answered| *answered > time)
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn a_killed_switch_forwards_again_soon_after_its_controller_is_back() {
    needs_ovn!();
    let mut network = Network::new(2);
    network.reaches(&network.a, "10.1.0.12");
    let _pings = pings(&network);
    eventually("answers come", || answered_after(&network, 0.0));
    for victim in [0, 1, 0] {
        let known = network.chassis[victim].log().len();
        let switch = &mut network.chassis[victim].switch;
        switch.kill();
        let killed = now();
        switch.boot();
        let connected = eventually_within(Duration::from_secs(30), "the controller is back", || {
            let log = network.chassis[victim].log();
            log[known..].contains("br-int.mgmt: connected").then(now)
        });
        let answered = eventually_within(Duration::from_secs(30), "the network works again", || {
            answered_after(&network, killed + 0.01)
        });
        println!(
            "chassis {victim}: the controller is back {:.3} s after the end of the switch, and answers come {:.3} s later",
            connected - killed,
            answered - connected
        );
        network.works();
    }
    network.has_no_errors();
}

#[test]
fn the_end_of_a_controller_costs_no_packet_and_that_of_a_switch_few() {
    needs_ovn!();
    let mut network = Network::new(2);
    network.reaches(&network.a, "10.1.0.12");
    let mut pings = pings(&network);
    for chassis in &mut network.chassis {
        // The new one keeps the rules of the old one until it has its own.
        chassis
            .switch
            .vsctl("set open_vswitch . external_ids:ovn-ofctrl-wait-before-clear=2000");
        chassis.controller = None;
        chassis.start_controller();
    }
    network.central.sync();
    pings.terminate();
    let shown = network.central.sandbox.read("pings.out");
    let numbers: Vec<u32> = shown
        .lines()
        .filter_map(|line| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok())
        .collect();
    let all: Vec<u32> = (1..=numbers.len() as u32).collect();
    assert!(numbers.len() > 20 && numbers == all, "{shown}");

    network.survives_kill(0);
    network.has_no_errors();
}
