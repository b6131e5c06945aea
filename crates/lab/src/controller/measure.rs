//! Measures a switch's OpenFlow: statistics, rules and barriers (as OFLOPS measures them), packets
//! from the controller.

use super::connection::Connection;
use super::fill::{Shape, drain, fill, filler};
use crate::results::Distribution;
use anyhow::{Result, ensure};
use openflow::model::{Action, Body, FlowCommand, Match, PacketOut, Port, StatsRequest};
use openflow::text::{Names, parse_actions, parse_flow_stats_request};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// Metrics and distributions by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Numbers.
    pub metrics: BTreeMap<String, f64>,
    /// Distributions.
    pub distributions: BTreeMap<String, Distribution>,
    /// Why the sample does not count; empty: it counts.
    pub void: Vec<String>,
}

impl Measured {
    /// Delays in milliseconds: `delay`, their mean, and the distribution of them.
    ///
    /// # Errors
    /// There is none.
    pub fn delays(mut delays: Vec<f64>) -> Result<Measured> {
        ensure!(!delays.is_empty(), "nothing was measured in the time given");
        let count = delays.len();
        let mean = delays.iter().sum::<f64>() / count as f64;
        delays.sort_by(f64::total_cmp);
        let points = count.min(200);
        let quantiles = (1..=points)
            .map(|point| {
                let share = point as f64 / points as f64;
                let rank = (share * count as f64).ceil() as usize;
                (share, delays[rank.clamp(1, count) - 1])
            })
            .collect();
        let distribution = Distribution {
            count: count as u64,
            quantiles,
        };
        Ok(Measured {
            metrics: BTreeMap::from([("delay".to_owned(), mean)]),
            distributions: BTreeMap::from([("delay".to_owned(), distribution)]),
            ..Measured::default()
        })
    }
}

/// Asks for the statistics of all rules every so often.
///
/// # Errors
/// The switch does not answer.
pub fn rule_statistics(connection: &mut Connection, every: Duration, time: Duration) -> Result<Measured> {
    let request = parse_flow_stats_request("", &Names::default())?.0;
    repeat(every, time, || {
        connection.statistics(StatsRequest::Flow(request.clone()))
    })
}

/// Asks for the statistics of all ports every so often.
///
/// # Errors
/// The switch does not answer.
pub fn port_statistics(connection: &mut Connection, every: Duration, time: Duration) -> Result<Measured> {
    repeat(every, time, || connection.statistics(StatsRequest::Port(Port::ANY)))
}

/// Adds a rule and asks for a barrier, again and again.
///
/// # Errors
/// The switch does not answer.
pub fn barrier(connection: &mut Connection, time: Duration) -> Result<Measured> {
    let mut number = 0_u16;
    let measured = repeat(Duration::ZERO, time, || {
        number = number.wrapping_add(1);
        let began = Instant::now();
        let rule = format!("priority=9,udp,tp_src={number},tp_dst=9,actions=drop");
        connection.rule(FlowCommand::Add, &rule)?;
        let refused = connection.barrier()?;
        ensure!(refused.is_empty(), "the switch refuses a rule: {:?}", refused[0].reason);
        Ok(began.elapsed())
    })?;
    connection.rule(FlowCommand::Delete, "udp,tp_dst=9")?;
    connection.barrier()?;
    Ok(measured)
}

/// Adds, modifies and deletes this many rules, each with a barrier at the end. Returns rules a
/// second.
///
/// # Errors
/// The switch does not answer, or does not take that many.
pub fn rates(connection: &mut Connection, rules: u32) -> Result<Measured> {
    let filled = fill(connection, Shape::Wildcard(1), rules)?;
    ensure!(!filled.full, "the table is full with {} rules", filled.rules);
    let per_second = |took: Duration| f64::from(rules) / took.as_secs_f64();
    let mut metrics = BTreeMap::from([("install".to_owned(), per_second(filled.took))]);
    let began = Instant::now();
    for number in 0..rules {
        connection.rule(
            FlowCommand::ModifyStrict,
            &(filler(number, Shape::Wildcard(1)) + ",actions=output:1"),
        )?;
    }
    let refused = connection.barrier()?;
    ensure!(
        refused.is_empty(),
        "the switch refuses a change: {:?}",
        refused[0].reason
    );
    metrics.insert("modify".to_owned(), per_second(began.elapsed()));
    let began = Instant::now();
    drain(connection, Shape::Wildcard(1), filled, 0)?;
    metrics.insert("delete".to_owned(), per_second(began.elapsed()));
    Ok(Measured {
        metrics,
        ..Measured::default()
    })
}

/// Sends a packet out of a port as fast as it goes, for a time; how many were sent.
///
/// # Errors
/// The connection breaks.
pub fn packet_out(connection: &mut Connection, packet: &[u8], port: u32, time: Duration) -> Result<u64> {
    let actions: Vec<Action> = parse_actions(&format!("output:{port}"), &Names::default())?;
    let until = Instant::now() + time;
    let mut sent = 0;
    while Instant::now() < until {
        // A barrier now and then limits the queue in sockets.
        for _ in 0..64 {
            let packet = PacketOut {
                buffer_id: None,
                in_port: Port::ANY,
                metadata: Match::ANY,
                actions: actions.clone(),
                data: packet.to_vec(),
            };
            connection.send(Body::PacketOut(Box::new(packet)))?;
            sent += 1;
        }
        connection.barrier()?;
    }
    Ok(sent)
}

/// Delays of something that is begun every so often, until the time is over, once at least.
fn repeat(every: Duration, time: Duration, mut once: impl FnMut() -> Result<Duration>) -> Result<Measured> {
    let began = Instant::now();
    let mut delays = Vec::new();
    let mut next = began;
    loop {
        delays.push(once()?.as_secs_f64() * 1e3);
        next += every;
        if next.max(Instant::now()) >= began + time {
            return Measured::delays(delays);
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_have_their_mean_and_their_quantiles() {
        let measured = Measured::delays(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(measured.metrics["delay"], 2.5);
        let quantiles = &measured.distributions["delay"].quantiles;
        assert_eq!(quantiles[..], [(0.25, 1.0), (0.5, 2.0), (0.75, 3.0), (1.0, 4.0)]);
        assert!(Measured::delays(Vec::new()).is_err());
    }

    #[test]
    fn what_takes_longer_than_its_period_is_begun_again_at_once() {
        let mut times = 0;
        let measured = repeat(Duration::from_millis(1), Duration::from_millis(20), || {
            times += 1;
            thread::sleep(Duration::from_millis(5));
            Ok(Duration::from_millis(5))
        });
        assert_eq!(measured.unwrap().metrics["delay"], 5.0);
        assert!(times >= 2);
    }
}
