//! The way of packets of established connections, and of packets that a hash distributes: through
//! several megaflows and perhaps the tracker.

use conntrack::{Bypass, Bypassing};
use dp::offload::{FLOW_CONNECTIONS, FlowConnection, NewHeaders, OffloadTable};
use smallvec::SmallVec;
use std::sync::Arc;

/// What stands between the first megaflow of packets of one kind and the one that outputs them.
///
/// It stays right as long as the megaflows are cached and no epoch of a connection advances: the
/// tracker says the same of each of these packets that an offload forwards.
pub(crate) struct Way {
    /// The megaflows before the one that outputs the packets.
    pub(crate) flows: SmallVec<[u32; 2]>,
    pub(crate) connections: SmallVec<[FlowConnection; FLOW_CONNECTIONS]>,
    /// The headers that packets leave with.
    pub(crate) headers: NewHeaders,
    /// Keeps the connections open, and their numbers.
    pub(crate) bypassing: SmallVec<[Bypassing; FLOW_CONNECTIONS]>,
    /// The values of the connections' epochs before the tracker was asked.
    epochs: SmallVec<[u64; FLOW_CONNECTIONS]>,
}

impl Way {
    pub(crate) fn new(headers: NewHeaders, flows: SmallVec<[u32; 2]>) -> Way {
        Way {
            flows,
            connections: SmallVec::new(),
            headers,
            bypassing: SmallVec::new(),
            epochs: SmallVec::new(),
        }
    }

    /// Adds a connection; its epoch had this value before the tracker was asked.
    pub(crate) fn add(&mut self, connection: FlowConnection, bypassing: Bypassing, epoch: u64) {
        self.connections.push(connection);
        self.bypassing.push(bypassing);
        self.epochs.push(epoch);
    }

    /// Whether no connection has changed since the tracker was asked.
    pub(crate) fn is_current(&self, table: &OffloadTable) -> bool {
        let current = self.connections.iter().map(|one| table.connection_epoch(one.number));
        current.eq(self.epochs.iter().copied())
    }

    /// Whether packets go the same way. Numbers of connections that are open mean the same.
    pub(super) fn is_same(&self, other: &Way) -> bool {
        self.connections == other.connections && self.headers == other.headers
    }
}

/// As the tracker has it.
pub(crate) fn as_bypass(table: &Arc<OffloadTable>) -> Arc<dyn Bypass> {
    table.clone()
}
