//! Full ports shared by their schedulers, and ports policed, with real traffic.
//!
//! Times are real, and a busy machine delays the switch. So clocks tick beside each measurement: if
//! they are late, the measurement proves nothing, and only repeated failures with punctual clocks
//! are faults.

use crate::fixture::{in_namespace, stand_in};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{Netns, Rng, Vswitch, ping, skip};

const PAYLOAD: usize = 1_400;
/// Bits of a frame from its destination address on.
const FRAME: f64 = PAYLOAD as f64 + 42.0;
/// Its bits on a cable, which `port-speed` counts.
const CABLE: f64 = FRAME + 24.0;
/// Time to fill queues, which does not count.
const SETTLING: Duration = Duration::from_millis(300);
const COUNTED: Duration = Duration::from_millis(1_000);
const TRIES: usize = 4;
/// Tolerated total lateness of a clock, as a share of the counted time.
const LATE: f64 = 0.01;

const TOOLS: [&str; 5] = ["ip", "ping", "ovs-vsctl", "ovs-ofctl", "setpriv"];

/// Three hosts that send, and one that receives, at the port `sink`.
struct Star {
    switch: Vswitch,
    senders: Vec<Netns>,
    sink: Netns,
    _ns: Netns,
}

/// For each sender the sent packets, and the received ones in all and in the counted time.
#[derive(Debug)]
struct Traffic {
    sent: [u64; 3],
    received: [u64; 3],
    counted: [u64; 3],
    /// Lateness of the worse of two clocks, as a share of the counted time.
    late: f64,
}

impl Star {
    fn new() -> Result<Star, String> {
        if stand_in() {
            return Err("Open vSwitch leaves queues to the kernel, which may not have them".to_owned());
        }
        if let Some(reason) = testkit::missing(true, &TOOLS) {
            return Err(reason);
        }
        let ns = Netns::new("sw");
        let switch = in_namespace(&ns);
        switch.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
        let host = |n: u8, port: &str| {
            let host = Vswitch::host(&ns, port, port, &format!("{}/24", address(n)));
            switch.vsctl(&format!(
                "add-port br0 {port} -- set interface {port} ofport_request={}",
                n + 1
            ));
            host
        };
        let senders = [(0, "s1"), (1, "s2"), (2, "s3")].map(|(n, port)| host(n, port)).into();
        let sink = host(3, "sink");
        let star = Star {
            switch,
            senders,
            sink,
            _ns: ns,
        };
        for sender in &star.senders {
            assert!(ping(sender, &address(3).to_string(), 1).received == 1);
        }
        Ok(star)
    }

    /// Each sender has a queue of its own, 1 to 3.
    fn queues_by_sender(&self) {
        for n in 1..=3 {
            let flow = format!("priority=10,in_port={n},actions=set_queue:{n},normal");
            self.switch.tool("ovs-ofctl", &["add-flow", "br0", &flow]).expect_ok();
        }
    }

    /// Sends from all senders at these rates, in bit/s of frames, and waits until no more packets
    /// arrive.
    fn send(&self, rates: [f64; 3]) -> Traffic {
        let to = SocketAddr::from((address(3), 9_000));
        let receiver = self.sink.enter(|| UdpSocket::bind(to)).expect("a socket");
        set_socket_recv_buffer_size_force(&receiver, 16 << 20).expect("room");
        receiver
            .set_read_timeout(Some(Duration::from_millis(200)))
            .expect("a limit");
        let sending = AtomicBool::new(true);
        let begin = Instant::now() + Duration::from_millis(10);
        let counted = begin + SETTLING..begin + SETTLING + COUNTED;
        let mut traffic = Traffic {
            sent: [0; 3],
            received: [0; 3],
            counted: [0; 3],
            late: 0.0,
        };
        std::thread::scope(|scope| {
            let each = [0, 1, 2].map(|n| {
                let socket = self.senders[n]
                    .enter(|| UdpSocket::bind("0.0.0.0:0"))
                    .expect("a socket");
                socket.connect(to).expect("connected");
                let until = counted.end;
                scope.spawn(move || pace(&socket, rates[n], begin, until, n as u64))
            });
            let clocks = [(); 2].map(|()| scope.spawn(|| tick(&counted)));
            let arrivals = scope.spawn(|| arrivals(&receiver, &sending));
            traffic.sent = each.map(|thread| thread.join().expect("a sender"));
            sending.store(false, Ordering::Relaxed);
            traffic.late = clocks
                .map(|clock| clock.join().expect("a clock"))
                .into_iter()
                .fold(0.0, f64::max);
            for (from, at) in arrivals.join().expect("the receiver") {
                traffic.received[from] += 1;
                traffic.counted[from] += u64::from(counted.contains(&at));
            }
        });
        traffic
    }
}

impl Star {
    /// The datapath's drops by cause, since the switch started.
    fn drops(&self) -> BTreeMap<String, u64> {
        let counters = self.switch.appctl(&["coverage/show"]);
        let drops = counters
            .lines()
            .filter(|line| line.starts_with("drop_"))
            .filter_map(|line| {
                let name = line.split_whitespace().next()?;
                Some((name.to_owned(), line.rsplit_once("total: ")?.1.trim().parse().ok()?))
            });
        drops.collect()
    }

    /// `rx_dropped` of the senders' ports.
    fn rx_dropped(&self) -> Vec<u64> {
        let count = |port: &str| {
            let said = self.switch.tool("ovs-ofctl", &["dump-ports", "br0", port]).expect_ok();
            let (_, rest) = said.split_once("drop=").expect("a count of drops");
            rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number")
        };
        ["s1", "s2", "s3"].map(count).to_vec()
    }
}

impl Traffic {
    /// Received rate of each sender in bit/s, for frames of this size.
    fn rates(&self, bytes: f64) -> [f64; 3] {
        self.counted
            .map(|packets| packets as f64 * bytes * 8.0 / COUNTED.as_secs_f64())
    }

    fn is_fair(&self, fairness: Fairness, speed: f64) -> Result<(), String> {
        near("the port's rate", self.rates(CABLE).iter().sum(), speed, 0.05)?;
        let all = self.sent.iter().sum::<u64>() as f64;
        let (wanted, part) = match fairness {
            Fairness::Offered => (self.sent.map(|sent| sent as f64 / all), 0.2),
            Fairness::Queues => ([0.1, 0.3, 0.6], 0.1),
            Fairness::Equal if jain(self.rates(FRAME)) >= 0.99 => return Ok(()),
            Fairness::Equal => return Err(format!("the senders are not treated alike: {:.3?}", self.shares())),
        };
        let mut pairs = self.shares().into_iter().zip(wanted);
        pairs.try_for_each(|(share, wanted)| near("a share", share, wanted, part))
    }

    /// Each sender's share of the received packets.
    fn shares(&self) -> [f64; 3] {
        let all: u64 = self.counted.iter().sum();
        self.counted.map(|packets| packets as f64 / all.max(1) as f64)
    }
}

fn address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, n + 1)
}

/// Sends at a rate, the gaps between packets being uneven so that no sender is always the first to
/// find room.
fn pace(socket: &UdpSocket, rate: f64, begin: Instant, until: Instant, seed: u64) -> u64 {
    let gap = FRAME * 8e9 / rate;
    let mut random = Rng::new(seed + 1);
    let mut at = begin;
    let mut sent = 0;
    while at < until {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        sent += u64::from(socket.send(&[0; PAYLOAD]).is_ok());
        at += Duration::from_nanos((gap * (0.5 + random.below(1_000) as f64 / 1_000.0)) as u64);
    }
    sent
}

/// Senders and times of arrivals, until sending has ended and no more arrive.
fn arrivals(socket: &UdpSocket, sending: &AtomicBool) -> Vec<(usize, Instant)> {
    let mut came = vec![];
    let mut buffer = [0; 2_048];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((_, SocketAddr::V4(from))) => came.push((usize::from(from.ip().octets()[3] - 1), Instant::now())),
            Ok(_) => {}
            Err(_) if sending.load(Ordering::Relaxed) => {}
            Err(_) => return came,
        }
    }
}

/// Total lateness of a clock that ticks each millisecond, as a share of the time.
fn tick(time: &Range<Instant>) -> f64 {
    const TICK: Duration = Duration::from_millis(1);
    std::thread::sleep(time.start.saturating_duration_since(Instant::now()));
    let mut late = Duration::ZERO;
    let mut last = Instant::now();
    while last < time.end {
        std::thread::sleep(TICK);
        let now = Instant::now();
        // The lateness of a timer on an idle machine.
        late += (now - last).saturating_sub(TICK + TICK / 4);
        last = now;
    }
    late.as_secs_f64() / (time.end - time.start).as_secs_f64()
}

/// Repeats the measurement until the result is as wanted. It is a fault if it never is although the
/// clocks were punctual.
#[track_caller]
fn in_some_try(star: &Star, rates: [f64; 3], what: &str, wanted: impl Fn(&Traffic) -> Result<(), String>) {
    let mut failures = vec![];
    for _ in 0..TRIES {
        let traffic = star.send(rates);
        println!(
            "{what}: shares {:.3?}, Jain's index {:.4}, {traffic:?}",
            traffic.shares(),
            jain(traffic.rates(FRAME))
        );
        match wanted(&traffic) {
            Ok(()) => return,
            Err(why) if traffic.late <= LATE => failures.push(why),
            Err(why) => println!("the machine was busy: {why}"),
        }
    }
    assert!(failures.len() < TRIES, "{what}:\n{}", failures.join("\n"));
}

fn near(what: &str, value: f64, wanted: f64, part: f64) -> Result<(), String> {
    if (value - wanted).abs() <= wanted * part {
        return Ok(());
    }
    Err(format!("{what} is {value:.4}, not within {part} of {wanted:.4}"))
}

/// Jain's index.
fn jain(rates: [f64; 3]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (3.0 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

/// How a scheduler divides a port between senders that offer more than it carries.
#[derive(Clone, Copy)]
enum Fairness {
    /// In proportion to the offered load.
    Offered,
    /// All get the same.
    Equal,
    /// The queues' rates decide: 1 to 3 to 6.
    Queues,
}

/// Offers 4, 4 and 8 Mbit/s to a port of 10 Mbit/s, or ten times that to one of ten times that;
/// `qos` are the words for `ovs-vsctl` at a speed.
fn shares_of_a_full_port(fairness: Fairness, qos: impl Fn(u64) -> String) {
    let star = match Star::new() {
        Ok(star) => star,
        Err(reason) => skip!("{reason}"),
    };
    star.queues_by_sender();
    for speed in [10_000_000, 100_000_000] {
        let qos = qos(speed);
        star.switch
            .vsctl(&format!("set interface sink other_config:port-speed={speed}{qos}"));
        assert_eq!(star.switch.get("port", "sink", "status"), "{}");
        let speed = speed as f64;
        in_some_try(
            &star,
            [0.4 * speed, 0.4 * speed, 0.8 * speed],
            &format!("{speed}{qos}"),
            |traffic| traffic.is_fair(fairness, speed),
        );
        star.switch
            .vsctl("clear port sink qos -- --all destroy qos -- --all destroy queue");
    }
}

fn kind(kind: &str) -> String {
    format!(" -- set port sink qos=@q -- --id=@q create qos type={kind}")
}

/// Three queues of a kind with classes, with these percentages of a rate guaranteed, and further
/// keys.
fn classes(kind: &str, rate: u64, parts: [u64; 3], keys: impl Fn(u64) -> String) -> String {
    let queue = |(n, part): (usize, u64)| {
        let rate = rate * part / 100;
        format!(
            " -- --id=@q{} create queue other_config:min-rate={rate}{}",
            n + 1,
            keys(rate)
        )
    };
    let queues: String = parts.into_iter().enumerate().map(queue).collect();
    format!(
        " -- set port sink qos=@q -- --id=@q create qos type={kind} other_config:max-rate={rate} queues:1=@q1 queues:2=@q2 queues:3=@q3{queues}"
    )
}

#[test]
fn a_full_port_without_qos_carries_what_each_offers_in_proportion() {
    shares_of_a_full_port(Fairness::Offered, |_| String::new());
}

#[test]
fn a_full_port_with_codel_carries_what_each_offers_in_proportion() {
    shares_of_a_full_port(Fairness::Offered, |_| kind("linux-codel"));
}

#[test]
fn a_full_port_with_sfq_carries_as_much_of_each() {
    shares_of_a_full_port(Fairness::Equal, |_| kind("linux-sfq"));
}

#[test]
fn a_full_port_with_fq_codel_carries_as_much_of_each() {
    shares_of_a_full_port(Fairness::Equal, |_| kind("linux-fq_codel"));
}

#[test]
fn a_full_port_with_htb_carries_what_its_queues_are_sure_of() {
    shares_of_a_full_port(Fairness::Queues, |speed| {
        classes("linux-htb", speed, [10, 30, 60], |_| String::new())
    });
}

#[test]
fn a_full_port_with_hfsc_carries_what_its_queues_are_sure_of() {
    shares_of_a_full_port(Fairness::Queues, |speed| {
        classes("linux-hfsc", speed, [10, 30, 60], |_| String::new())
    });
}

#[test]
fn queues_send_at_their_highest_rate_and_no_faster() {
    let star = match Star::new() {
        Ok(star) => star,
        Err(reason) => skip!("{reason}"),
    };
    star.queues_by_sender();
    for kind in ["linux-htb", "linux-hfsc"] {
        let most = |rate| format!(" other_config:max-rate={rate}");
        let qos = classes(kind, 50_000_000, [4, 10, 20], most);
        star.switch.vsctl(qos.strip_prefix(" -- ").expect("a beginning"));
        assert_eq!(star.switch.get("port", "sink", "status"), "{}");
        in_some_try(&star, [14e6; 3], kind, |traffic| {
            let mut rates = traffic.rates(FRAME).into_iter().zip([2e6, 5e6, 10e6]);
            rates.try_for_each(|(rate, wanted)| near("a queue's rate", rate, wanted, 0.05))
        });
        star.switch
            .vsctl("clear port sink qos -- --all destroy qos -- --all destroy queue");
    }
}

/// Study S2's settings.
#[test]
fn what_is_over_the_policed_rate_is_counted_as_policed_and_nothing_else_is_lost() {
    let star = match Star::new() {
        Ok(star) => star,
        Err(reason) => skip!("{reason}"),
    };
    for port in ["s1", "s2"] {
        star.switch.vsctl(&format!(
            "set interface {port} ingress_policing_rate=10240 ingress_policing_burst=1024"
        ));
        assert_eq!(star.switch.get("interface", port, "error"), "[]");
    }
    let before = RefCell::new((star.drops(), star.rx_dropped()));
    let said = |what: &str, told: &dyn Debug, wanted: &dyn Debug| format!("{what}: {told:?}, not {wanted:?}");
    in_some_try(&star, [20e6, 40e6, 20e6], "policing", |traffic| {
        let (drops, rx_dropped) = before.replace((star.drops(), star.rx_dropped()));
        let (drops_now, rx_dropped_now) = &*before.borrow();
        // The third is not policed; the others lose exactly the excess.
        let lost = [0, 1, 2].map(|n| traffic.sent[n] - traffic.received[n]);
        let pairs = rx_dropped_now.iter().zip(&rx_dropped);
        let counted: Vec<u64> = pairs.map(|(now, before)| now - before).collect();
        if counted != lost || lost[2] != 0 {
            return Err(said("the ports' drops", &counted, &lost));
        }
        let since = |(cause, count): (&String, &u64)| (cause.clone(), count - drops.get(cause).unwrap_or(&0));
        let causes: BTreeMap<String, u64> = drops_now.iter().map(since).filter(|(_, count)| *count > 0).collect();
        let policed = BTreeMap::from([("drop_policed".to_owned(), lost[0] + lost[1])]);
        if causes != policed {
            return Err(said("causes", &causes, &policed));
        }
        let mut rates = traffic.rates(FRAME).into_iter().zip([10.24e6, 10.24e6, 20e6]);
        rates.try_for_each(|(rate, wanted)| near("a rate", rate, wanted, 0.05))
    });
    assert!(star.drops().get("drop_policed").is_some_and(|count| *count > 0));
}
