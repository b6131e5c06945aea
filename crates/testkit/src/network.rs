//! A simulated network on virtual time, for the machines of control protocols.
//!
//! Nodes are machines behind the trait [`Node`]; links connect two or more of their ports. A link
//! delays, loses, reorders and duplicates frames as its [`Quality`] says, and goes up and down. The
//! same seed and the same calls give the same run: time is a number, and events of the same moment
//! happen in the order in which they were scheduled.
//!
//! ```
//! use nanos::Nanos;
//! use std::time::Duration;
//! use testkit::network::{Network, Node, Quality};
//!
//! /// Sends back the first frame that it receives.
//! #[derive(Default)]
//! struct Echo(Vec<Vec<u8>>, usize);
//!
//! impl Node for Echo {
//!     fn receive(&mut self, _port: usize, frame: &[u8], _now: Nanos) {
//!         self.1 += 1;
//!         if self.1 == 1 {
//!             self.0.push(frame.to_vec());
//!         }
//!     }
//!     fn tick(&mut self, _now: Nanos) {}
//!     fn next_event(&self) -> Option<Nanos> {
//!         None
//!     }
//!     fn take_frame(&mut self) -> Option<(usize, Vec<u8>)> {
//!         Some((0, self.0.pop()?))
//!     }
//! }
//!
//! let mut network = Network::new(1);
//! let (a, b) = (network.add(Echo::default()), network.add(Echo::default()));
//! network.connect(&[(a, 0), (b, 0)], Quality::delay(Duration::from_millis(1)));
//! network.with(a, |node, _| node.0.push(b"hello".to_vec()));
//! network.run_for(Duration::from_secs(1));
//! assert_eq!((network.node(a).1, network.node(b).1), (1, 2));
//! ```

use crate::Rng;
use nanos::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Events of one moment, at most: a node whose timer never moves on is a fault.
const MOST_AT_ONCE: u32 = 100_000;

/// A machine in a network. Ports are numbers of the node's own choice.
pub trait Node {
    /// Takes a frame.
    fn receive(&mut self, port: usize, frame: &[u8], now: Nanos);
    /// Runs the timers that are due.
    fn tick(&mut self, now: Nanos);
    /// When the next timer is due; `None` if none is.
    fn next_event(&self) -> Option<Nanos>;
    /// The next frame to send and its port. The network calls this after every other call, until
    /// there is none.
    fn take_frame(&mut self) -> Option<(usize, Vec<u8>)>;
    /// The link at a port comes up or goes down.
    fn link(&mut self, port: usize, up: bool, now: Nanos) {
        let _ = (port, up, now);
    }
}

/// What a link does to frames. The default is a perfect link without delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// The time that every frame takes.
    pub delay: Duration,
    /// Up to this much more, at random. Frames keep their order.
    pub jitter: Duration,
    /// Frames lost, in percent.
    pub loss: u64,
    /// Frames delivered twice, in percent.
    pub duplication: u64,
    /// Frames, in percent, that later ones may overtake: they take up to this much longer.
    pub reordering: (u64, Duration),
}

impl Quality {
    /// A perfect link with a delay.
    pub fn delay(delay: Duration) -> Quality {
        Quality {
            delay,
            ..Quality::default()
        }
    }
}

/// A port of a node: the node's number, and the port's.
pub type End = (usize, usize);

/// What has become of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that nodes sent.
    pub sent: u64,
    /// Frames that nodes received.
    pub delivered: u64,
    /// Copies that a link lost by its [`Quality`].
    pub lost: u64,
    /// Copies that were on a link when it went down, or sent to one that was down or missing.
    pub down: u64,
}

/// A frame that a node sent, for tests that look at them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub at: Nanos,
    /// Where from.
    pub from: End,
    /// The frame.
    pub frame: Vec<u8>,
}

/// Nodes, and the links between their ports.
#[derive(Debug)]
pub struct Network<N> {
    nodes: Vec<Member<N>>,
    links: Vec<Link>,
    events: BinaryHeap<Reverse<Event>>,
    now: Nanos,
    scheduled: u64,
    rng: Rng,
    counts: Counts,
    recording: Option<Vec<Sent>>,
    /// Events since time has moved on.
    at_once: u32,
}

#[derive(Debug)]
struct Member<N> {
    node: N,
    due: Option<Nanos>,
}

#[derive(Debug)]
struct Link {
    ends: Vec<End>,
    quality: Quality,
    up: bool,
    /// How often it went down: frames of before are lost.
    epoch: u32,
    /// The last arrival at each end, which the next does not precede.
    last: Vec<Nanos>,
}

/// What happens at a time; of the same time, in the order of `number`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Nanos,
    number: u64,
    what: What,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival {
        link: usize,
        epoch: u32,
        to: End,
        frame: Vec<u8>,
    },
    Link(usize, bool),
}

impl<N: Node> Network<N> {
    /// An empty network at time 0, whose chances depend on `seed` only.
    pub fn new(seed: u64) -> Network<N> {
        Network {
            nodes: Vec::new(),
            links: Vec::new(),
            events: BinaryHeap::new(),
            now: Nanos::ZERO,
            scheduled: 0,
            rng: Rng::new(seed),
            counts: Counts::default(),
            recording: None,
            at_once: 0,
        }
    }

    /// Adds a node; returns its number, which counts from 0.
    pub fn add(&mut self, node: N) -> usize {
        self.nodes.push(Member { node, due: None });
        let number = self.nodes.len() - 1;
        self.settle(number);
        number
    }

    /// Connects two ports, or more that share a segment, by a link that is up. Returns its number,
    /// which counts from 0.
    pub fn connect(&mut self, ends: &[End], quality: Quality) -> usize {
        for end in ends {
            let free = self.links.iter().all(|link| !link.ends.contains(end));
            assert!(free, "port {} of node {} has a link", end.1, end.0);
        }
        self.links.push(Link {
            ends: ends.to_vec(),
            quality,
            up: false,
            epoch: 0,
            last: vec![self.now; ends.len()],
        });
        let number = self.links.len() - 1;
        self.set_up(number, true);
        number
    }

    /// Takes a link up or down now; both ends notice at once.
    pub fn set_up(&mut self, link: usize, up: bool) {
        let now = self.now;
        let state = &mut self.links[link];
        if state.up == up {
            return;
        }
        state.up = up;
        state.epoch += u32::from(!up);
        for (node, port) in state.ends.clone() {
            self.nodes[node].node.link(port, up, now);
            self.settle(node);
        }
    }

    /// Takes a link up or down later.
    pub fn set_up_at(&mut self, at: Nanos, link: usize, up: bool) {
        self.schedule(at.max(self.now), What::Link(link, up));
    }

    /// Changes what a link does to the frames that are sent from now on.
    pub fn set_quality(&mut self, link: usize, quality: Quality) {
        self.links[link].quality = quality;
    }

    /// Whether a link is up.
    pub fn is_up(&self, link: usize) -> bool {
        self.links[link].up
    }

    /// The ports that a link connects.
    pub fn ends(&self, link: usize) -> &[End] {
        &self.links[link].ends
    }

    /// How many links the network has.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// A node.
    pub fn node(&self, number: usize) -> &N {
        &self.nodes[number].node
    }

    /// All nodes, in the order of their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = &N> {
        self.nodes.iter().map(|member| &member.node)
    }

    /// Changes a node; the frames that it has to send then are sent.
    pub fn with<R>(&mut self, number: usize, change: impl FnOnce(&mut N, Nanos) -> R) -> R {
        let result = change(&mut self.nodes[number].node, self.now);
        self.settle(number);
        result
    }

    /// Puts a frame on a link as if a port of it had sent it.
    pub fn inject(&mut self, from: End, frame: Vec<u8>) {
        self.transmit(from, frame);
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The network's own random numbers, for tests that choose by the same seed.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    /// What has become of the frames so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Keeps every frame that is sent from now on, until [`Network::recorded`].
    pub fn record(&mut self) {
        self.recording = Some(Vec::new());
    }

    /// The frames since [`Network::record`], which ends with this.
    pub fn recorded(&mut self) -> Vec<Sent> {
        self.recording.take().unwrap_or_default()
    }

    /// Lets `time` pass.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.now + time);
    }

    /// Lets the time come to `end`, and everything happen that is due by then.
    pub fn run_until(&mut self, end: Nanos) {
        self.run_until_or(end, |_| false);
    }

    /// The same, until `done`, which is asked after each event. Returns when that was.
    pub fn run_until_or(&mut self, end: Nanos, mut done: impl FnMut(&Network<N>) -> bool) -> Option<Nanos> {
        loop {
            if done(self) {
                return Some(self.now);
            }
            if self.next_event().is_none_or(|at| at > end) {
                self.advance(end);
                return None;
            }
            self.step();
        }
    }

    /// When something happens next.
    pub fn next_event(&self) -> Option<Nanos> {
        let event = self.events.peek().map(|Reverse(event)| event.at);
        let due = self.nodes.iter().filter_map(|member| member.due).min();
        event.into_iter().chain(due).min()
    }

    /// Lets the next thing happen.
    fn step(&mut self) {
        let due = (0..self.nodes.len())
            .filter_map(|number| Some((self.nodes[number].due?, number)))
            .min();
        let event = self.events.peek().map(|Reverse(event)| event.at);
        match (event, due) {
            (Some(at), due) if due.is_none_or(|(due, _)| at <= due) => {
                let Some(Reverse(event)) = self.events.pop() else {
                    return;
                };
                self.advance(at);
                self.happen(event.what);
            }
            (_, Some((due, number))) => {
                self.advance(due);
                let now = self.now;
                self.nodes[number].node.tick(now);
                self.settle(number);
            }
            (_, None) => {}
        }
    }

    fn advance(&mut self, to: Nanos) {
        if to > self.now {
            self.now = to;
            self.at_once = 0;
        }
        self.at_once += 1;
        assert!(self.at_once < MOST_AT_ONCE, "time stands still at {}", self.now);
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Link(link, up) => self.set_up(link, up),
            What::Arrival { link, epoch, to, frame } => {
                if !self.links[link].up || self.links[link].epoch != epoch {
                    self.counts.down += 1;
                    return;
                }
                self.counts.delivered += 1;
                let (node, port) = to;
                self.nodes[node].node.receive(port, &frame, self.now);
                self.settle(node);
            }
        }
    }

    /// Sends what a node has to send, and notes its next timer.
    fn settle(&mut self, number: usize) {
        while let Some((port, frame)) = self.nodes[number].node.take_frame() {
            self.counts.sent += 1;
            if let Some(recording) = &mut self.recording {
                recording.push(Sent {
                    at: self.now,
                    from: (number, port),
                    frame: frame.clone(),
                });
            }
            self.transmit((number, port), frame);
        }
        let member = &mut self.nodes[number];
        member.due = member.node.next_event();
    }

    fn transmit(&mut self, from: End, frame: Vec<u8>) {
        let Some(number) = self.links.iter().position(|link| link.ends.contains(&from)) else {
            self.counts.down += 1;
            return;
        };
        for end in 0..self.links[number].ends.len() {
            let link = &self.links[number];
            let (to, epoch, quality) = (link.ends[end], link.epoch, link.quality);
            if to == from {
                continue;
            }
            if !link.up {
                self.counts.down += 1;
                continue;
            }
            let copies = 1 + u64::from(self.rng.chance(quality.duplication));
            for _ in 0..copies {
                if self.rng.chance(quality.loss) {
                    self.counts.lost += 1;
                    continue;
                }
                let mut at = self.now + quality.delay + self.up_to(quality.jitter);
                let (percent, late) = quality.reordering;
                if self.rng.chance(percent) {
                    at += self.up_to(late);
                } else {
                    let last = &mut self.links[number].last[end];
                    at = at.max(*last);
                    *last = at;
                }
                let frame = frame.clone();
                self.schedule(
                    at,
                    What::Arrival {
                        link: number,
                        epoch,
                        to,
                        frame,
                    },
                );
            }
        }
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.rng.number() % nanos.saturating_add(1).max(1))
    }

    fn schedule(&mut self, at: Nanos, what: What) {
        self.scheduled += 1;
        self.events.push(Reverse(Event {
            at,
            number: self.scheduled,
            what,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a numbered frame every millisecond, and notes what it receives.
    #[derive(Default)]
    struct Sender {
        next: u64,
        most: u64,
        out: Vec<(usize, Vec<u8>)>,
        received: Vec<(Nanos, u64)>,
        links: Vec<bool>,
    }

    impl Node for Sender {
        fn receive(&mut self, _port: usize, frame: &[u8], now: Nanos) {
            self.received.push((now, u64::from(frame[0])));
        }
        fn tick(&mut self, now: Nanos) {
            while self.next_event().is_some_and(|due| due <= now) {
                self.out.push((0, vec![self.next as u8]));
                self.next += 1;
            }
        }
        fn next_event(&self) -> Option<Nanos> {
            (self.next < self.most).then(|| Nanos::from_millis(self.next))
        }
        fn take_frame(&mut self) -> Option<(usize, Vec<u8>)> {
            self.out.pop()
        }
        fn link(&mut self, _port: usize, up: bool, _now: Nanos) {
            self.links.push(up);
        }
    }

    fn pair(seed: u64, quality: Quality) -> Network<Sender> {
        let mut network = Network::new(seed);
        let sender = Sender {
            most: 200,
            ..Sender::default()
        };
        let (a, b) = (network.add(sender), network.add(Sender::default()));
        network.connect(&[(a, 0), (b, 0)], quality);
        network
    }

    const ROUGH: Quality = Quality {
        delay: Duration::from_micros(300),
        jitter: Duration::from_millis(3),
        loss: 10,
        duplication: 10,
        reordering: (10, Duration::from_millis(20)),
    };

    #[test]
    fn the_same_seed_gives_the_same_run_and_another_one_another() {
        let run = |seed| {
            let mut network = pair(seed, ROUGH);
            network.run_until(Nanos::from_secs(1));
            (network.counts(), network.node(1).received.clone())
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn a_rough_link_loses_duplicates_and_reorders_and_counts_it() {
        let mut network = pair(7, ROUGH);
        network.run_until(Nanos::from_secs(1));
        let counts = network.counts();
        let numbers: Vec<u64> = network.node(1).received.iter().map(|(_, number)| *number).collect();
        let twice = (0..200)
            .filter(|n| numbers.iter().filter(|m| *m == n).count() == 2)
            .count();
        assert!(counts.lost > 5 && twice > 5, "{counts:?}");
        assert_eq!(counts.delivered, numbers.len() as u64);
        assert!(!numbers.is_sorted());
    }

    #[test]
    fn frames_keep_their_order_and_their_delay_where_nothing_reorders_them() {
        let quality = Quality {
            reordering: (0, Duration::ZERO),
            ..ROUGH
        };
        let mut network = pair(7, quality);
        network.run_until(Nanos::from_secs(1));
        let received = &network.node(1).received;
        assert!(received.is_sorted());
        for (at, number) in received {
            let delay = at.since(Nanos::from_millis(*number));
            assert!(delay >= quality.delay && delay < Duration::from_millis(7), "{delay:?}");
        }
    }

    #[test]
    fn frames_on_a_link_that_goes_down_are_lost_and_both_ends_notice() {
        let mut network = pair(7, Quality::delay(Duration::from_millis(10)));
        network.set_up_at(Nanos::from_millis(50), 0, false);
        network.set_up_at(Nanos::from_millis(100), 0, true);
        network.run_until(Nanos::from_secs(1));
        let numbers: Vec<u64> = network.node(1).received.iter().map(|(_, number)| *number).collect();
        assert_eq!(numbers, (0..=39).chain(100..200).collect::<Vec<u64>>());
        assert_eq!((network.counts().sent, network.counts().down), (200, 60));
        assert_eq!(network.node(0).links, [true, false, true]);
        assert_eq!(network.node(1).links, [true, false, true]);
    }

    #[test]
    fn a_segment_delivers_to_all_other_ends() {
        let mut network: Network<Sender> = Network::new(1);
        let all: Vec<usize> = (0..4).map(|_| network.add(Sender::default())).collect();
        network.connect(
            &[(all[0], 0), (all[1], 0), (all[2], 0), (all[2], 1)],
            Quality::default(),
        );
        network.record();
        network.with(all[2], |node, _| node.out.push((1, vec![9])));
        network.run_for(Duration::from_millis(1));
        let received = |n: usize| network.node(n).received.len();
        assert_eq!([received(0), received(1), received(2), received(3)], [1, 1, 1, 0]);
        assert_eq!(network.recorded()[0].from, (2, 1));
    }

    #[test]
    #[should_panic(expected = "time stands still")]
    fn a_timer_that_never_moves_on_is_a_fault() {
        struct Stuck;
        impl Node for Stuck {
            fn receive(&mut self, _port: usize, _frame: &[u8], _now: Nanos) {}
            fn tick(&mut self, _now: Nanos) {}
            fn next_event(&self) -> Option<Nanos> {
                Some(Nanos::ZERO)
            }
            fn take_frame(&mut self) -> Option<(usize, Vec<u8>)> {
                None
            }
        }
        let mut network = Network::new(1);
        network.add(Stuck);
        network.run_for(Duration::from_secs(1));
    }
}
