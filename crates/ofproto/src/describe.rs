//! What the switch says of itself: features, description, tables, queues.

use crate::agent::Core;
use crate::conn::Conn;
use openflow::model::{Body, Features, Port, StatsReply, SwitchDesc, capabilities};
use openflow::{OfError, Version};
use switch::tables::TABLES;

/// OpenFlow 1.0's actions: output to enqueue.
const ACTIONS: u32 = 0xfff;

impl Core {
    pub(crate) fn features(&self, version: Option<Version>) -> Features {
        use capabilities::*;
        let version = version.unwrap_or(Version::V10);
        let mut can = FLOW_STATS | TABLE_STATS | PORT_STATS | QUEUE_STATS;
        if version <= Version::V11 {
            can |= ARP_MATCH_IP;
        }
        if version > Version::V10 {
            can |= STP_OR_GROUP_STATS;
        }
        if version >= Version::V14 {
            can |= BUNDLES | FLOW_MONITORING;
        }
        Features {
            datapath_id: self.config.datapath_id,
            n_buffers: 0,
            n_tables: TABLES,
            auxiliary_id: 0,
            capabilities: can,
            actions: ACTIONS,
            ports: self.ports.descriptions().collect(),
        }
    }

    pub(crate) fn desc(&self, conn: &mut Conn, xid: u32) {
        let desc = SwitchDesc {
            manufacturer: "oxvs".to_owned(),
            hardware: "Open vSwitch".to_owned(),
            software: self.config.software.clone(),
            serial: self.config.serial.clone(),
            datapath: self.config.description.clone(),
        };
        let reply = StatsReply::Desc(desc);
        conn.send(xid, Body::StatsReply { more: false, reply });
    }

    pub(crate) fn queue_config(&self, conn: &mut Conn, xid: u32, port: Port) -> Result<(), OfError> {
        self.known_or_any(port, OfError::QofcBadPort)?;
        let queues = Vec::new();
        conn.send(xid, Body::QueueGetConfigReply { port, queues });
        Ok(())
    }

    pub(crate) fn queue_stats(&self, conn: &mut Conn, xid: u32, port: Port, queue: u32) -> Result<(), OfError> {
        self.queues(port, queue)?;
        let reply = StatsReply::Queue(Vec::new());
        conn.send(xid, Body::StatsReply { more: false, reply });
        Ok(())
    }

    pub(crate) fn queue_desc(&self, conn: &mut Conn, xid: u32, port: Port, queue: u32) -> Result<(), OfError> {
        self.queues(port, queue)?;
        let reply = StatsReply::QueueDesc(Vec::new());
        conn.send(xid, Body::StatsReply { more: false, reply });
        Ok(())
    }

    /// Whether queues may be asked about: no port has any, which only a question about one queue notices.
    fn queues(&self, port: Port, queue: u32) -> Result<(), OfError> {
        self.known_or_any(port, OfError::QofcBadPort)?;
        match queue {
            openflow::model::ALL_QUEUES => Ok(()),
            _ => Err(OfError::QofcBadQueue),
        }
    }

    fn known_or_any(&self, port: Port, error: OfError) -> Result<(), OfError> {
        if matches!(port, Port::ANY | Port::ALL) || self.ports.get(port).is_some() {
            Ok(())
        } else {
            Err(error)
        }
    }
}
