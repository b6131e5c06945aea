//! Finds the way of packets of established connections, and of packets that a hash distributes, for
//! an offload: each megaflow that the packets meet, and what the tracker does with them between.
//!
//! Only the headers of the packets are needed, because all that decides about them is the same for
//! each packet of one kind, except the flags and numbers of TCP. The offload gives packets to the
//! worker whose flags or numbers could change what the tracker says.

use super::Pipeline;
use crate::megaflow::Way;
use conntrack::{Established, Tuple};
use dp::offload::{FLOW_CONNECTIONS, FlowConnection, NewHeaders, OffloadTable, PacketKind};
use dp::{Action, SetField, Track};
use flow::{Connection, Field, Key};
use nanos::Nanos;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;

/// Most megaflows on a way.
const MEGAFLOWS: usize = 8;

/// Packets on their way to the megaflow that outputs them.
pub(super) struct Traveller {
    /// Their key there.
    pub(super) key: Key,
    /// Their headers there.
    pub(super) headers: NewHeaders,
    /// The megaflow that they have come to.
    pub(super) flow: u32,
    /// How many of its actions lie on the way.
    pub(super) done: usize,
    /// The megaflows before.
    before: SmallVec<[u32; 2]>,
    tracked: SmallVec<[Passage; FLOW_CONNECTIONS]>,
}

/// What the tracker has said of packets.
struct Passage {
    track: Arc<Track>,
    tuple: Tuple,
    said: Established,
}

impl Passage {
    fn translates(&self) -> bool {
        self.said.to != self.tuple
    }
}

impl Pipeline {
    /// Follows packets of a kind, whose key and first megaflow are given, to the megaflow that
    /// outputs them; `None` if an offload cannot forward them.
    pub(super) fn follow(&mut self, kind: &PacketKind, key: &Key, first: u32, now: Nanos) -> Option<Traveller> {
        let mut packets = Traveller {
            key: *key,
            headers: NewHeaders::of(kind),
            flow: first,
            done: 0,
            before: SmallVec::new(),
            tracked: SmallVec::new(),
        };
        let arrived = self.go(&mut packets, now);
        if arrived.is_none() && !packets.tracked.is_empty() {
            self.flows.did_not_arrive(kind, now);
        }
        // Only packets of connections get new headers.
        arrived.filter(|()| !packets.tracked.is_empty() || !packets.headers.differ())?;
        Some(packets)
    }

    fn go(&mut self, packets: &mut Traveller, now: Nanos) -> Option<()> {
        loop {
            let actions = self.flows.decided_actions(packets.flow)?;
            packets.done = self.pass(packets, &actions, now)?;
            let id = match &actions[packets.done..] {
                [Action::Recirc(id)] => *id,
                [Action::RecircByHash { id, hash }] => {
                    if !dp::offload::is_hash_decided(hash) {
                        return None;
                    }
                    id.with_hash(hash.short(&packets.key)).0
                }
                _ => return Some(()),
            };
            // A megaflow counts its packets once.
            if packets.before.len() + 1 == MEGAFLOWS || packets.before.contains(&packets.flow) {
                return None;
            }
            packets.before.push(packets.flow);
            packets.key.set(Field::RecircId, id.into());
            packets.flow = self.flows.lookup(&packets.key)?;
        }
    }

    /// The way that packets have gone, with their connections open for an offload; `None` if one of
    /// these has changed meanwhile, or there are too many.
    pub(super) fn open_way(&mut self, packets: &Traveller, table: &Arc<OffloadTable>, now: Nanos) -> Option<Way> {
        let mut way = Way::new(packets.headers, packets.before.clone());
        for Passage { track, tuple, said } in &packets.tracked {
            let (established, bypassing, epoch) = self.actor.connections.bypass(&track.request, tuple, table, now)?;
            if established != *said {
                return None;
            }
            let connection = FlowConnection {
                number: bypassing.number(),
                reply: said.reply,
                tcp: said.tcp,
            };
            way.add(connection, bypassing, epoch);
        }
        Some(way)
    }

    /// Does what actions do before they send packets anywhere. Returns how many these are.
    fn pass(&mut self, packets: &mut Traveller, actions: &[Action], now: Nanos) -> Option<usize> {
        for (done, action) in actions.iter().enumerate() {
            match action {
                Action::SetField(set) => packets.set(set)?,
                Action::CtClear => packets.key.clear_connection(),
                Action::Ct(track) => self.track(packets, track, now)?,
                _ => return Some(done),
            }
        }
        Some(actions.len())
    }

    /// Lets packets pass the tracker.
    fn track(&mut self, packets: &mut Traveller, track: &Arc<Track>, now: Nanos) -> Option<()> {
        let zone = track.request.zone;
        // The tracker knows translated packets by what an earlier pass has said of them.
        let mut earlier = packets.tracked.iter().filter(|one| one.track.request.zone == zone);
        if track.fragments || packets.tracked.len() == FLOW_CONNECTIONS || earlier.any(Passage::translates) {
            return None;
        }
        let tuple = packets.headers.tuple()?;
        let said = self.actor.connections.established(&track.request, &tuple, now)?;
        packets.headers.set_tuple(&said.to);
        packets.set_tuple(&said.to);
        packets.key.clear_connection();
        packets.key.set_connection(&Connection {
            state: said.state.bits(),
            zone,
            mark: said.mark,
            label: said.label,
            original: Some(crate::actions::original_tuple(&said.original)),
            id: 0,
        });
        packets.tracked.push(Passage {
            track: track.clone(),
            tuple,
            said,
        });
        Some(())
    }
}

impl Traveller {
    /// Sets a field of the headers.
    fn set(&mut self, set: &SetField) -> Option<()> {
        self.headers.set(set).ok()?;
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
