//! Descriptions and statistics of queues.

use crate::agent::Core;
use crate::conn::Conn;
use crate::dump::duration;
use crate::env::{Env, QueueInfo};
use nanos::Nanos;
use openflow::OfError;
use openflow::model::{ALL_QUEUES, Body, Duration, Port, QueueConfig, QueueStats, StatsReply};

/// The most bytes of queues in a reply to OFPT_QUEUE_GET_CONFIG_REQUEST, which is one message.
/// Queue statistics report all queues.
const ROOM: usize = 65_000;

impl Core {
    pub(crate) fn queue_config(&self, conn: &mut Conn, xid: u32, port: Port, env: &impl Env) -> Result<(), OfError> {
        let found = self.queues(port, ALL_QUEUES, env, OfError::QofcBadQueue)?;
        let mut room = ROOM;
        let mut queues = Vec::new();
        for (_, queue) in found {
            let rates = [queue.min_rate, queue.max_rate].into_iter().flatten().count();
            let Some(left) = room.checked_sub(16 * (1 + rates)) else {
                break;
            };
            room = left;
            queues.push(config(&queue));
        }
        conn.send(xid, Body::QueueGetConfigReply { port, queues });
        Ok(())
    }

    pub(crate) fn queue_desc(
        &self,
        conn: &mut Conn,
        xid: u32,
        (port, queue): (Port, u32),
        env: &impl Env,
    ) -> Result<(), OfError> {
        let found = self.queues(port, queue, env, OfError::QofcBadQueue)?;
        let queues = found.iter().map(|(port, queue)| (*port, config(queue))).collect();
        let reply = StatsReply::QueueDesc(queues);
        conn.send(xid, Body::StatsReply { more: false, reply });
        Ok(())
    }

    pub(crate) fn queue_stats(
        &self,
        conn: &mut Conn,
        xid: u32,
        (port, queue): (Port, u32),
        env: &impl Env,
        now: Nanos,
    ) -> Result<(), OfError> {
        let found = self.queues(port, queue, env, OfError::QofcBadQueue)?;
        let stats = found.iter().map(|(port, queue)| QueueStats {
            port: *port,
            queue: queue.number,
            tx_bytes: queue.tx_bytes,
            tx_packets: queue.tx_packets,
            tx_errors: queue.tx_errors,
            duration: queue.since.map_or(Duration::UNKNOWN, |since| duration(since, now)),
        });
        let reply = StatsReply::Queue(stats.collect());
        conn.send(xid, Body::StatsReply { more: false, reply });
        Ok(())
    }

    /// The queues that a request selects by port and number. An empty result is no error if the
    /// request asks for all.
    fn queues(
        &self,
        port: Port,
        queue: u32,
        env: &impl Env,
        missing: OfError,
    ) -> Result<Vec<(Port, QueueInfo)>, OfError> {
        let all = matches!(port, Port::ANY | Port::ALL);
        if !all && self.ports.get(port).is_none() {
            return Err(OfError::QofcBadPort);
        }
        let mut found = Vec::new();
        for (number, name) in self.ports.names().filter(|(number, _)| all || *number == port) {
            let queues = env.queues(name).into_iter();
            let wanted = queues.filter(|info| queue == ALL_QUEUES || info.number == queue);
            found.extend(wanted.map(|info| (number, info)));
        }
        if found.is_empty() && queue != ALL_QUEUES {
            return Err(missing);
        }
        Ok(found)
    }
}

fn config(queue: &QueueInfo) -> QueueConfig {
    QueueConfig {
        queue: queue.number,
        min_rate: queue.min_rate,
        max_rate: queue.max_rate,
    }
}
