//! The kinds of messages: their names, the versions that have them, and their lengths.

/// A kind of message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// The first and last version that have it.
    versions: (u8, u8),
    /// The least length behind the headers, and the size of the parts that may follow; 0 if none
    /// may.
    length: (usize, usize),
}

impl Kind {
    pub(super) const fn is_in(&self, version: u8) -> bool {
        self.versions.0 <= version && version <= self.versions.1
    }

    /// Whether a message of this kind may have `len` bytes behind its headers.
    pub(super) const fn fits(&self, len: usize) -> bool {
        match (len.checked_sub(self.length.0), self.length.1) {
            (None, _) => false,
            (Some(rest), 0) => rest == 0,
            (Some(rest), part) => rest.is_multiple_of(part),
        }
    }
}

const fn kind(name: &'static str, first: u8, last: u8, length: (usize, usize)) -> Kind {
    Kind {
        name,
        versions: (first, last),
        length,
    }
}

/// Messages by type.
pub(super) const MESSAGES: [(u8, Kind); 55] = [
    (0, kind("OFPT_HELLO", 1, 255, (0, 1))),
    (1, kind("OFPT_ERROR", 1, 255, (4, 1))),
    (2, kind("OFPT_ECHO_REQUEST", 1, 255, (0, 1))),
    (3, kind("OFPT_ECHO_REPLY", 1, 255, (0, 1))),
    (5, kind("OFPT_FEATURES_REQUEST", 1, 6, (0, 0))),
    (6, kind("OFPT_FEATURES_REPLY", 1, 1, (24, 48))),
    (6, kind("OFPT_FEATURES_REPLY", 2, 3, (24, 64))),
    (6, kind("OFPT_FEATURES_REPLY", 4, 6, (24, 0))),
    (7, kind("OFPT_GET_CONFIG_REQUEST", 1, 6, (0, 0))),
    (8, kind("OFPT_GET_CONFIG_REPLY", 1, 6, (4, 0))),
    (9, kind("OFPT_SET_CONFIG", 1, 6, (4, 0))),
    (10, kind("OFPT_PACKET_IN", 1, 1, (10, 1))),
    (10, kind("OFPT_PACKET_IN", 2, 2, (16, 1))),
    (10, kind("OFPT_PACKET_IN", 3, 3, (8, 1))),
    (10, kind("OFPT_PACKET_IN", 4, 6, (16, 1))),
    (11, kind("OFPT_FLOW_REMOVED", 1, 1, (80, 0))),
    (11, kind("OFPT_FLOW_REMOVED", 2, 5, (40, 8))),
    (11, kind("OFPT_FLOW_REMOVED", 6, 6, (16, 8))),
    (12, kind("OFPT_PORT_STATUS", 1, 1, (56, 0))),
    (12, kind("OFPT_PORT_STATUS", 2, 4, (72, 0))),
    (12, kind("OFPT_PORT_STATUS", 5, 6, (48, 8))),
    (13, kind("OFPT_PACKET_OUT", 1, 1, (8, 1))),
    (13, kind("OFPT_PACKET_OUT", 2, 5, (16, 1))),
    (13, kind("OFPT_PACKET_OUT", 6, 6, (8, 1))),
    (14, kind("OFPT_FLOW_MOD", 1, 1, (64, 8))),
    (14, kind("OFPT_FLOW_MOD", 2, 6, (40, 8))),
    (15, kind("OFPT_PORT_MOD", 1, 1, (24, 0))),
    (15, kind("OFPT_GROUP_MOD", 2, 5, (8, 8))),
    (15, kind("OFPT_GROUP_MOD", 6, 6, (16, 8))),
    (16, kind("OFPT_PORT_MOD", 2, 4, (32, 0))),
    (16, kind("OFPT_PORT_MOD", 5, 6, (24, 8))),
    (17, kind("OFPT_TABLE_MOD", 2, 4, (8, 0))),
    (17, kind("OFPT_TABLE_MOD", 5, 6, (8, 8))),
    (18, kind("OFPT_BARRIER_REQUEST", 1, 1, (0, 0))),
    (19, kind("OFPT_BARRIER_REPLY", 1, 1, (0, 0))),
    (20, kind("OFPT_QUEUE_GET_CONFIG_REQUEST", 1, 1, (4, 0))),
    (20, kind("OFPT_BARRIER_REQUEST", 2, 6, (0, 0))),
    (21, kind("OFPT_QUEUE_GET_CONFIG_REPLY", 1, 1, (8, 8))),
    (21, kind("OFPT_BARRIER_REPLY", 2, 6, (0, 0))),
    (22, kind("OFPT_QUEUE_GET_CONFIG_REQUEST", 2, 4, (8, 0))),
    (23, kind("OFPT_QUEUE_GET_CONFIG_REPLY", 2, 4, (8, 8))),
    (24, kind("OFPT_ROLE_REQUEST", 3, 6, (16, 0))),
    (25, kind("OFPT_ROLE_REPLY", 3, 6, (16, 0))),
    (26, kind("OFPT_GET_ASYNC_REQUEST", 4, 6, (0, 0))),
    (27, kind("OFPT_GET_ASYNC_REPLY", 4, 4, (24, 0))),
    (27, kind("OFPT_GET_ASYNC_REPLY", 5, 6, (0, 8))),
    (28, kind("OFPT_SET_ASYNC", 4, 4, (24, 0))),
    (28, kind("OFPT_SET_ASYNC", 5, 6, (0, 8))),
    (29, kind("OFPT_METER_MOD", 4, 6, (8, 8))),
    (30, kind("OFPT_ROLE_STATUS", 5, 6, (16, 8))),
    (31, kind("OFPT_TABLE_STATUS", 5, 6, (8, 8))),
    (32, kind("OFPT_REQUESTFORWARD", 5, 6, (8, 8))),
    (33, kind("OFPT_BUNDLE_CONTROL", 5, 6, (8, 8))),
    (34, kind("OFPT_BUNDLE_ADD_MESSAGE", 5, 6, (8, 1))),
    (35, kind("OFPT_CONTROLLER_STATUS", 6, 6, (16, 1))),
];

/// Multipart messages by type; requests and replies.
pub(super) const STATS: [(u16, Kind); 49] = [
    (0, kind("OFPST_DESC request", 1, 6, (0, 0))),
    (0, kind("OFPST_DESC reply", 1, 6, (1056, 0))),
    (1, kind("OFPST_FLOW request", 1, 1, (44, 0))),
    (1, kind("OFPST_FLOW request", 2, 6, (32, 8))),
    (1, kind("OFPST_FLOW reply", 1, 6, (0, 1))),
    (2, kind("OFPST_AGGREGATE request", 1, 1, (44, 0))),
    (2, kind("OFPST_AGGREGATE request", 2, 6, (32, 8))),
    (2, kind("OFPST_AGGREGATE reply", 1, 5, (24, 0))),
    (2, kind("OFPST_AGGREGATE reply", 6, 6, (0, 1))),
    (3, kind("OFPST_TABLE request", 1, 6, (0, 0))),
    (3, kind("OFPST_TABLE reply", 1, 1, (0, 64))),
    (3, kind("OFPST_TABLE reply", 2, 2, (0, 88))),
    (3, kind("OFPST_TABLE reply", 3, 3, (0, 128))),
    (3, kind("OFPST_TABLE reply", 4, 6, (0, 24))),
    (4, kind("OFPST_PORT request", 1, 6, (8, 0))),
    (4, kind("OFPST_PORT reply", 1, 3, (0, 104))),
    (4, kind("OFPST_PORT reply", 4, 4, (0, 112))),
    (4, kind("OFPST_PORT reply", 5, 6, (0, 8))),
    (5, kind("OFPST_QUEUE request", 1, 6, (8, 0))),
    (5, kind("OFPST_QUEUE reply", 1, 3, (0, 32))),
    (5, kind("OFPST_QUEUE reply", 4, 4, (0, 40))),
    (5, kind("OFPST_QUEUE reply", 5, 6, (0, 8))),
    (6, kind("OFPST_GROUP request", 2, 6, (8, 0))),
    (6, kind("OFPST_GROUP reply", 2, 6, (0, 8))),
    (7, kind("OFPST_GROUP_DESC request", 2, 5, (0, 0))),
    (7, kind("OFPST_GROUP_DESC request", 6, 6, (8, 0))),
    (7, kind("OFPST_GROUP_DESC reply", 2, 6, (0, 8))),
    (8, kind("OFPST_GROUP_FEATURES request", 3, 6, (0, 0))),
    (8, kind("OFPST_GROUP_FEATURES reply", 3, 6, (40, 0))),
    (9, kind("OFPST_METER request", 4, 6, (8, 0))),
    (9, kind("OFPST_METER reply", 4, 6, (0, 8))),
    (10, kind("OFPST_METER_CONFIG request", 4, 6, (8, 0))),
    (10, kind("OFPST_METER_CONFIG reply", 4, 6, (0, 8))),
    (11, kind("OFPST_METER_FEATURES request", 4, 6, (0, 0))),
    (11, kind("OFPST_METER_FEATURES reply", 4, 5, (16, 0))),
    (11, kind("OFPST_METER_FEATURES reply", 6, 6, (16, 8))),
    (12, kind("OFPST_TABLE_FEATURES request", 4, 6, (0, 8))),
    (12, kind("OFPST_TABLE_FEATURES reply", 4, 6, (64, 8))),
    (13, kind("OFPST_PORT_DESC request", 1, 5, (0, 0))),
    (13, kind("OFPST_PORT_DESC request", 6, 6, (8, 0))),
    (13, kind("OFPST_PORT_DESC reply", 1, 1, (0, 48))),
    (13, kind("OFPST_PORT_DESC reply", 2, 4, (0, 64))),
    (13, kind("OFPST_PORT_DESC reply", 5, 6, (0, 8))),
    (14, kind("OFPST_TABLE_DESC request", 5, 6, (0, 0))),
    (14, kind("OFPST_TABLE_DESC reply", 5, 6, (8, 8))),
    (15, kind("OFPST_QUEUE_DESC request", 5, 6, (8, 0))),
    (15, kind("OFPST_QUEUE_DESC reply", 5, 6, (0, 8))),
    (16, kind("OFPST_FLOW_MONITOR request", 5, 6, (0, 8))),
    (16, kind("OFPST_FLOW_MONITOR reply", 5, 6, (0, 8))),
];

/// Nicira's messages by subtype.
pub(super) const NICIRA: [(u32, Kind); 23] = [
    (10, kind("NXT_ROLE_REQUEST", 1, 6, (4, 0))),
    (11, kind("NXT_ROLE_REPLY", 1, 6, (4, 0))),
    (12, kind("NXT_SET_FLOW_FORMAT", 1, 1, (4, 0))),
    (13, kind("NXT_FLOW_MOD", 1, 6, (32, 8))),
    (14, kind("NXT_FLOW_REMOVED", 1, 6, (40, 8))),
    (15, kind("NXT_FLOW_MOD_TABLE_ID", 1, 6, (8, 0))),
    (16, kind("NXT_SET_PACKET_IN_FORMAT", 1, 6, (4, 0))),
    (17, kind("NXT_PACKET_IN", 1, 6, (24, 1))),
    (18, kind("NXT_FLOW_AGE", 1, 6, (0, 0))),
    (19, kind("NXT_SET_ASYNC_CONFIG", 1, 6, (24, 0))),
    (20, kind("NXT_SET_CONTROLLER_ID", 1, 6, (8, 0))),
    (21, kind("NXT_FLOW_MONITOR_CANCEL", 1, 3, (4, 0))),
    (22, kind("NXT_FLOW_MONITOR_PAUSED", 1, 3, (0, 0))),
    (23, kind("NXT_FLOW_MONITOR_RESUMED", 1, 3, (0, 0))),
    (24, kind("NXT_TLV_TABLE_MOD", 1, 6, (8, 8))),
    (25, kind("NXT_TLV_TABLE_REQUEST", 1, 6, (0, 0))),
    (26, kind("NXT_TLV_TABLE_REPLY", 1, 6, (16, 8))),
    (27, kind("NXT_SET_ASYNC_CONFIG2", 1, 4, (0, 8))),
    (28, kind("NXT_RESUME", 1, 6, (0, 8))),
    (29, kind("NXT_CT_FLUSH_ZONE", 1, 6, (8, 0))),
    (30, kind("NXT_PACKET_IN2", 1, 6, (0, 8))),
    (31, kind("NXT_GROUP_MOD", 1, 1, (16, 8))),
    (32, kind("NXT_CT_FLUSH", 1, 6, (8, 8))),
];

/// The ONF's messages by subtype.
pub(super) const ONF: [(u32, Kind); 7] = [
    (1870, kind("ONFT_FLOW_MONITOR_CANCEL", 4, 4, (4, 0))),
    (1871, kind("ONFT_FLOW_MONITOR_PAUSED", 4, 4, (0, 0))),
    (1872, kind("ONFT_FLOW_MONITOR_RESUMED", 4, 4, (0, 0))),
    (1911, kind("ONFT_ROLE_STATUS", 4, 4, (16, 8))),
    (2300, kind("ONFT_BUNDLE_CONTROL", 4, 4, (8, 8))),
    (2301, kind("ONFT_BUNDLE_ADD_MESSAGE", 4, 4, (8, 1))),
    (2350, kind("ONFT_REQUESTFORWARD", 4, 4, (8, 8))),
];

/// Nicira's multipart messages by subtype.
pub(super) const NICIRA_STATS: [(u32, Kind); 16] = [
    (0, kind("NXST_FLOW request", 1, 1, (8, 8))),
    (0, kind("NXST_FLOW reply", 1, 1, (0, 1))),
    (1, kind("NXST_AGGREGATE request", 1, 1, (8, 8))),
    (1, kind("NXST_AGGREGATE reply", 1, 1, (24, 0))),
    (2, kind("NXST_FLOW_MONITOR request", 1, 3, (0, 8))),
    (2, kind("NXST_FLOW_MONITOR reply", 1, 3, (0, 8))),
    (3, kind("NXST_IPFIX_BRIDGE request", 1, 6, (0, 0))),
    (3, kind("NXST_IPFIX_BRIDGE reply", 1, 6, (88, 0))),
    (4, kind("NXST_IPFIX_FLOW request", 1, 6, (0, 0))),
    (4, kind("NXST_IPFIX_FLOW reply", 1, 6, (0, 88))),
    (7, kind("NXST_GROUP request", 1, 1, (8, 0))),
    (7, kind("NXST_GROUP reply", 1, 1, (0, 8))),
    (8, kind("NXST_GROUP_DESC request", 1, 1, (8, 0))),
    (8, kind("NXST_GROUP_DESC reply", 1, 1, (0, 8))),
    (9, kind("NXST_GROUP_FEATURES request", 1, 2, (0, 0))),
    (9, kind("NXST_GROUP_FEATURES reply", 1, 2, (40, 0))),
];

/// The ONF's multipart messages by subtype.
pub(super) const ONF_STATS: [(u32, Kind); 2] = [
    (1870, kind("ONFST_FLOW_MONITOR request", 4, 4, (0, 8))),
    (1870, kind("ONFST_FLOW_MONITOR reply", 4, 4, (0, 8))),
];
