//! Whether the delay depends on the rules' match or on their number, two questions of studies of
//! OpenFlow switches.

use crate::rules;
use crate::system::{ADDRESSES, Kind, System};
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PORT: u16 = 7;
const CLIENT: u16 = 4000;
/// Exchanges of each rule set in a turn.
const EXCHANGES: usize = 300;
/// Turns of each rule set while there are few rules, and while there are many.
const TURNS: usize = 10;
/// How often few and many rules alternate.
const PHASES: usize = 2;

/// The rule sets: names, and matches of both directions.
const SETS: [(&str, &str, &str); 5] = [
    ("port", "in_port=1", "in_port=2"),
    ("MAC", "dl_dst=MAC2", "dl_dst=MAC1"),
    ("IP", "ip,nw_dst=10.3.0.2", "ip,nw_dst=10.3.0.1"),
    ("UDP port", "udp,tp_dst=7", "udp,tp_src=7"),
    (
        "exact",
        "in_port=1,dl_src=MAC1,dl_dst=MAC2,udp,nw_tos=0,nw_src=10.3.0.1,nw_dst=10.3.0.2,tp_src=4000,tp_dst=7",
        "in_port=2,dl_src=MAC2,dl_dst=MAC1,udp,nw_tos=0,nw_src=10.3.0.2,nw_dst=10.3.0.1,tp_src=7,tp_dst=4000",
    ),
];

pub(crate) fn compare() {
    let system = System::start(Kind::Oxvs);
    let macs = [0, 1].map(|n: usize| {
        let mac = system.hosts[n].run(&["cat", "/sys/class/net/eth0/address"]);
        mac.trim().to_owned()
    });
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let echo = system.hosts[1].enter(|| UdpSocket::bind((ADDRESSES[1], PORT)).expect("the echo's port"));
    echo.set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a time-out");
    let echoes = thread::spawn(move || {
        let mut buffer = [0; 64];
        while !stopped.load(Ordering::Relaxed) {
            if let Ok((len, from)) = echo.recv_from(&mut buffer) {
                let _ = echo.send_to(&buffer[..len], from);
            }
        }
    });
    let client = system.hosts[0].enter(|| UdpSocket::bind((ADDRESSES[0], CLIENT)).expect("the client's port"));
    client
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a time-out");

    let dir = tempfile::tempdir().expect("a temporary directory");
    let million = dir.path().join("million");
    std::fs::write(&million, rules::flows(1_000_000)).expect("the flows can be written");
    // Of each rule set: all round trips beside few rules, and beside many.
    let mut times = SETS.map(|_| [Vec::new(), Vec::new()]);
    for phase in 0..2 * PHASES {
        let many = phase % 2;
        system.timed(true, &["del-flows", "br0"]);
        if many == 1 {
            system.timed(true, &["add-flows", "br0", &million.display().to_string()]);
        }
        for turn in 0..TURNS * SETS.len() {
            let at = turn % SETS.len();
            let (_, there, back) = SETS[at];
            let matches = [there, back].map(|m| m.replace("MAC1", &macs[0]).replace("MAC2", &macs[1]));
            for (matching, out) in matches.iter().zip([2, 1]) {
                system.timed(
                    true,
                    &[
                        "add-flow",
                        "br0",
                        &format!("priority=200,{matching},actions=output:{out}"),
                    ],
                );
            }
            times[at][many].extend(exchange(&client));
            for matching in &matches {
                system.timed(
                    true,
                    &["del-flows", "--strict", "br0", &format!("priority=200,{matching}")],
                );
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let _ = echoes.join();
    println!(
        "\nmedian round trip by what rules match, oxvs{:>28}{:>22}",
        "few rules", "a million rules"
    );
    let medians = times.map(|both| both.map(crate::median));
    let [first, _] = medians[0];
    for ((name, ..), [few, many]) in SETS.iter().zip(medians) {
        println!(
            "{name:<44} {few:>9.1} µs ({:.2}) {many:>9.1} µs ({:.2} of few)",
            few / first,
            many / few
        );
    }
}

/// Round trips in microseconds.
fn exchange(client: &UdpSocket) -> Vec<f64> {
    let mut buffer = [0; 64];
    let mut times = Vec::with_capacity(EXCHANGES);
    for n in 0..EXCHANGES + 20 {
        let began = Instant::now();
        let sent = client.send_to(&[0; 18], (ADDRESSES[1], PORT)).is_ok();
        // The first packets are upcalls.
        if sent && client.recv(&mut buffer).is_ok() && n >= 20 {
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    assert!(times.len() > EXCHANGES / 2, "the exchanges came back");
    times
}
