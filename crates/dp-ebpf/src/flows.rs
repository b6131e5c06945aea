//! The flows that the programs look for, and the outer headers that they add.

use crate::connections::Headers;
use crate::{Flow, MAP};
use aya::Pod;
use aya::maps::{HashMap, MapData};
use dp::offload::{InnerKind, MAX_OUTER, PacketKind, Refused, Steps, TunnelHeader};
use netdev::programs::missing;
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use sys::Error;

const BPF_ANY: u64 = 0;
const BPF_NOEXIST: u64 = 1;
const UPDATE: &str = "bpf(BPF_MAP_UPDATE_ELEM)";
const DELETE: &str = "bpf(BPF_MAP_DELETE_ELEM)";

/// Maps of flows.
pub(crate) struct Flows {
    plain: HashMap<MapData, [u8; PacketKind::SIZE], Flow>,
    /// Out of tunnels.
    tunnels: HashMap<MapData, TunnelKind, Flow>,
    /// Formats of tunnels by UDP port, in network order.
    ports: HashMap<MapData, [u8; 2], u32>,
    /// Outer headers by flow.
    outer: HashMap<MapData, u32, Outer>,
    /// New headers by flow.
    headers: HashMap<MapData, u32, Headers>,
    /// Flows with outer headers.
    pushing: HashSet<u32>,
    /// Flows with new headers.
    changing: HashSet<u32>,
}

/// `struct tunnel_kind` of `bpf/tunnel.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TunnelKind {
    outer: [u8; PacketKind::SIZE],
    inner: [u8; InnerKind::SIZE],
}

// SAFETY: it is made of bytes without others between them, and any bytes are one.
unsafe impl Pod for TunnelKind {}

/// `struct outer`
#[repr(C)]
#[derive(Clone, Copy)]
struct Outer {
    ticket: u32,
    len: u32,
    headers: [u8; MAX_OUTER],
}

// SAFETY: it is made of numbers without bytes between them, and any bytes are one.
unsafe impl Pod for Outer {}

impl Flows {
    pub(crate) fn of(object: &mut aya::Ebpf) -> sys::Result<Flows> {
        Ok(Flows {
            plain: map(object, "oxvs_flows")?,
            tunnels: map(object, "oxvs_tunnel_flows")?,
            ports: map(object, "oxvs_tunnel_ports")?,
            outer: map(object, "oxvs_outer")?,
            headers: map(object, "oxvs_headers")?,
            pushing: HashSet::new(),
            changing: HashSet::new(),
        })
    }

    /// Adds a flow.
    ///
    /// # Errors
    /// As [`dp::offload::FlowOffload::open`].
    pub(crate) fn insert(&mut self, kind: &PacketKind, flow: Flow, steps: &Steps<'_>) -> Result<(), Refused> {
        // The headers first: a flow that is found has them.
        if let Some(headers) = steps.headers {
            self.changing.insert(flow.number);
            let headers = Headers::of(headers, flow.ticket);
            self.headers.insert(flow.number, headers, BPF_ANY).map_err(refused)?;
        }
        if let Some(push) = steps.push {
            let mut outer = Outer {
                ticket: flow.ticket,
                len: flow.push,
                headers: [0; MAX_OUTER],
            };
            outer.headers[..push.bytes().len()].copy_from_slice(push.bytes());
            self.pushing.insert(flow.number);
            self.outer.insert(flow.number, outer, BPF_ANY).map_err(refused)?;
        }
        let Some(inner) = kind.inner() else {
            return self.plain.insert(kind.bytes(), flow, BPF_NOEXIST).map_err(refused);
        };
        let header: u32 = match inner.header() {
            TunnelHeader::Fixed => 1,
            TunnelHeader::Options => 2,
        };
        let port = kind.outer_port();
        if self.ports.get(&port, 0).ok() != Some(header) {
            self.ports.insert(port, header, BPF_ANY).map_err(refused)?;
        }
        self.tunnels
            .insert(TunnelKind::of(kind, inner), flow, BPF_NOEXIST)
            .map_err(refused)
    }

    /// Removes the flow with this number.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn remove(&mut self, flow: u32, kind: &PacketKind) -> io::Result<()> {
        let removed = match kind.inner() {
            Some(inner) => self.tunnels.remove(&TunnelKind::of(kind, inner)),
            None => self.plain.remove(kind.bytes()),
        };
        self.remove_headers(flow)?;
        Ok(removed.map_err(Error::behind(DELETE))?)
    }

    /// Removes the outer and the new headers of a flow, if it has some.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn remove_headers(&mut self, flow: u32) -> io::Result<()> {
        if self.changing.remove(&flow) {
            self.headers.remove(&flow).map_err(Error::behind(DELETE))?;
        }
        if self.pushing.remove(&flow) {
            self.outer.remove(&flow).map_err(Error::behind(DELETE))?;
        }
        Ok(())
    }
}

impl TunnelKind {
    fn of(kind: &PacketKind, inner: &InnerKind) -> TunnelKind {
        TunnelKind {
            outer: *kind.bytes(),
            inner: *inner.bytes(),
        }
    }
}

fn map<K: Pod, V: Pod>(object: &mut aya::Ebpf, name: &str) -> sys::Result<HashMap<MapData, K, V>> {
    let map = object.take_map(name).ok_or_else(|| missing(name))?;
    HashMap::try_from(map).map_err(Error::behind(MAP))
}

fn refused(error: aya::maps::MapError) -> Refused {
    let error = Error::behind(UPDATE)(error);
    match error.errno() == Some(Errno::EXIST.raw_os_error()) {
        true => Refused::Taken,
        false => Refused::Kernel(error.into()),
    }
}
