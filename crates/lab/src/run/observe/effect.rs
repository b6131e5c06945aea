//! From the installation of a rule to its effect in the data plane, and whether a barrier is
//! honest.
//!
//! A host sends datagrams at a constant rate, which the switch drops. Then the controller adds the
//! rule that forwards them and asks for a barrier: the time until the first datagram arrives, by
//! the kernel's clock at the receiving host, is the effect; the time until the reply is the
//! barrier's. A reply before the effect, by more than two datagrams' distance, is early: the switch
//! has said that it has done what it has not.

use super::openflow::{agreed, clear, connect, two_hosts};
use super::{Meanwhile, Observer, Seen};
use crate::controller::{Connection, Measured};
use crate::run::stage::Table;
use crate::scenario::Setup;
use crate::traffic::Remote;
use crate::traffic::protocol::Task;
use crate::traffic::udp::{Send, SendFlow};
use anyhow::{Context, Result, bail, ensure};
use openflow::model::FlowCommand;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};
use sys::timed;

/// The port that datagrams go to.
const PORT: u16 = 19_013;

/// Bytes of a datagram's payload.
const PAYLOAD: u32 = 64;

/// Between two datagrams.
const INTERVAL: Duration = Duration::from_micros(100);

/// For how long nothing may arrive until a deleted rule has no effect any more, and how long that,
/// or an effect, is waited for.
const SILENCE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(5);

/// A rule that comes and goes, and the sender of datagrams.
pub(super) struct Effect {
    sender: Remote,
    work: Option<Meanwhile>,
}

impl Effect {
    /// Starts the sender.
    ///
    /// # Errors
    /// The switch has no OpenFlow; the receiving host is a guest.
    pub(super) fn begin(table: &mut Table, setup: &Setup, bridge: &str) -> Result<Effect> {
        let (from, to) = two_hosts(setup)?;
        let ends = &table.ground.ends;
        let address = ends.address(from, to)?;
        let receiver = table.ground.bed.host(to)?;
        ensure!(
            receiver.acceleration().is_none(),
            "{to} is a guest, whose clock is not this machine's"
        );
        let socket = receiver.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("bind UDP"))?;
        timed::enable(socket.as_fd())?;
        let port = table.running.port_number(bridge, to)?;
        let mut connection = connect(table, bridge)?;
        connection.rule(FlowCommand::Add, "priority=1,actions=drop")?;
        agreed(&mut connection)?;
        let mut sender = ends.agent(from)?.start(Task::Send(Send {
            flows: vec![SendFlow {
                flow: 0,
                to: address,
                ports: vec![PORT],
                port: 0,
                payload: PAYLOAD,
                rate: u64::from(PAYLOAD) * 8 * 1_000_000_000 / INTERVAL.as_nanos() as u64,
                new_flows: false,
                first_pair: 0,
                imix: false,
            }],
            warmup: 0.0,
            // Until it is stopped.
            seconds: 1e6,
            knock: true,
            spin: 0,
            pinned: false,
        }))?;
        sender.go()?;
        let rule = format!("priority=100,udp,nw_dst={address},tp_dst={PORT}");
        let time = Duration::try_from_secs_f64(setup.seconds)?;
        let work: Meanwhile = Box::new(move || {
            let mut rounds = Rounds {
                connection,
                socket,
                rule,
                port,
            };
            let measured = rounds.measure(time);
            clear(&mut rounds.connection)?;
            measured
        });
        Ok(Effect {
            sender,
            work: Some(work),
        })
    }
}

impl Observer for Effect {
    fn meanwhile(&mut self) -> Option<Meanwhile> {
        self.work.take()
    }

    fn end(self: Box<Self>, seen: &Seen<'_>) -> Result<Measured> {
        self.sender.stop()?;
        Ok(seen.brought.clone())
    }
}

struct Rounds {
    connection: Connection,
    socket: UdpSocket,
    rule: String,
    port: u32,
}

/// Of a round, in ms.
#[derive(Clone, Copy, Debug)]
struct Round {
    effect: f64,
    barrier: f64,
}

impl Rounds {
    fn measure(&mut self, time: Duration) -> Result<Measured> {
        let until = Instant::now() + time;
        let mut rounds = Vec::new();
        while rounds.is_empty() || Instant::now() < until {
            rounds.push(self.round()?);
        }
        result(&rounds)
    }

    fn round(&mut self) -> Result<Round> {
        self.connection.rule(FlowCommand::DeleteStrict, &self.rule)?;
        agreed(&mut self.connection)?;
        self.await_silence()?;
        let (socket, began, began_at) = (&self.socket, Instant::now(), SystemTime::now());
        let (arrived, replied) = std::thread::scope(|scope| {
            let arrives = scope.spawn(move || first(socket));
            let added = format!("{},actions=output:{}", self.rule, self.port);
            let asked = self
                .connection
                .rule(FlowCommand::Add, &added)
                .and_then(|_| agreed(&mut self.connection));
            let replied = began.elapsed();
            (arrives.join(), asked.map(|()| replied))
        });
        let Ok(arrived) = arrived else {
            bail!("the thread that receives has panicked")
        };
        let milli = |time: Duration| time.as_secs_f64() * 1e3;
        let began_at = began_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Round {
            effect: milli(arrived?.saturating_sub(began_at)),
            barrier: milli(replied?),
        })
    }

    /// Takes what arrives until nothing does.
    fn await_silence(&self) -> Result<()> {
        self.socket.set_read_timeout(Some(SILENCE))?;
        let until = Instant::now() + PATIENCE;
        while self.socket.recv(&mut [0; 2048]).is_ok() {
            ensure!(
                Instant::now() < until,
                "datagrams arrive {} s after their rule was deleted",
                PATIENCE.as_secs()
            );
        }
        Ok(())
    }
}

/// When the next datagram arrives, by the system's clock, since 1970: the kernel's time, since the
/// thread that waits wakes later.
fn first(socket: &UdpSocket) -> Result<Duration> {
    let wait = Timespec {
        tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)).context("poll")?;
    ensure!(ready > 0, "no datagram arrives by the rule");
    let (_, at) = timed::receive(socket.as_fd(), &mut [0; 2048]).context("receive")?;
    at.context("the kernel tells no times of arrival")
}

/// `effect` (mean, ms), its distribution, `barrier` (mean until the reply, ms), `early` (share of
/// replies before the effect), `rounds`.
fn result(rounds: &[Round]) -> Result<Measured> {
    let delays = Measured::delays(rounds.iter().map(|round| round.effect).collect())?;
    let number = rounds.len() as f64;
    let barrier = rounds.iter().map(|round| round.barrier).sum::<f64>() / number;
    let resolution = 2.0 * INTERVAL.as_secs_f64() * 1e3;
    let early = rounds.iter().filter(|round| round.effect > round.barrier + resolution);
    let early = early.count() as f64 / number;
    let mut measured = Measured::default();
    for (metric, value) in [("barrier", barrier), ("early", early), ("rounds", number)] {
        measured.metrics.insert(metric.to_owned(), value);
    }
    let name = || "effect".to_owned();
    measured
        .metrics
        .extend(delays.metrics.into_values().map(|mean| (name(), mean)));
    measured
        .distributions
        .extend(delays.distributions.into_values().map(|found| (name(), found)));
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_before_the_effect_is_early_beyond_the_distance_of_datagrams() {
        let round = |effect, barrier| Round { effect, barrier };
        let measured = result(&[round(1.0, 1.1), round(1.15, 1.0), round(9.0, 1.0), round(0.5, 0.5)]).unwrap();
        assert_eq!(measured.metrics["early"], 0.25);
        assert_eq!(measured.metrics["rounds"], 4.0);
        assert!((measured.metrics["effect"] - 11.65 / 4.0).abs() < 1e-9);
        assert_eq!(measured.distributions["effect"].count, 4);
    }
}
