//! Offload by the kernel's eBPF: [`Ebpf`] is a [`FlowOffload`].
//!
//! The programs are in `bpf/offload.c`, which says how a packet meets them. `cargo xtask bpf`
//! builds the object, which is committed, so that a build needs no clang. They share maps with the
//! process: flows by packet kind, counters of flows and ports, and epochs. Counters and epochs lie
//! in memory that both have, so that to read or to advance one needs no system call.
//!
//! Limits
//! - An IP packet leaves by up to [`MAX_OUTPUTS`] devices, by each unchanged, with one VLAN tag or
//!   without. All else is [`Refused::Unsupported`], by [`dp::offload::Outputs::of`].
//! - Outer headers are those of [`dp::offload::OuterHeaders`] and [`PacketKind::of_tunnel`].
//! - Packets of TCP and UDP can get new headers, up to the ports: the fields of
//!   [`dp::offload::NewHeaders`].
//! - A flow has up to [`FLOW_CONNECTIONS`] connections. Numbers of TCP are checked as
//!   [`dp::offload::FlowConnection`] says.
//! - Packets are not cut: the kernel cannot fill in a pending checksum before.
//! - Linux 5.11, and the right to load programs; 5.13 for flows into tunnels, 6.3 for those out of
//!   tunnels with another version of IP inside.
//!
//! Tunnels, tried with VXLAN and Geneve between veth pairs on Linux 6.18
//! - `bpf_skb_adjust_room` encapsulates and decapsulates segments whole. It needs
//!   `BPF_F_ADJ_ROOM_FIXED_GSO`: without it the segment size changes by the length of the outer
//!   headers, so that packets become too long for the receiver.
//! - It cannot ask for checksums of the outer UDP headers of the packets that are cut from a
//!   segment (`SKB_GSO_UDP_TUNNEL_CSUM`): the kernel copies the segment's. A segment gets the
//!   checksum of one of these packets, which is right for all if they are of one length, since it
//!   depends on lengths and on headers that are the same. So the size of packets of TCP becomes
//!   the largest one that divides the data, down to an eighth of what it was: room that is added
//!   without `BPF_F_ADJ_ROOM_FIXED_GSO` and removed with it makes the size smaller. If there is
//!   none, and for datagrams, the segment goes to its worker, and later packets of the flow too
//!   until the worker has sent it. Receivers on the same machine, which get a segment uncut, do not
//!   look at its checksum.
//! - `BPF_F_ADJ_ROOM_DECAP_L3_IPV6` is needed for the kernel to know that what is inside of IPv4 is
//!   IPv6, and the other way round, and Linux before 6.3 refuses it: then such packets stay with
//!   their worker. Into a tunnel they go.
//! - A decapsulated packet keeps its mark as a tunnel segment. If it leaves by a device without
//!   segmentation of UDP tunnels, the kernel cuts it in software: right, but at less than half the
//!   speed on 6.18 and at a fifth on 6.1. Of datagrams (`UDP_SEGMENT`) it takes the header for that
//!   of a tunnel, and drops them: such segments go to their worker.
//! - A packet that is marked as a tunnel's gets no outer headers (`EALREADY`). A program cannot see
//!   the mark, so the packet comes in once more for its worker, and the later ones of its flow go
//!   there at once.
#![allow(unsafe_code, reason = "shared memory and the layout of map values")]
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

use aya::programs::{SchedClassifier, SocketFilter, TestRun, TestRunOptions};
use aya::{Pod, include_bytes_aligned};
use connections::{CONNECTION_WORDS, Tracked};
use conntrack::{Numbers, Passed};
use dp::Carried;
use dp::offload::{ANY_GIVEN, NONE_GIVEN, NewFlow, NewOutput, OuterHeaders, PacketKind, PortCarried, Refused, Rewrite};
use dp::offload::{FLOW_CONNECTIONS, FLOW_EPOCHS, FlowOffload, InnerKind};
use dp::offload::{MAX_CONNECTIONS, MAX_EPOCHS, MAX_FLOWS, MAX_OUTPUTS, MAX_PORTS, NO_EPOCH};
use flows::Flows;
use nanos::Nanos;
use netdev::programs::{loader, missing, own, program};
use netdev::{IngressPrograms, Kept, Rx};
use parking_lot::Mutex;
use shared::SharedArray;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sys::Error;
use wire::VlanTag;

mod connections;
mod flows;
mod left;
mod shared;

pub use left::Left;

/// The kernel's programs, and the memory that they share with the process.
pub struct Ebpf {
    flows: Mutex<Flows>,
    /// By flow.
    counters: SharedArray,
    /// By port.
    ports: SharedArray,
    /// By connection.
    connections: SharedArray,
    /// In one row.
    epochs: SharedArray,
    filter: OwnedFd,
    redirect: OwnedFd,
    /// What a process before has left in force.
    left: Option<Arc<Left>>,
    /// Whether the flows were left to another process: then nothing here changes them.
    ended: AtomicBool,
    /// Whether the kernel can add outer headers.
    adds_outer: bool,
    /// Whether it can remove those of another version of IP.
    removes_mixed: bool,
    /// For its filter that can be asked about packets that no device has received.
    #[cfg(test)]
    object: Mutex<aya::Ebpf>,
}

/// `struct flow` of `bpf/offload.c`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flow {
    number: u32,
    ticket: u32,
    from: u32,
    longest: u32,
    pop: u32,
    push: u32,
    sums: u32,
    new_headers: u32,
    ip_len: u32,
    connection_count: u32,
    connections: [Tracked; FLOW_CONNECTIONS],
    epoch_count: u32,
    output_count: u32,
    first: Output,
    epochs: [u32; FLOW_EPOCHS],
    others: [Output; MAX_OUTPUTS - 1],
}

/// `struct output`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Output {
    device: u32,
    port: u32,
    tag: u32,
}

/// Where packets with a tag leave.
fn outputs(new: &[NewOutput], tag: Option<VlanTag>) -> impl Iterator<Item = Output> {
    let word = |tag: VlanTag| u32::from(tag.tpid.to_be()) << 16 | u32::from(tag.tci);
    let mut tag = tag.map_or(0, word);
    new.iter().map(move |output| {
        match output.egress.rewrite {
            None => {}
            Some(Rewrite::PushVlan(pushed)) => tag = word(pushed),
            Some(Rewrite::PopVlan) => tag = 0,
        }
        Output {
            device: output.ifindex,
            port: output.to,
            tag,
        }
    })
}

// SAFETY: it is made of numbers without bytes between them, and any bytes are one.
unsafe impl Pod for Flow {}

/// Words of `struct flow_counters`, and their number.
const SUM: usize = 0;
const TICKET: usize = 1;
const PACKETS: usize = 2;
const BYTES: usize = 3;
const USED: usize = 4;
const GIVEN: usize = 5;
const SETTLED: usize = 6;
const REFUSED: usize = 7;
const FLOW_WORDS: usize = 8;

/// Words of `struct port_counters`.
const RX_PACKETS: usize = 0;
const RX_BYTES: usize = 1;
const TX_PACKETS: usize = 2;
const TX_BYTES: usize = 3;
const TX_DROPPED: usize = 4;
const PORT_WORDS: usize = 8;

/// `EPOCHS_AT_ONCE`
const EPOCHS_AT_ONCE: usize = 4;
/// No sum of epochs.
const NEVER: u64 = u64::MAX;

const LOAD: &str = "bpf(BPF_PROG_LOAD)";
const MAP: &str = "bpf(BPF_MAP_CREATE)";

impl Ebpf {
    /// Loads the programs, for no flows yet. Needs `CAP_BPF` and `CAP_NET_ADMIN`, or
    /// `CAP_SYS_ADMIN`.
    ///
    /// Until what a process before has left is [ended](Left::end), queues that are attached leave
    /// its flows in force; flows that are opened here have an effect from the next time on that the
    /// queues are attached.
    ///
    /// # Errors
    /// The kernel's: `EPERM`, `ENOSYS` without BPF, `EINVAL` before Linux 5.11.
    pub fn load(left: Option<Arc<Left>>) -> sys::Result<Ebpf> {
        let object = loader().load(include_bytes_aligned!("../bpf/offload.o"));
        let mut object = object.map_err(Error::behind(MAP))?;
        let filter: &mut SocketFilter = program(&mut object, "oxvs_offload")?;
        filter.load().map_err(Error::behind(LOAD))?;
        let filter = own(filter.fd())?;
        let redirect: &mut SchedClassifier = program(&mut object, "oxvs_redirect")?;
        redirect.load().map_err(Error::behind(LOAD))?;
        let redirect = own(redirect.fd())?;
        let adds_outer = succeeds(&mut object, "oxvs_try_outer")?;
        let removes_mixed = succeeds(&mut object, "oxvs_try_mixed")?;
        #[cfg(test)]
        program::<SchedClassifier>(&mut object, "oxvs_probe")?
            .load()
            .map_err(Error::behind(LOAD))?;
        Ok(Ebpf {
            flows: Mutex::new(Flows::of(&mut object)?),
            counters: array(&mut object, "oxvs_counters", MAX_FLOWS as usize, FLOW_WORDS)?,
            ports: array(&mut object, "oxvs_ports", MAX_PORTS as usize, PORT_WORDS)?,
            connections: array(
                &mut object,
                "oxvs_connections",
                MAX_CONNECTIONS as usize,
                CONNECTION_WORDS,
            )?,
            epochs: array(&mut object, "oxvs_epochs", 1, MAX_EPOCHS as usize)?,
            filter,
            redirect,
            left,
            ended: AtomicBool::new(false),
            adds_outer,
            removes_mixed,
            #[cfg(test)]
            object: Mutex::new(object),
        })
    }
}

impl Ebpf {
    /// Whether the flows were left to another process.
    fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }
}

/// Whether a program that tries what the kernel can do to a packet succeeds.
fn succeeds(object: &mut aya::Ebpf, name: &str) -> sys::Result<bool> {
    let program: &mut SchedClassifier = program(object, name)?;
    program.load().map_err(Error::behind(LOAD))?;
    let mut packet = [0; 128];
    // IPv4, with no fields that matter.
    packet[12..15].copy_from_slice(&[8, 0, 0x45]);
    let tried = program.test_run(TestRunOptions {
        data_in: Some(&packet),
        ..TestRunOptions::default()
    });
    Ok(tried.is_ok_and(|run| run.return_value == 0))
}

/// An array of `rows` rows of `words` words.
fn array(object: &mut aya::Ebpf, name: &str, rows: usize, words: usize) -> sys::Result<SharedArray> {
    match object.take_map(name) {
        Some(aya::maps::Map::Array(map)) => SharedArray::new(map, rows, words),
        _ => Err(missing(name)),
    }
}

impl FlowOffload for Ebpf {
    fn attach(&self, queue: &mut dyn Rx) -> io::Result<bool> {
        if let Some(left) = self.left.as_ref().filter(|left| !left.has_ended()) {
            return queue.attach_programs(left.programs());
        }
        queue.attach_programs(IngressPrograms {
            filter: self.filter.as_fd(),
            redirect: self.redirect.as_fd(),
        })
    }

    fn leave(&self) -> io::Result<Option<Vec<OwnedFd>>> {
        self.ended.store(true, Release);
        // Workers do not report any more which packets they have sent.
        for flow in 0..MAX_FLOWS {
            self.counters.row(flow)[SETTLED].store(ANY_GIVEN, Release);
        }
        let all = [
            self.filter.as_fd(),
            self.redirect.as_fd(),
            self.connections.fd(),
            self.epochs.fd(),
        ];
        let all: io::Result<_> = all.into_iter().map(|fd| fd.try_clone_to_owned()).collect();
        all.map(Some)
    }

    fn keep(&self, queue: &dyn Rx) -> io::Result<Option<Kept>> {
        queue.keep(self.filter.as_fd())
    }

    fn removes_mixed(&self) -> bool {
        self.removes_mixed
    }

    fn open(&self, new: &NewFlow<'_>) -> Result<(), Refused> {
        if self.has_ended() {
            return Err(Refused::Unsupported("flows while the process ends"));
        }
        let count = new.epochs.len().next_multiple_of(EPOCHS_AT_ONCE);
        if count > FLOW_EPOCHS {
            return Err(Refused::Unsupported("flow with so many epochs"));
        }
        if new.steps.push.is_some() && !self.adds_outer {
            return Err(Refused::Unsupported("outer headers before Linux 5.13"));
        }
        if !(1..=MAX_OUTPUTS).contains(&new.outputs.len()) {
            return Err(Refused::Unsupported("list of so many outputs"));
        }
        let mut to = [Output::default(); MAX_OUTPUTS];
        // Behind outer headers is no tag.
        let tag = new.kind.tag().filter(|_| new.steps.push.is_none());
        for (place, output) in to.iter_mut().zip(outputs(new.outputs, tag)) {
            *place = output;
        }
        let [first, others @ ..] = to;
        let devices = new.outputs.iter().map(|output| output.egress.longest);
        let longest = devices.chain(new.steps.push.map(OuterHeaders::longest)).min();
        let push = new.steps.push.map_or(0, |push| push.bytes().len() as u32);
        let connections = Tracked::all(new.steps.connections)?;
        let row = self.counters.row(new.number);
        let ticket = row[TICKET].load(Relaxed).wrapping_add(1) & u64::from(u32::MAX);
        let mut epochs = [NO_EPOCH; FLOW_EPOCHS];
        epochs[..new.epochs.len()].copy_from_slice(new.epochs);
        let flow = Flow {
            number: new.number,
            ticket: ticket as u32,
            from: new.from,
            longest: longest.unwrap_or_default().saturating_sub(push),
            pop: new.kind.inner().map_or(0, InnerKind::start),
            push,
            sums: new.steps.push.is_some_and(OuterHeaders::has_checksum).into(),
            new_headers: new.steps.headers.is_some().into(),
            ip_len: if new.kind.headers()[14] >> 4 == 6 { 40 } else { 20 },
            connection_count: new.steps.connections.len() as u32,
            connections,
            epoch_count: count as u32,
            output_count: new.outputs.len() as u32,
            first,
            epochs,
            others,
        };
        row[SUM].store(NEVER, Release);
        row[TICKET].store(ticket, Release);
        for word in [PACKETS, BYTES, USED, REFUSED] {
            row[word].store(0, Relaxed);
        }
        row[SETTLED].store(NONE_GIVEN, Relaxed);
        row[GIVEN].store(NONE_GIVEN + 1, Release);
        self.resume(new.number, new.sum);
        let mut flows = self.flows.lock();
        let opened = flows.insert(new.kind, flow, &new.steps);
        if opened.is_err() {
            // What could not be removed is there for nothing.
            let _ = flows.remove_headers(new.number);
        }
        opened
    }

    fn resume(&self, flow: u32, sum: u64) {
        if self.has_ended() {
            return;
        }
        self.counters.row(flow)[SUM].store(sum, Release);
    }

    fn given(&self, flow: u32) -> u64 {
        self.counters.row(flow)[GIVEN].load(Acquire)
    }

    fn settle(&self, flow: u32, given: u64) {
        if self.has_ended() {
            return;
        }
        self.counters.row(flow)[SETTLED].store(given, Release);
    }

    fn suspend(&self, flow: u32) {
        if self.has_ended() {
            return;
        }
        self.counters.row(flow)[SUM].store(NEVER, Release);
    }

    fn close(&self, flow: u32, kind: &PacketKind) -> io::Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        self.flows.lock().remove(flow, kind)
    }

    fn carried(&self, flow: u32) -> Carried {
        let row = self.counters.row(flow);
        Carried {
            packets: row[PACKETS].load(Acquire),
            bytes: row[BYTES].load(Relaxed),
            used: Nanos(row[USED].load(Relaxed)),
        }
    }

    fn port_carried(&self, port: u32) -> PortCarried {
        let row = self.ports.row(port);
        PortCarried {
            rx_packets: row[RX_PACKETS].load(Relaxed),
            rx_bytes: row[RX_BYTES].load(Relaxed),
            tx_packets: row[TX_PACKETS].load(Relaxed),
            tx_bytes: row[TX_BYTES].load(Relaxed),
            tx_dropped: row[TX_DROPPED].load(Relaxed),
        }
    }

    fn reset_port(&self, port: u32) {
        if self.has_ended() {
            return;
        }
        for word in self.ports.row(port) {
            word.store(0, Relaxed);
        }
    }

    fn reset_connection(&self, number: u32) {
        if self.has_ended() {
            return;
        }
        connections::reset(&self.connections, number);
    }

    fn passed(&self, number: u32) -> Passed {
        connections::passed(&self.connections, number)
    }

    fn note(&self, number: u32, numbers: [Numbers; 2]) {
        if self.has_ended() {
            return;
        }
        connections::note(&self.connections, number, numbers);
    }

    fn advance(&self, epoch: u32) {
        if self.has_ended() {
            return;
        }
        self.epochs.row(0)[epoch as usize].fetch_add(1, Release);
    }

    fn epoch(&self, epoch: u32) -> u64 {
        self.epochs.row(0)[epoch as usize].load(Acquire)
    }
}

#[cfg(test)]
mod tests;
