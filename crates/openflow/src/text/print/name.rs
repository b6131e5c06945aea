//! The names of messages.

use crate::{OfError, Version};
use std::fmt::Write;

/// A message's name, and the offset of its body.
#[derive(Clone, Debug)]
pub(super) struct Name {
    text: String,
    version: u8,
    xid: u32,
    /// Offset of the body behind the headers.
    pub(super) body: usize,
    /// Whether more parts follow.
    pub(super) more: bool,
}

const NICIRA: u32 = 0x0000_2320;
const ONF: u32 = 0x4f4e_4600;

/// Messages whose type is the same in every version that has them: type, first version, last
/// version, name.
const MESSAGES: [(u8, u8, u8, &str); 43] = [
    (0, 1, 255, "OFPT_HELLO"),
    (1, 1, 6, "OFPT_ERROR"),
    (2, 1, 6, "OFPT_ECHO_REQUEST"),
    (3, 1, 6, "OFPT_ECHO_REPLY"),
    (5, 1, 6, "OFPT_FEATURES_REQUEST"),
    (6, 1, 6, "OFPT_FEATURES_REPLY"),
    (7, 1, 6, "OFPT_GET_CONFIG_REQUEST"),
    (8, 1, 6, "OFPT_GET_CONFIG_REPLY"),
    (9, 1, 6, "OFPT_SET_CONFIG"),
    (10, 1, 6, "OFPT_PACKET_IN"),
    (11, 1, 6, "OFPT_FLOW_REMOVED"),
    (12, 1, 6, "OFPT_PORT_STATUS"),
    (13, 1, 6, "OFPT_PACKET_OUT"),
    (14, 1, 6, "OFPT_FLOW_MOD"),
    (15, 1, 1, "OFPT_PORT_MOD"),
    (15, 2, 6, "OFPT_GROUP_MOD"),
    (16, 2, 6, "OFPT_PORT_MOD"),
    (17, 2, 6, "OFPT_TABLE_MOD"),
    (18, 1, 1, "OFPT_BARRIER_REQUEST"),
    (19, 1, 1, "OFPT_BARRIER_REPLY"),
    (20, 2, 6, "OFPT_BARRIER_REQUEST"),
    (21, 2, 6, "OFPT_BARRIER_REPLY"),
    (20, 1, 1, "OFPT_QUEUE_GET_CONFIG_REQUEST"),
    (21, 1, 1, "OFPT_QUEUE_GET_CONFIG_REPLY"),
    (22, 2, 4, "OFPT_QUEUE_GET_CONFIG_REQUEST"),
    (23, 2, 4, "OFPT_QUEUE_GET_CONFIG_REPLY"),
    (24, 3, 6, "OFPT_ROLE_REQUEST"),
    (25, 3, 6, "OFPT_ROLE_REPLY"),
    (26, 4, 6, "OFPT_GET_ASYNC_REQUEST"),
    (27, 4, 6, "OFPT_GET_ASYNC_REPLY"),
    (28, 4, 6, "OFPT_SET_ASYNC"),
    (29, 4, 6, "OFPT_METER_MOD"),
    (30, 5, 6, "OFPT_ROLE_STATUS"),
    (31, 5, 6, "OFPT_TABLE_STATUS"),
    (32, 5, 6, "OFPT_REQUESTFORWARD"),
    (33, 5, 6, "OFPT_BUNDLE_CONTROL"),
    (34, 5, 6, "OFPT_BUNDLE_ADD_MESSAGE"),
    (16, 1, 1, "?request"),
    (17, 1, 1, "?reply"),
    (18, 2, 6, "?request"),
    (19, 2, 6, "?reply"),
    (4, 1, 6, "?experimenter"),
    (35, 6, 6, "OFPT_CONTROLLER_STATUS"),
];

/// Statistics: type, first version, name.
const STATS: [(u16, u8, &str); 17] = [
    (0, 1, "DESC"),
    (1, 1, "FLOW"),
    (2, 1, "AGGREGATE"),
    (3, 1, "TABLE"),
    (4, 1, "PORT"),
    (5, 1, "QUEUE"),
    (6, 2, "GROUP"),
    (7, 2, "GROUP_DESC"),
    (8, 3, "GROUP_FEATURES"),
    (9, 4, "METER"),
    (10, 4, "METER_CONFIG"),
    (11, 4, "METER_FEATURES"),
    (12, 4, "TABLE_FEATURES"),
    (13, 1, "PORT_DESC"),
    (14, 5, "TABLE_DESC"),
    (15, 5, "QUEUE_DESC"),
    (16, 5, "FLOW_MONITOR"),
];

/// Nicira's statistics: subtype, name.
const NICIRA_STATS: [(u32, &str); 8] = [
    (0, "FLOW"),
    (1, "AGGREGATE"),
    (2, "FLOW_MONITOR"),
    (3, "IPFIX_BRIDGE"),
    (4, "IPFIX_FLOW"),
    (7, "GROUP"),
    (8, "GROUP_DESC"),
    (9, "GROUP_FEATURES"),
];

/// Nicira's messages: subtype, name.
const NICIRA_MESSAGES: [(u32, &str); 23] = [
    (10, "NXT_ROLE_REQUEST"),
    (11, "NXT_ROLE_REPLY"),
    (12, "NXT_SET_FLOW_FORMAT"),
    (13, "NXT_FLOW_MOD"),
    (14, "NXT_FLOW_REMOVED"),
    (15, "NXT_FLOW_MOD_TABLE_ID"),
    (16, "NXT_SET_PACKET_IN_FORMAT"),
    (17, "NXT_PACKET_IN"),
    (18, "NXT_FLOW_AGE"),
    (19, "NXT_SET_ASYNC_CONFIG"),
    (20, "NXT_SET_CONTROLLER_ID"),
    (21, "NXT_FLOW_MONITOR_CANCEL"),
    (22, "NXT_FLOW_MONITOR_PAUSED"),
    (23, "NXT_FLOW_MONITOR_RESUMED"),
    (24, "NXT_TLV_TABLE_MOD"),
    (25, "NXT_TLV_TABLE_REQUEST"),
    (26, "NXT_TLV_TABLE_REPLY"),
    (27, "NXT_SET_ASYNC_CONFIG2"),
    (28, "NXT_RESUME"),
    (29, "NXT_CT_FLUSH_ZONE"),
    (30, "NXT_PACKET_IN2"),
    (31, "NXT_GROUP_MOD"),
    (32, "NXT_CT_FLUSH"),
];

/// The ONF's messages: subtype, name.
const ONF_MESSAGES: [(u32, &str); 4] = [
    (1911, "ONFT_ROLE_STATUS"),
    (2350, "ONFT_REQUESTFORWARD"),
    (2300, "ONFT_BUNDLE_CONTROL"),
    (2301, "ONFT_BUNDLE_ADD_MESSAGE"),
];

impl Name {
    /// The name of a message that is at least a header long.
    pub(super) fn of(data: &[u8]) -> Result<Name, OfError> {
        let (version, kind) = (data[0], data[1]);
        let word = |at: usize| {
            let bytes = data.get(at..at + 4).and_then(|b| b.first_chunk());
            bytes.map(|b| u32::from_be_bytes(*b)).ok_or(OfError::BrcBadLen)
        };
        let half = |at: usize| {
            let bytes = data.get(at..at + 2).and_then(|b| b.first_chunk());
            bytes.map(|b| u16::from_be_bytes(*b)).ok_or(OfError::BrcBadLen)
        };
        let mut name = Name {
            text: String::new(),
            version,
            xid: word(4)?,
            body: 8,
            more: false,
        };
        if kind != 0 && Version::from_number(version).is_none() {
            return Err(OfError::BrcBadVersion);
        }
        let found = MESSAGES
            .iter()
            .find(|(k, first, last, _)| *k == kind && (*first..=*last).contains(&version));
        let found = found.ok_or(OfError::BrcBadType)?.3;
        match found {
            "?experimenter" => {
                let (vendor, subtype) = (word(8)?, word(12)?);
                let table: &[(u32, &str)] = match vendor {
                    NICIRA => &NICIRA_MESSAGES,
                    ONF => &ONF_MESSAGES,
                    _ => return Err(OfError::BrcBadVendor),
                };
                let found = table.iter().find(|(number, _)| *number == subtype);
                name.text = found.ok_or(OfError::BrcBadSubtype)?.1.into();
                name.body = 16;
            }
            "?request" | "?reply" => {
                let kind = half(8)?;
                name.more = half(10)? & 1 != 0;
                let direction = &found[1..];
                let old = version == 1;
                let body = if old { 12 } else { 16 };
                if kind == 0xffff {
                    let (vendor, subtype) = (word(body)?, word(body + 4)?);
                    let found = match vendor {
                        NICIRA => NICIRA_STATS.iter().find(|(number, _)| *number == subtype),
                        ONF if subtype == 1870 => Some(&(0, "FLOW_MONITOR")),
                        ONF => None,
                        _ => return Err(OfError::BrcBadVendor),
                    };
                    let prefix = if vendor == NICIRA { "NXST" } else { "ONFST" };
                    let found = found.ok_or(OfError::BrcBadSubtype)?.1;
                    name.text = format!("{prefix}_{found} {direction}");
                    name.body = if old { 24 } else { body + 8 };
                } else {
                    let found = STATS.iter().find(|(k, first, _)| *k == kind && *first <= version);
                    let found = found.ok_or(OfError::BrcBadStat)?.2;
                    name.text = format!("OFPST_{found} {direction}");
                    name.body = body;
                }
            }
            text => name.text = text.into(),
        }
        Ok(name)
    }

    /// Prints name, version and transaction.
    pub(super) fn header(&self, out: &mut String) {
        out.push_str(&self.text);
        let _ = match self.version {
            1 => Ok(()),
            version @ 2..=6 => write!(out, " (OF1.{})", version - 1),
            version => write!(out, " (OF 0x{version:02x})"),
        };
        let _ = write!(out, " (xid={:#x}):", self.xid);
    }

    /// The name.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_hello(&self) -> bool {
        self.text == "OFPT_HELLO"
    }

    pub(super) fn is_nicira(&self) -> bool {
        self.text.starts_with("NX")
    }
}
