//! The results of a run's flows.

use super::streams::{Kind, Streamed};
use super::udp::{Flooded, Probed, ReceivedFlow, SendFlow, SentFlow, Sunk};
use crate::results::{Distribution, Loss};
use std::collections::BTreeMap;

/// With this variable in the environment samples count beside any other work: the laboratory's own
/// tests run beside others.
const ANY_LOAD: &str = "OXVS_LAB_ANY_LOAD";

/// Whether they do.
pub(crate) fn may_be_loaded() -> bool {
    std::env::var_os(ANY_LOAD).is_some()
}

/// The measured results of a run's traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// By flow and metric, as `probe.rtt`.
    pub metrics: BTreeMap<String, f64>,
    /// By flow and metric.
    pub distributions: BTreeMap<String, Distribution>,
    /// Datagrams lost at the hosts: `sender` (the kernel refused them) and `receiver` (the
    /// receiver's socket was full). The kernel's own counts, [`crate::bed::Bed::losses`], know the
    /// same datagrams: add up one or the other.
    pub losses: Vec<Loss>,
    /// Sent and received datagrams of every flow, with warm-up and background.
    pub accounts: Vec<Account>,
    /// By host, datagrams that have arrived, although the kernel counts them as dropped at the
    /// receiver: nobody was to read them.
    pub sunk: BTreeMap<String, u64>,
    /// TCP segments that were sent again, by all flows, with warm-up and background.
    pub retransmitted: u64,
    /// Remarks for the reader.
    pub remarks: Vec<String>,
    /// Why the results are none of the network's: the instruments could not keep up.
    pub void: Vec<String>,
}

/// Datagrams of a flow, all that were sent and all that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The flow's name.
    pub flow: String,
    /// Datagrams that the sender's kernel took.
    pub sent: u64,
    /// Datagrams that the receiving program got. For round trips: those that came back, so losses
    /// are of both directions.
    pub received: u64,
    /// IP packets that a datagram is, at an MTU of 1500 bytes.
    pub packets: u64,
}

impl Measured {
    /// Takes only accounts and remarks of unmeasured traffic.
    pub(super) fn only_account(&mut self, take: impl FnOnce(&mut Measured)) {
        let mut all = Measured::default();
        take(&mut all);
        self.accounts.append(&mut all.accounts);
        self.retransmitted += all.retransmitted;
        self.remarks.append(&mut all.remarks);
        self.void.append(&mut all.void);
    }

    /// Takes the metrics and accounts of other traffic too.
    pub(crate) fn add(&mut self, mut more: Measured) {
        self.metrics.append(&mut more.metrics);
        self.distributions.append(&mut more.distributions);
        self.add_accounts(more);
    }

    /// Takes only what other traffic has sent, and what there is to say of it.
    pub(crate) fn add_accounts(&mut self, more: Measured) {
        self.accounts.extend(more.accounts);
        self.retransmitted += more.retransmitted;
        self.remarks.extend(more.remarks);
        self.void.extend(more.void);
        for (host, datagrams) in more.sunk {
            *self.sunk.entry(host).or_default() += datagrams;
        }
    }

    /// Takes only the counters of streams before the measurement.
    pub(super) fn warmed(&mut self, flow: &str, kind: Kind, streamed: &Streamed) {
        let mut all = Measured::default();
        all.streamed(flow, kind, streamed);
        self.accounts.append(&mut all.accounts);
        self.retransmitted += all.retransmitted;
    }

    fn metric(&mut self, flow: &str, name: &str, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.metrics.insert(format!("{flow}.{name}"), value);
        }
    }

    fn distribution(&mut self, flow: &str, name: &str, distribution: &Option<Distribution>) {
        if let Some(distribution) = distribution {
            self.distributions
                .insert(format!("{flow}.{name}"), distribution.clone());
        }
    }

    fn remark(&mut self, flow: &str, text: &str) {
        self.remarks.push(format!("{flow}: {text}"));
    }

    fn lose(&mut self, cause: &str, place: &str, packets: u64) {
        if packets == 0 {
            return;
        }
        match self
            .losses
            .iter_mut()
            .find(|loss| loss.cause == cause && loss.place == place)
        {
            Some(loss) => loss.packets += packets,
            None => self.losses.push(Loss {
                cause: cause.to_owned(),
                place: place.to_owned(),
                packets,
            }),
        }
    }

    fn account(&mut self, flow: &str, payload: u32, sent: u64, received: u64) {
        self.accounts.push(Account {
            flow: flow.to_owned(),
            sent,
            received,
            packets: packets(payload),
        });
    }

    /// Of lost streams too: the drops of what they sent are counted.
    fn account_streams(&mut self, flow: &str, streamed: &Streamed) {
        let (sent, received) = datagrams(&streamed.streams);
        self.account(flow, streamed.message, sent, received);
    }

    /// Adds a probe's results.
    pub(super) fn probed(&mut self, flow: &str, payload: u32, probed: &Probed) {
        self.metric(flow, "rtt", probed.mean);
        self.metric(flow, "one_way", probed.mean.map(|mean| mean / 2.0));
        self.metric(flow, "deviation", probed.deviation);
        self.metric(flow, "jitter", probed.jitter_mean);
        self.metric(flow, "exchanges", probed.answered as f64);
        self.metric(flow, "loss", lost_share(probed.sent, probed.answered));
        for (name, share) in [("median", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            self.metric(flow, name, probed.rtt.as_ref().and_then(|rtt| at(rtt, share)));
        }
        self.distribution(flow, "rtt", &probed.rtt);
        self.distribution(flow, "jitter", &probed.jitter);
        self.distribution(flow, "pacing", &probed.pacing);
        if let Some(error) = &probed.error {
            self.remark(
                flow,
                &format!("{} exchanges could not be begun: {error}", probed.errors),
            );
        }
        if probed.answered == 0 {
            self.remark(flow, "no exchange was answered");
        }
        self.account(
            flow,
            payload,
            probed.sent + probed.uncounted.0,
            probed.answered + probed.uncounted.1,
        );
    }

    /// Adds a datagram flow's counters; metrics only for a measured flow.
    pub(super) fn datagrams(
        &mut self,
        flow: &crate::traffic::Flow,
        asked: &SendFlow,
        sent: &SentFlow,
        received: &ReceivedFlow,
        counts: bool,
    ) {
        self.lose("sender", &flow.from, sent.full + sent.errors);
        self.lose("receiver", &flow.to, received.dropped.unwrap_or(0));
        self.account(
            &flow.name,
            asked.payload,
            sent.sent + sent.warmup,
            received.received + received.duplicates + received.warmup,
        );
        let name = flow.name.as_str();
        self.faults(name, asked, sent);
        if !counts {
            return;
        }
        // Queued packets arrive after the end of the time, so this is the longer of both durations.
        let seconds = sent.seconds.max(received.seconds);
        let attempted = (sent.sent + sent.full + sent.errors) as f64;
        let (unit, rate) = if asked.new_flows {
            (1.0, per(received.received as f64, seconds))
        } else {
            (
                f64::from(asked.payload) * 8.0,
                per(received.bytes as f64 * 8.0, seconds),
            )
        };
        self.metric(name, "rate", rate);
        self.metric(name, "offered", per(attempted * unit, sent.seconds));
        self.metric(
            name,
            "share",
            lost_share(sent.sent, received.received).map(|lost| 1.0 - lost),
        );
        self.metric(name, "loss", lost_share(sent.sent, received.received));
        self.metric(name, "missing", sent.sent.saturating_sub(received.received) as f64);
        self.metric(name, "reordered", received.reordered as f64);
        self.metric(name, "duplicates", received.duplicates as f64);
        if asked.new_flows {
            return;
        }
        self.metric(
            name,
            "of_asked",
            (asked.rate > 0)
                .then_some(rate)
                .flatten()
                .map(|rate| rate / asked.rate as f64),
        );
        self.metric(name, "jitter", received.jitter);
        self.metric(name, "jitter_last", received.jitter_last);
        let after_the_last = (sent.seconds - received.seconds) * 1e3;
        self.metric(
            name,
            "silence",
            received
                .silence
                .map_or(sent.seconds * 1e3, |silence| silence.max(after_the_last)),
        );
        self.distribution(name, "jitter", &received.jitters);
        self.distribution(name, "pacing", &sent.pacing);
    }

    /// Says how many datagrams a sender did not send in time; a greater share of those due than
    /// `most` makes the sample void.
    fn behind(&mut self, name: &str, sent: u64, behind: u64, most: f64) {
        if behind == 0 {
            return;
        }
        let due = sent + behind;
        let text = format!("{name}: its sender could not keep up: {behind} of {due} datagrams were not sent");
        if behind as f64 > most * due as f64 && !may_be_loaded() {
            self.void.push(text);
        } else {
            self.remarks.push(text);
        }
    }

    fn faults(&mut self, name: &str, asked: &SendFlow, sent: &SentFlow) {
        self.behind(name, sent.sent, sent.behind, BEHIND);
        if let Some(error) = &sent.error {
            self.remark(name, &format!("{} datagrams were refused: {error}", sent.errors));
        }
        if sent.ports_used_up {
            self.void.push(format!(
                "{name}: all pairs of ports were used within 20 s, and then once more: these flows were not new"
            ));
        }
        if let (Some(late), Some(interval)) = (sent.late_99(), SentFlow::interval(asked.payload, asked.rate))
            && late > interval.max(LATE)
        {
            self.remark(
                name,
                &format!(
                    "one datagram in a hundred was sent more than {late:.0} µs late, at an interval of {interval:.0} µs"
                ),
            );
        }
    }

    /// Adds the results of datagrams as fast as they go; metrics only for a measured flow.
    pub(super) fn flooded(&mut self, flow: &crate::traffic::Flow, flooded: &Flooded, sunk: &Sunk, counts: bool) {
        let name = flow.name.as_str();
        let sent = flooded.sent + flooded.warmup;
        // None is longer than a packet.
        self.account(name, 1, sent, sunk.arrived);
        *self.sunk.entry(flow.to.clone()).or_default() += sunk.dropped;
        self.behind(name, flooded.sent, flooded.behind, FLOOD_BEHIND);
        if !counts {
            return;
        }
        let length = crate::traffic::clock::seconds(flooded.span.1 - flooded.span.0);
        let (rate, offered) = (sunk.rate(flooded.span), per(flooded.sent as f64, length));
        // Those that are under way at the end arrive later; more than were sent can be those of
        // before.
        let share = offered.filter(|offered| *offered > 0.0).zip(rate);
        let share = share.map(|(offered, rate)| (rate / offered).min(1.0));
        self.metric(name, "rate", rate);
        self.metric(name, "offered", offered);
        self.metric(name, "share", share);
        self.metric(name, "loss", share.map(|share| 1.0 - share));
    }

    /// Adds the streams' results.
    pub(super) fn streamed(&mut self, flow: &str, kind: Kind, streamed: &Streamed) {
        let all = &streamed.streams;
        let whole: Vec<_> = all.iter().filter(|stream| stream.lost.is_none()).collect();
        let mean = |of: &dyn Fn(&&super::streams::Stream) -> f64| {
            (!whole.is_empty()).then(|| whole.iter().map(of).sum::<f64>() / whole.len() as f64)
        };
        self.metric(flow, "lost", (all.len() - whole.len()) as f64);
        let retransmissions: u64 = all.iter().map(|stream| stream.retransmissions).sum();
        self.retransmitted += retransmissions;
        match kind {
            Kind::TcpStream | Kind::UdpStream => {
                let throughput = mean(&|stream| bits(stream.received, stream.seconds));
                self.metric(flow, "throughput", throughput);
                self.metric(
                    flow,
                    "total",
                    whole
                        .iter()
                        .map(|stream| bits(stream.received, stream.seconds))
                        .sum::<f64>(),
                );
                self.metric(flow, "transfer", mean(&|stream| stream.received as f64));
            }
            Kind::TcpRr | Kind::TcpCrr | Kind::UdpRr => {
                let rate = mean(&|stream| per(stream.transactions as f64, stream.seconds).unwrap_or(0.0));
                self.metric(flow, "rate", rate);
                self.metric(flow, "latency", rate.filter(|&rate| rate > 0.0).map(|rate| 1e6 / rate));
                self.distribution(flow, "latency", &streamed.latency);
            }
        }
        match kind {
            Kind::TcpStream | Kind::TcpRr | Kind::TcpCrr => {
                self.metric(flow, "retransmissions", retransmissions as f64)
            }
            Kind::UdpStream => {
                self.metric(flow, "sent", mean(&|stream| bits(stream.sent, stream.seconds)));
                let (sent, received) = datagrams(whole.iter().copied());
                self.metric(flow, "loss", lost_share(sent, received));
                self.account_streams(flow, streamed);
            }
            Kind::UdpRr => {
                self.metric(
                    flow,
                    "stalled",
                    all.iter().filter(|stream| stream.stalled).count() as f64,
                );
                self.account_streams(flow, streamed);
            }
        }
        let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
        for stream in all {
            if let Some(reason) = &stream.lost {
                *reasons.entry(reason).or_default() += 1;
            }
        }
        for (reason, streams) in reasons {
            self.remark(flow, &format!("{streams} of {} streams lost: {reason}", all.len()));
        }
    }
}

/// Datagrams of streams: sent, and received.
fn datagrams<'a>(streams: impl IntoIterator<Item = &'a super::streams::Stream>) -> (u64, u64) {
    streams.into_iter().fold((0, 0), |(sent, received), stream| {
        (sent + stream.datagrams_sent, received + stream.datagrams_received)
    })
}

/// The share of datagrams that a sender may leave out.
const BEHIND: f64 = 0.01;

/// The same of a sender at a share of the highest rate: on a machine whose processors are all busy
/// with this traffic it is no better than the switch.
const FLOOD_BEHIND: f64 = 0.1;

/// Lateness of a datagram below which no remark is made, in µs.
const LATE: f64 = 1000.0;

/// IP packets of a datagram at an MTU of 1500: fragments carry multiples of 8 bytes, 1480 each.
pub(super) fn packets(payload: u32) -> u64 {
    (u64::from(payload) + 8).div_ceil(1480)
}

fn per(amount: f64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| amount / seconds)
}

fn bits(bytes: u64, seconds: f64) -> f64 {
    per(bytes as f64 * 8.0, seconds).unwrap_or(0.0)
}

fn lost_share(sent: u64, received: u64) -> Option<f64> {
    (sent > 0).then(|| 1.0 - received as f64 / sent as f64)
}

/// The value that this share does not exceed.
pub(super) fn at(distribution: &Distribution, share: f64) -> Option<f64> {
    let quantiles = &distribution.quantiles;
    quantiles.iter().find(|(s, _)| *s >= share).map(|&(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::streams::Stream;
    use crate::traffic::{Flow, Test};
    use std::net::Ipv4Addr;

    fn flow() -> Flow {
        Flow {
            name: "cbr".into(),
            from: "a".into(),
            to: "b".into(),
            test: Test::Cbr {
                payload: 1000,
                rate: 8_000_000,
                buffer: None,
                pinned: false,
                imix: false,
            },
        }
    }

    fn asked() -> SendFlow {
        SendFlow {
            flow: 0,
            to: Ipv4Addr::LOCALHOST,
            ports: vec![1],
            port: 0,
            payload: 1000,
            rate: 8_000_000,
            new_flows: false,
            first_pair: 0,
            imix: false,
        }
    }

    #[test]
    fn rates_shares_and_accounts_follow_from_what_was_counted() {
        let sent = SentFlow {
            sent: 1000,
            warmup: 10,
            full: 3,
            behind: 5,
            seconds: 1.0,
            ..SentFlow::default()
        };
        let received = ReceivedFlow {
            received: 900,
            bytes: 900_000,
            seconds: 0.9,
            warmup: 9,
            duplicates: 1,
            dropped: Some(7),
            jitter: Some(2.0),
            silence: Some(20.0),
            ..ReceivedFlow::default()
        };
        let mut measured = Measured::default();
        measured.datagrams(&flow(), &asked(), &sent, &received, true);
        let metric = |name: &str| measured.metrics[&format!("cbr.{name}")];
        assert_eq!(metric("rate"), 7_200_000.0);
        assert!((metric("share") - 0.9).abs() < 1e-12 && (metric("loss") - 0.1).abs() < 1e-12);
        assert_eq!(metric("offered"), 1003.0 * 8000.0);
        assert!(
            (metric("silence") - 100.0).abs() < 1e-9,
            "nothing came in the last 0.1 s"
        );
        let account = &measured.accounts[0];
        assert_eq!((account.sent, account.received, account.packets), (1010, 910, 1));
        let losses: Vec<_> = measured
            .losses
            .iter()
            .map(|l| (l.cause.as_str(), l.place.as_str(), l.packets))
            .collect();
        assert_eq!(losses, [("sender", "a", 3), ("receiver", "b", 7)]);
        assert!(measured.remarks[0].contains("could not keep up: 5 of 1005"));
    }

    #[test]
    fn a_longer_stay_in_the_queue_does_not_make_the_link_faster() {
        let sent = SentFlow {
            sent: 1000,
            seconds: 1.0,
            ..SentFlow::default()
        };
        let received = ReceivedFlow {
            received: 1000,
            bytes: 1_000_000,
            seconds: 1.25,
            ..ReceivedFlow::default()
        };
        let mut measured = Measured::default();
        measured.datagrams(&flow(), &asked(), &sent, &received, true);
        assert_eq!(measured.metrics["cbr.rate"], 6_400_000.0);
    }

    #[test]
    fn lost_streams_are_counted_with_their_reasons_and_not_averaged() {
        let whole = Stream {
            seconds: 2.0,
            received: 1_000_000,
            retransmissions: 4,
            ..Stream::default()
        };
        let lost = Stream {
            lost: Some("the control connection broke".into()),
            retransmissions: 1,
            ..Stream::default()
        };
        let streamed = Streamed {
            streams: vec![whole.clone(), lost.clone(), whole, lost],
            ..Streamed::default()
        };
        let mut measured = Measured::default();
        measured.streamed("tcp", Kind::TcpStream, &streamed);
        let metric = |name: &str| measured.metrics[&format!("tcp.{name}")];
        assert_eq!(
            (metric("throughput"), metric("total"), metric("transfer")),
            (4e6, 8e6, 1e6)
        );
        assert_eq!((metric("lost"), metric("retransmissions")), (2.0, 10.0));
        assert_eq!(
            measured.remarks,
            ["tcp: 2 of 4 streams lost: the control connection broke"]
        );
    }

    #[test]
    fn what_lost_streams_have_sent_is_missing_too() {
        let whole = Stream {
            datagrams_sent: 100,
            datagrams_received: 75,
            ..Stream::default()
        };
        let lost = Stream {
            lost: Some("no result".into()),
            datagrams_sent: 50,
            datagrams_received: 5,
            ..Stream::default()
        };
        let streamed = Streamed {
            streams: vec![whole, lost],
            message: 1000,
            ..Streamed::default()
        };
        let mut measured = Measured::default();
        measured.streamed("udp", Kind::UdpStream, &streamed);
        assert_eq!((measured.accounts[0].sent, measured.accounts[0].received), (150, 80));
        assert_eq!(measured.metrics["udp.loss"], 0.25);
    }

    #[test]
    fn without_any_whole_stream_there_is_no_mean() {
        let streamed = Streamed {
            streams: vec![Stream {
                lost: Some("gone".into()),
                ..Stream::default()
            }],
            ..Streamed::default()
        };
        let mut measured = Measured::default();
        measured.streamed("rr", Kind::TcpRr, &streamed);
        assert!(!measured.metrics.contains_key("rr.rate"));
        assert_eq!(measured.metrics["rr.lost"], 1.0);
    }

    #[test]
    fn a_datagram_is_as_many_packets_as_its_fragments() {
        assert_eq!([1472, 1473, 10_000, 65_507].map(packets), [1, 2, 7, 45]);
    }
}
