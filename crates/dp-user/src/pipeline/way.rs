//! Finds the way of packets of established connections, for an offload: each megaflow that the packets
//! meet, and what the tracker does with them between.
//!
//! Only the headers of the packets are needed, because all that decides about them is the same for
//! each packet of one kind, except the flags and numbers of TCP. The offload gives packets to the
//! worker whose flags or numbers could change what the tracker says.

use super::Pipeline;
use crate::megaflow::Way;
use dp::offload::{FLOW_CONNECTIONS, FlowConnection, NewHeaders, OffloadTable, PacketKind};
use dp::{Action, SetField, Track};
use flow::{Connection, Field, Key};
use nanos::Nanos;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;

/// Most megaflows on a way.
const MEGAFLOWS: usize = 8;

/// Where a way ends.
pub(super) struct End {
    /// The megaflow that outputs the packets.
    pub(super) flow: u32,
    /// How many of its actions lie on the way.
    pub(super) done: usize,
    /// The packets' key there.
    pub(super) key: Key,
}

/// Packets on their way.
struct Traveller {
    key: Key,
    way: Way,
    /// The zones that they have passed, and whether they were translated there.
    zones: SmallVec<[(u16, bool); 2]>,
}

impl Pipeline {
    /// The way of packets of a kind, whose key and first megaflow are given; `None` if an offload
    /// cannot forward them.
    pub(super) fn way(
        &mut self,
        kind: &PacketKind,
        key: &Key,
        first: u32,
        table: &Arc<OffloadTable>,
        now: Nanos,
    ) -> Option<(Way, End)> {
        let mut packets = Traveller {
            key: *key,
            way: Way::new(NewHeaders::of(kind)?),
            zones: SmallVec::new(),
        };
        let mut flow = first;
        loop {
            let actions = self.flows.decided_actions(flow)?;
            let done = self.pass(&mut packets, &actions, table, now)?;
            let [Action::Recirc(id)] = actions[done..] else {
                let key = packets.key;
                return Some((packets.way, End { flow, done, key }));
            };
            if packets.way.flows.len() + 1 == MEGAFLOWS {
                return None;
            }
            packets.way.flows.push(flow);
            packets.key.set(Field::RecircId, id.into());
            flow = self.flows.lookup(&packets.key)?;
        }
    }

    /// Does what actions do before they send packets anywhere. Returns how many these are.
    fn pass(
        &mut self,
        packets: &mut Traveller,
        actions: &[Action],
        table: &Arc<OffloadTable>,
        now: Nanos,
    ) -> Option<usize> {
        for (done, action) in actions.iter().enumerate() {
            match action {
                Action::SetField(set) => packets.set(set)?,
                Action::CtClear => packets.key.clear_connection(),
                Action::Ct(track) => self.track(packets, track, table, now)?,
                _ => return Some(done),
            }
        }
        Some(actions.len())
    }

    /// Lets packets pass the tracker.
    fn track(&mut self, packets: &mut Traveller, track: &Track, table: &Arc<OffloadTable>, now: Nanos) -> Option<()> {
        let zone = track.request.zone;
        // The tracker knows translated packets by what an earlier pass has said of them.
        let again = packets.zones.contains(&(zone, true));
        if track.fragments || again || packets.way.connections.len() == FLOW_CONNECTIONS {
            return None;
        }
        let tuple = packets.way.headers.tuple()?;
        let (established, bypassing, epoch) = self.actor.connections.bypass(&track.request, &tuple, table, now)?;
        packets.zones.push((zone, established.to != tuple));
        packets.way.headers.set_tuple(&established.to);
        packets.set_tuple(&established.to);
        packets.key.clear_connection();
        packets.key.set_connection(&Connection {
            state: established.state.bits(),
            zone,
            mark: established.mark,
            label: established.label,
            original: Some(crate::actions::original_tuple(&established.original)),
            id: 0,
        });
        let connection = FlowConnection {
            number: bypassing.number(),
            reply: established.reply,
            tcp: established.tcp,
        };
        packets.way.add(connection, bypassing, epoch);
        Some(())
    }
}

impl Traveller {
    /// Sets a field of the headers.
    fn set(&mut self, set: &SetField) -> Option<()> {
        self.way.headers.set(set).ok()?;
        let field = set.field();
        self.key.set(field, self.key.get(field) & !set.mask() | set.value());
        Some(())
    }

    fn set_tuple(&mut self, tuple: &conntrack::Tuple) {
        for (address, v4, v6) in [
            (tuple.src(), Field::Ipv4Src, Field::Ipv6Src),
            (tuple.dst(), Field::Ipv4Dst, Field::Ipv6Dst),
        ] {
            match address {
                IpAddr::V4(address) => self.key.set(v4, address.to_bits().into()),
                IpAddr::V6(address) => self.key.set(v6, address.to_bits()),
            }
        }
        self.key.set(Field::TpSrc, tuple.src_port().into());
        self.key.set(Field::TpDst, tuple.dst_port().into());
    }
}
