//! The replies that describe the switch: features and description.

use crate::agent::Core;
use crate::conn::Conn;
use openflow::Version;
use openflow::model::{Body, Features, StatsReply, SwitchDesc, capabilities};
use switch::tables::TABLES;

/// The actions of OpenFlow 1.0, as bits.
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
}
