//! A reactive controller: it learns addresses as a learning switch does, and answers each
//! packet-in.

use super::connection::Connection;
use super::rules::mac;
use anyhow::{Context, Result};
use flow::MatchField;
use openflow::model::{Body, FlowCommand, Match, PacketIn, PacketOut, Port};
use openflow::text::{Names, parse_actions};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// The policy for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Learns its source; sends it on, and leaves a rule for its two addresses (idle for 10 s at
    /// most), as soon as the destination is known.
    Learn,
    /// Learns and sends on, but installs no rule: every packet is a packet-in.
    Forward,
    /// Only counts.
    Count,
}

/// A controller that runs. Dropping it ends it.
pub struct Learning {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    policy: Policy,
    stop: AtomicBool,
    connected: AtomicU64,
    asked: AtomicU64,
}

impl Learning {
    /// Listens on 127.0.0.1 in the namespace of the calling thread; any number of switches may
    /// connect.
    ///
    /// # Errors
    /// No socket.
    pub fn start(policy: Policy) -> Result<Learning> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("a controller's socket")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            policy,
            stop: AtomicBool::new(false),
            connected: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("controller".to_owned())
            .spawn(move || listen(&listener, &for_thread))?;
        Ok(Learning {
            address,
            shared,
            thread: Some(thread),
        })
    }

    /// Where switches find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of packet-ins so far.
    pub fn packet_ins(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// Waits until this many switches are connected.
    ///
    /// # Errors
    /// They do not within the time given.
    pub fn await_switches(&self, number: u64, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        while self.shared.connected.load(Ordering::Relaxed) < number {
            anyhow::ensure!(
                Instant::now() < until,
                "no switch connects to its controller at {}",
                self.address
            );
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Learning {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    thread::scope(|scope| {
        while !shared.stop.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((stream, _)) => {
                    scope.spawn(|| {
                        // A switch that disconnects or sends an invalid message reconnects.
                        let _ = serve(stream, shared);
                    });
                }
                Err(_) => thread::sleep(LOOK.min(Duration::from_millis(5))),
            }
        }
    });
}

fn serve(stream: TcpStream, shared: &Shared) -> Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    let mut connection = Connection::open(stream)?;
    // Without a rule an OpenFlow 1.0 switch sends a packet-in, here with the whole packet.
    let config = openflow::model::Config {
        flags: 0,
        miss_send_len: u16::MAX,
    };
    connection.send(Body::SetConfig(config))?;
    connection.rule(FlowCommand::Add, "priority=0,actions=CONTROLLER:65535")?;
    connection.barrier()?;
    shared.connected.fetch_add(1, Ordering::Relaxed);
    let mut places = HashMap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let Some(message) = connection.receive_until(Instant::now() + LOOK)? else {
            continue;
        };
        if let Body::PacketIn(packet) = message.body {
            shared.asked.fetch_add(1, Ordering::Relaxed);
            answer(&mut connection, *packet, shared.policy, &mut places)?;
            connection.flush()?;
        }
    }
    Ok(())
}

fn answer(
    connection: &mut Connection,
    packet: PacketIn,
    policy: Policy,
    places: &mut HashMap<[u8; 6], u32>,
) -> Result<()> {
    let in_port = packet
        .metadata
        .exact(MatchField::InPort)
        .or(packet.metadata.exact(MatchField::InPortOxm));
    let (Some(in_port), Some(addresses)) = (in_port, packet.data.first_chunk::<12>()) else {
        return Ok(());
    };
    if policy == Policy::Count {
        return Ok(());
    }
    let in_port = in_port as u32;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
    let (destination, source) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
    places.insert(source, in_port);
    let known = places.get(&destination).copied();
    let actions = match known {
        Some(port) => format!("output:{port}"),
        None => "FLOOD".to_owned(),
    };
    if known.is_some() && policy == Policy::Learn {
        let matched = format!("in_port={in_port},dl_src={},dl_dst={}", mac(source), mac(destination));
        let rule = format!("priority=100,idle_timeout=10,{matched},actions={actions}");
        connection.rule(FlowCommand::Add, &rule)?;
    }
    let out = PacketOut {
        buffer_id: None,
        in_port: Port(in_port),
        metadata: Match::ANY,
        actions: parse_actions(&actions, &Names::default())?,
        data: packet.data,
    };
    connection.send(Body::PacketOut(Box::new(out)))?;
    Ok(())
}
