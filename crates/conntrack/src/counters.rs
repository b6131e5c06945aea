//! What the tracker counts besides the packets of each connection.

use crate::packet::Invalid;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// There are as many connections as there may be, and none of them is half-open.
    Full,
    /// The zone has as many connections as it may have.
    ZoneFull,
    /// The table cannot grow any more.
    NoMemory,
    /// A connection of the zone has one of its tuples already.
    TupleTaken,
    /// No address and port of the range is free, or the range is of the other family. The packet
    /// must not leave untranslated.
    NatExhausted,
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// It timed out.
    Expired,
    /// It was half-open, and others needed its place.
    Evicted,
    /// A command removed it.
    Flushed,
    /// A packet began another connection with its tuple, or a rule with `force` did.
    Replaced,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Events since the tracker was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Statistics {
            /// All of them, with their names in `coverage/show`.
            pub fn named(self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((concat!("conntrack_", stringify!($name)), self.$name)),*].into_iter()
            }
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Statistics {
                Statistics { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Connections made.
    created,
    /// Connections that timed out.
    expired,
    /// Half-open connections that others replaced.
    evicted,
    /// Connections that a command removed.
    flushed,
    /// Connections that a packet or a rule replaced.
    replaced,
    /// Connections refused at the total.
    full,
    /// Connections refused at their zone's limit.
    zone_full,
    /// Connections refused since the table cannot grow.
    no_memory,
    /// Connections refused since another one has the tuple.
    tuple_taken,
    /// Connections refused since NAT has no free tuple for them.
    nat_exhausted,
    /// Announced connections that are not expected, since there are too many.
    expectations_refused,
    /// Announcements of an address that is not the sender's own, or in lines that cannot be changed
    /// as NAT needs it.
    announcements_ignored,
    /// Packets that are cut short or contradict themselves.
    malformed,
    /// Packets with a wrong checksum.
    bad_checksum,
    /// Fragments.
    fragment,
    /// ICMP packets that are neither queries nor errors.
    icmp_other,
    /// ICMP errors about no known connection.
    unrelated,
    /// Packets with which no connection begins.
    beginning,
    /// Packets whose numbers or flags do not fit their connection.
    out_of_state,
}

impl Counters {
    pub(crate) fn invalid(&self, why: Invalid) {
        let counter = match why {
            Invalid::Malformed => &self.malformed,
            Invalid::Checksum => &self.bad_checksum,
            Invalid::Fragment => &self.fragment,
            Invalid::Icmp => &self.icmp_other,
            Invalid::Unrelated => &self.unrelated,
            Invalid::Beginning => &self.beginning,
            Invalid::OutOfState => &self.out_of_state,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, why: Refusal) {
        let counter = match why {
            Refusal::Full => &self.full,
            Refusal::ZoneFull => &self.zone_full,
            Refusal::NoMemory => &self.no_memory,
            Refusal::TupleTaken => &self.tuple_taken,
            Refusal::NatExhausted => &self.nat_exhausted,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, why: Ended) {
        let counter = match why {
            Ended::Expired => &self.expired,
            Ended::Evicted => &self.evicted,
            Ended::Flushed => &self.flushed,
            Ended::Replaced => &self.replaced,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
