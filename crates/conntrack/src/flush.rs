//! Removes connections by zone, tuples, mark and label.

use crate::connection::{Connection, Cursor};
use crate::counters::Ended;
use crate::table::Id;
use crate::table::entry::Kind;
use crate::tracker::{ConnectionId, Tracker};
use crate::tuple::Tuple;
use nanos::Nanos;
use std::net::IpAddr;

/// Which connections to remove. Fields that are `None` fit all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The zone.
    pub zone: Option<u16>,
    /// The original tuple.
    pub original: Part,
    /// The reply tuple.
    pub reply: Part,
    /// Value and mask of the mark.
    pub mark: Option<(u32, u32)>,
    /// Value and mask of the label.
    pub label: Option<(u128, u128)>,
}

/// Part of a tuple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Source address.
    pub src: Option<IpAddr>,
    /// Destination address.
    pub dst: Option<IpAddr>,
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Source port, or identifier of ICMP.
    pub src_port: Option<u16>,
    /// Destination port; of ICMP type and code.
    pub dst_port: Option<u16>,
    /// Type of ICMP.
    pub icmp_type: Option<u8>,
    /// Code of ICMP.
    pub icmp_code: Option<u8>,
}

impl Part {
    /// Whether a tuple fits.
    pub fn fits(&self, tuple: &Tuple) -> bool {
        let (kind, code) = tuple.icmp_type_code();
        let icmp = tuple.is_icmp();
        self.src.is_none_or(|src| src == tuple.src())
            && self.dst.is_none_or(|dst| dst == tuple.dst())
            && self.protocol.is_none_or(|protocol| protocol == tuple.protocol())
            && self.src_port.is_none_or(|port| port == tuple.src_port())
            && self.dst_port.is_none_or(|port| port == tuple.dst_port())
            && self.icmp_type.is_none_or(|own| icmp && own == kind)
            && self.icmp_code.is_none_or(|own| icmp && own == code)
    }
}

impl Filter {
    /// Whether a connection fits.
    pub fn fits(&self, connection: &Connection) -> bool {
        self.zone.is_none_or(|zone| zone == connection.zone)
            && self.original.fits(&connection.original)
            && self.reply.fits(&connection.reply)
            && self
                .mark
                .is_none_or(|(value, mask)| (connection.mark ^ value) & mask == 0)
            && self
                .label
                .is_none_or(|(value, mask)| (connection.label ^ value) & mask == 0)
    }
}

impl Tracker {
    /// Removes the connections that fit among the next `budget` entries of the table, and adds
    /// their number to `removed`; the place for the next call, or `None` at the end.
    pub fn flush_some(&mut self, filter: &Filter, from: Cursor, budget: usize, removed: &mut usize) -> Option<Cursor> {
        self.walk(from, budget, |shared, id, entry| {
            let zone = filter.zone.is_none_or(|zone| zone == entry.kind().zone());
            let fits = zone && filter.fits(&shared.describe(id, entry, Nanos::ZERO));
            if fits && shared.end(id, Ended::Flushed) {
                *removed += 1;
            }
        })
    }

    /// Removes all connections that fit; returns how many. Not for a worker's thread: it visits the
    /// whole table.
    pub fn flush(&mut self, filter: &Filter) -> usize {
        let (mut removed, mut next) = (0, Some(Cursor::default()));
        while let Some(from) = next {
            next = self.flush_some(filter, from, 4096, &mut removed);
        }
        removed
    }

    /// Removes the connection of a zone that has this tuple in one of its directions; false if
    /// there is none.
    pub fn flush_tuple(&mut self, zone: u16, tuple: &Tuple, now: Nanos) -> bool {
        let shared = self.shared.clone();
        self.pin.enter(&shared.table.epochs);
        let kind = Kind::new(tuple, zone, 0);
        let hash = shared.table.hash(tuple, zone);
        let found = shared.table.find(&mut self.views, hash, tuple, kind, now.0);
        let id = found.and_then(|found| {
            let life = shared.table.entry(found.index)?.life();
            Some(Id {
                index: found.index,
                life,
            })
        });
        let removed = id.is_some_and(|id| shared.end(id, Ended::Flushed));
        self.pin.leave();
        removed
    }

    /// Removes one connection; false if it has ended already.
    pub fn remove(&mut self, id: ConnectionId) -> bool {
        let shared = self.shared.clone();
        self.pin.enter(&shared.table.epochs);
        let removed = shared.end(id.0, Ended::Flushed);
        self.pin.leave();
        removed
    }
}
