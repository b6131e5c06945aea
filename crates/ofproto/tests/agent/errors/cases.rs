//! What provokes each error.

use super::wire::*;
use openflow::model::*;
use openflow::{OfError as E, Version};

/// An error, the first and the last version in which it is provoked, and by which messages: the
/// last one is refused.
pub(crate) struct Case(
    pub(crate) E,
    pub(crate) Version,
    pub(crate) Version,
    pub(crate) fn(Version) -> Vec<Vec<u8>>,
);

use Version::{V10, V11, V12, V13, V14, V15};

/// The headers of fields.
const ETH_TYPE: u8 = 5;
const VLAN_VID: u8 = 6;
const VLAN_PCP: u8 = 7;
const IP_PROTO: u8 = 10;
const ETH_DST: u8 = 3;

fn nested_clones(depth: usize) -> Vec<u8> {
    (0..depth).fold(Vec::new(), |inner, _| {
        nicira_action(42, &[&[0; 6], &inner[..]].concat())
    })
}

/// A condition, in Nicira's form for OpenFlow 1.0.
fn condition(version: Version, field: u8, of_10: (u8, u8), masked: bool, bytes: &[u8]) -> Vec<u8> {
    match version {
        V10 => nxm(of_10.0, of_10.1, masked, bytes),
        _ => oxm(field, masked, bytes),
    }
}

fn properties_of_controller(property: &[u16]) -> Vec<u8> {
    nicira_action(37, &[&[0; 6], &words(property)[..]].concat())
}

fn table_mod(version: Version, table: u8, config: u32, properties: &[u8]) -> Vec<u8> {
    let body = [&[table, 0, 0, 0], &config.to_be_bytes()[..], properties].concat();
    message(version, 17, &body)
}

fn port_mod(version: Version, port: u32, hw_addr: u8, config: u32, properties: &[u8]) -> Vec<u8> {
    let mac = [2, 0, 0, 0, 0, hw_addr];
    let config = [config.to_be_bytes(), config.to_be_bytes()].concat();
    let port = port.to_be_bytes();
    let body = match version {
        V10 => [&port[2..], &mac, &config, &[0; 8]].concat(),
        V11 | V12 | V13 => [&port[..], &[0; 4], &mac, &[0; 2], &config, &[0; 8]].concat(),
        _ => [&port[..], &[0; 4], &mac, &[0; 2], &config, properties].concat(),
    };
    message(version, if version == V10 { 15 } else { 16 }, &body)
}

fn table_features(version: Version, command: u8, properties: &[u16]) -> Vec<u8> {
    let properties = words(properties);
    let mut body = words(&[64 + properties.len() as u16]);
    body.extend([0, if version == V15 { command } else { 0 }]);
    body.resize(64, 0);
    body.extend(properties);
    multipart(version, 12, &body)
}

fn tlv(command: u16, map: &[u8]) -> Vec<u8> {
    [&words(&[command, 0, 0, 0])[..], map].concat()
}

/// Messages, behind some that take away all rules and all maps of options.
fn unmapped(version: Version, messages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let none = flow(version, |change| change.command = FlowCommand::Delete);
    [&[none, nicira(version, 24, &tlv(2, &[]))], messages].concat()
}

pub(crate) const CASES: &[Case] = &[
    Case(E::BrcBadLen, V10, V15, |v| {
        let mut bytes = barrier(v);
        bytes.push(0);
        bytes[3] += 1;
        vec![bytes]
    }),
    Case(E::BrcBadPacket, V12, V15, |v| {
        vec![packet_out(v, |packet| packet.data.truncate(10))]
    }),
    Case(E::BrcBadPort, V10, V15, |v| {
        vec![packet_out(v, |packet| packet.in_port = Port(0xffff_ff01))]
    }),
    Case(E::BrcBadStat, V10, V15, |v| vec![multipart(v, 0x1234, &[])]),
    Case(E::BrcBadSubtype, V10, V15, |v| vec![nicira(v, 0xfff, &[0; 8])]),
    Case(E::BrcBadTableId, V10, V15, |v| {
        let asked = FlowStatsRequest {
            table: Some(254),
            ..FlowStatsRequest::default()
        };
        let request = StatsRequest::Flow(asked);
        vec![encode(v, Body::StatsRequest { more: false, request })]
    }),
    Case(E::BrcBadType, V10, V15, |v| vec![message(v, 99, &[])]),
    Case(E::BrcBadVendor, V10, V15, |v| {
        vec![experimenter(v, 0x1234_5678, 1, &[])]
    }),
    Case(E::BrcBadVersion, V10, V15, |v| {
        vec![barrier(if v == V15 { V10 } else { V15 })]
    }),
    Case(E::BrcBufferUnknown, V10, V15, |v| {
        vec![packet_out(v, |packet| {
            packet.buffer_id = Some(5);
            packet.data.clear();
        })]
    }),
    Case(E::BrcEperm, V10, V15, |v| vec![nicira(v, 16, &[0, 0, 0, 9])]),
    Case(E::BrcEperm, V11, V15, |v| vec![flow(v, |rule| rule.table = Some(254))]),
    Case(E::BrcIsSecondary, V10, V15, |v| vec![role(v, 3, 1), flow(v, |_| {})]),
    Case(E::BrcMultipartBadSched, V15, V15, |v| {
        vec![multipart(v, 19, &[0, 0, 0, 0xff, 0, 0, 0, 0])]
    }),
    Case(E::BrcMultipartBufferOverflow, V14, V15, |v| {
        let one = FlowMonitorRequest {
            id: 1,
            flags: 0x1f,
            ..FlowMonitorRequest::default()
        };
        let request = || StatsRequest::FlowMonitor(vec![one.clone(); 2600]);
        let part = || {
            encode(
                v,
                Body::StatsRequest {
                    more: true,
                    request: request(),
                },
            )
        };
        (0..34).map(|_| part()).collect()
    }),
    Case(E::BrcPipelineFieldsOnly, V15, V15, |v| {
        vec![packet_out(v, |packet| {
            packet.metadata.set(flow::MatchField::EthType, 0x800, 0xffff)
        })]
    }),
    Case(E::BacBadArgument, V10, V15, |v| {
        let raw = match v {
            V10 | V11 => action(1, &[0x10, 0, 0, 0]),
            _ => action(17, &[0x12, 0x34, 0, 0]),
        };
        vec![actions(v, &raw)]
    }),
    Case(E::BacBadLen, V10, V15, |v| {
        vec![actions(
            v,
            &action(0, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        )]
    }),
    Case(E::BacBadOutGroup, V11, V15, |v| {
        vec![actions(v, &action(22, &[0, 0, 0, 99]))]
    }),
    Case(E::BacBadOutPort, V10, V15, |v| {
        let raw = match v {
            V10 => action(0, &[0xff, 0xff, 0, 0]),
            _ => action(0, &[0xff; 12]),
        };
        vec![actions(v, &raw)]
    }),
    Case(E::BacBadSetArgument, V10, V15, |v| {
        vec![set_field(v, &oxm(VLAN_PCP, false, &[0xff]))]
    }),
    Case(E::BacBadSetLen, V10, V15, |v| {
        vec![set_field(v, &oxm(ETH_DST, false, &[0; 6])[..4])]
    }),
    Case(E::BacBadSetMask, V13, V14, |v| {
        vec![set_field(v, &oxm(ETH_DST, true, &[0; 12]))]
    }),
    Case(E::BacBadSetMask, V15, V15, |v| {
        vec![set_field(v, &oxm(VLAN_PCP, true, &[0, 0xff]))]
    }),
    Case(E::BacBadSetType, V10, V15, |v| {
        vec![set_field(v, &oxm(127, false, &[0; 6]))]
    }),
    Case(E::BacBadType, V10, V15, |v| vec![actions(v, &action(60, &[0; 4]))]),
    Case(E::BacBadVendor, V10, V15, |v| {
        vec![actions(
            v,
            &action(0xffff, &[0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0]),
        )]
    }),
    Case(E::BacBadVendorType, V10, V15, |v| {
        vec![actions(v, &nicira_action(99, &[0; 6]))]
    }),
    Case(E::BacMatchInconsistent, V10, V14, |v| {
        // A load to a port of TCP.
        let body = [&words(&[15])[..], &[0, 0, 10 << 1, 2], &[0; 8]].concat();
        vec![actions(v, &nicira_action(7, &body))]
    }),
    Case(E::BacTooMany, V10, V15, |v| vec![actions(v, &nested_clones(70))]),
    Case(E::BicBadExperimenter, V11, V15, |v| {
        vec![instructions(v, &action(0xffff, &[0x12, 0x34, 0x56, 0x78]))]
    }),
    Case(E::BicBadLen, V12, V15, |v| vec![instructions(v, &words(&[5, 4, 0, 0]))]),
    Case(E::BicBadTableId, V11, V15, |v| {
        vec![instructions(v, &action(1, &[0; 4]))]
    }),
    Case(E::BicDupInst, V11, V15, |v| {
        vec![instructions(v, &[action(5, &[0; 4]), action(5, &[0; 4])].concat())]
    }),
    Case(E::BicUnknownInst, V11, V15, |v| {
        vec![instructions(v, &action(77, &[0; 4]))]
    }),
    Case(E::BmcBadField, V10, V10, |v| {
        vec![matching(v, &nxm(1, 126, false, &[0; 4]))]
    }),
    Case(E::BmcBadField, V12, V15, |v| {
        vec![matching(v, &oxm(126, false, &[0; 4]))]
    }),
    Case(E::BmcBadLen, V12, V15, |v| {
        vec![matching(v, &oxm(ETH_DST, false, &[0; 6])[..7])]
    }),
    Case(E::BmcBadField, V12, V15, |v| {
        vec![matching(v, &oxm(ETH_DST, false, &[0; 5]))]
    }),
    Case(E::BmcBadLen, V11, V11, |v| {
        let mut bytes = flow(v, |_| {});
        bytes[51] = 80;
        vec![bytes]
    }),
    Case(E::BmcBadMask, V10, V10, |v| {
        vec![matching(v, &nxm(0, 3, true, &[8, 0, 0xff, 0]))]
    }),
    Case(E::BmcBadMask, V12, V15, |v| {
        vec![matching(v, &oxm(ETH_TYPE, true, &[8, 0, 0xff, 0]))]
    }),
    Case(E::BmcBadPrereq, V10, V10, |v| {
        vec![matching(v, &condition(v, IP_PROTO, (0, 6), false, &[6]))]
    }),
    Case(E::BmcBadPrereq, V12, V15, |v| {
        vec![matching(v, &condition(v, IP_PROTO, (0, 6), false, &[6]))]
    }),
    Case(E::BmcBadType, V11, V15, |v| {
        let mut bytes = flow(v, |_| {});
        bytes[49] = 7;
        vec![bytes]
    }),
    Case(E::BmcBadValue, V10, V10, |v| {
        let ip = nxm(0, 3, false, &[8, 0]);
        vec![matching(v, &[ip, nxm(0, 5, false, &[3])].concat())]
    }),
    Case(E::BmcBadValue, V12, V15, |v| {
        vec![matching(v, &oxm(VLAN_VID, false, &[0x20, 1]))]
    }),
    Case(E::BmcBadWildcards, V10, V10, |v| {
        vec![matching(v, &nxm(0, 1, true, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]))]
    }),
    Case(E::BmcBadWildcards, V12, V15, |v| {
        vec![matching(v, &oxm(ETH_DST, true, &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]))]
    }),
    Case(E::BmcDupField, V10, V10, |v| {
        vec![matching(
            v,
            &[nxm(0, 3, false, &[8, 0]), nxm(0, 3, false, &[8, 6])].concat(),
        )]
    }),
    Case(E::BmcDupField, V12, V15, |v| {
        vec![matching(
            v,
            &[oxm(ETH_TYPE, false, &[8, 0]), oxm(ETH_TYPE, false, &[8, 6])].concat(),
        )]
    }),
    Case(E::FmfcBadCommand, V10, V15, |v| {
        let mut bytes = flow(v, |_| {});
        let at = if v == V10 { 57 } else { 25 };
        bytes[at] = 9;
        vec![bytes]
    }),
    Case(E::FmfcBadFlags, V10, V15, |v| {
        let mut bytes = flow(v, |_| {});
        let at = if v == V10 { 70 } else { 44 };
        bytes[at] = 0x80;
        vec![bytes]
    }),
    Case(E::FmfcBadTableId, V11, V15, |v| {
        let mut bytes = flow(v, |_| {});
        bytes[24] = 255;
        vec![bytes]
    }),
    Case(E::FmfcOverlap, V10, V15, |v| {
        let overlapping = flow(v, |rule| {
            rule.matching.set(flow::MatchField::EthType, 0x0800, 0xffff);
            rule.flags = FlowFlags(rule.flags.0 | FlowFlags::CHECK_OVERLAP.0);
        });
        vec![flow(v, |_| {}), overlapping]
    }),
    // OpenFlow 1.0's emergency rules have no room anywhere.
    Case(E::FmfcTableFull, V10, V10, |v| {
        let mut bytes = flow(v, |_| {});
        bytes[71] = 4;
        vec![bytes]
    }),
    Case(E::GmfcBadBucket, V12, V15, |v| {
        vec![group(v, 0, 0, 1, &words(&[7, 0, 0, 0]))]
    }),
    Case(E::GmfcBadCommand, V12, V15, |v| vec![group(v, 99, 0, 1, &[])]),
    Case(E::GmfcBadType, V12, V15, |v| vec![group(v, 0, 99, 1, &[])]),
    Case(E::GmfcBadWatch, V12, V15, |v| {
        vec![group(v, 0, 3, 1, &bucket(v, 0xff05))]
    }),
    Case(E::GmfcBucketExists, V15, V15, |v| {
        let mut insert = group(v, 3, 0, 1, &bucket(v, 0xffff_ffff));
        insert[20..24].copy_from_slice(&[0xff, 0xff, 0xff, 0xfe]);
        vec![group(v, 0, 0, 1, &bucket(v, 0xffff_ffff)), insert]
    }),
    Case(E::GmfcGroupExists, V11, V15, |v| {
        vec![group(v, 0, 0, 1, &[]), group(v, 0, 0, 1, &[])]
    }),
    Case(E::GmfcInvalidGroup, V11, V15, |v| {
        vec![group(v, 0, 0, 0xffff_ff01, &[])]
    }),
    Case(E::GmfcLoop, V11, V15, |v| {
        let to_itself = Bucket {
            id: 0,
            weight: 0,
            watch_port: Port::ANY,
            watch_group: ANY_GROUP,
            actions: vec![Action::Group(1)],
        };
        let change = GroupMod {
            command: GroupCommand::Modify,
            kind: GroupType::All,
            group: 1,
            bucket_id: bucket_ids::ALL,
            buckets: vec![to_itself],
            selection: None,
        };
        vec![group(v, 0, 0, 1, &[]), encode(v, Body::GroupMod(change))]
    }),
    Case(E::GmfcOutOfBuckets, V15, V15, |v| {
        let insert = |first: u32| {
            let bucket = |id: u32| Bucket {
                id,
                weight: 0,
                watch_port: Port::ANY,
                watch_group: ANY_GROUP,
                actions: vec![Action::SetQueue(id); 100],
            };
            let change = GroupMod {
                command: GroupCommand::InsertBucket,
                kind: GroupType::All,
                group: 1,
                bucket_id: bucket_ids::LAST,
                buckets: (first..first + 50).map(bucket).collect(),
                selection: None,
            };
            encode(v, Body::GroupMod(change))
        };
        vec![group(v, 0, 0, 1, &[]), insert(0), insert(50)]
    }),
    Case(E::GmfcUnknownBucket, V15, V15, |v| {
        let mut remove = group(v, 5, 0, 1, &[]);
        remove[20..24].copy_from_slice(&[0, 0, 0, 77]);
        vec![group(v, 0, 0, 1, &[]), remove]
    }),
    Case(E::GmfcUnknownGroup, V11, V15, |v| vec![group(v, 1, 0, 5, &[])]),
    Case(E::GmfcWatchUnsupported, V11, V15, |v| {
        vec![group(v, 0, 0, 1, &bucket(v, 1))]
    }),
    Case(E::PmfcBadConfig, V11, V15, |v| {
        vec![port_mod(v, 1, 1, 0x8000_0000, &[])]
    }),
    Case(E::PmfcBadHwAddr, V10, V15, |v| vec![port_mod(v, 1, 99, 0, &[])]),
    Case(E::PmfcBadPort, V10, V15, |v| vec![port_mod(v, 77, 1, 0, &[])]),
    Case(E::TmfcBadConfig, V11, V15, |v| vec![table_mod(v, 0, 0xff00, &[])]),
    Case(E::TmfcEperm, V12, V15, |v| vec![table_mod(v, 254, 0, &[])]),
    Case(E::QofcBadPort, V10, V15, |v| {
        let request = StatsRequest::Queue {
            port: Port(77),
            queue: 1,
        };
        vec![encode(v, Body::StatsRequest { more: false, request })]
    }),
    Case(E::QofcBadQueue, V10, V15, |v| {
        let request = StatsRequest::Queue {
            port: Port(1),
            queue: 99,
        };
        vec![encode(v, Body::StatsRequest { more: false, request })]
    }),
    Case(E::QofcBadQueue, V14, V15, |v| {
        let request = StatsRequest::QueueDesc {
            port: Port(1),
            queue: 99,
        };
        vec![encode(v, Body::StatsRequest { more: false, request })]
    }),
    Case(E::ScfcBadFlags, V11, V15, |v| vec![message(v, 9, &words(&[0x80, 0]))]),
    Case(E::RrfcBadRole, V10, V15, |v| vec![role(v, 9, 0)]),
    Case(E::RrfcStale, V12, V15, |v| vec![role(v, 2, 5), role(v, 2, 3)]),
    Case(E::MmfcBadBand, V13, V15, |v| vec![meter(v, 0, 1, 1, &[(9, 10, 0)])]),
    Case(E::MmfcBadBandValue, V13, V15, |v| {
        vec![meter(v, 0, 1, 1, &[(2, 10, 0x0900_0000)])]
    }),
    Case(E::MmfcBadCommand, V13, V15, |v| vec![meter(v, 9, 1, 1, &[(1, 10, 0)])]),
    Case(E::MmfcBadFlags, V13, V15, |v| vec![meter(v, 0, 0x80, 1, &[(1, 10, 0)])]),
    Case(E::MmfcBadRate, V13, V15, |v| vec![meter(v, 0, 1, 1, &[(1, 0, 0)])]),
    Case(E::MmfcInvalidMeter, V13, V15, |v| {
        vec![meter(v, 0, 1, 0, &[(1, 10, 0)])]
    }),
    Case(E::MmfcInvalidMeter, V13, V14, |v| {
        vec![instructions(v, &action(6, &[0, 0, 0, 9]))]
    }),
    Case(E::MmfcMeterExists, V13, V15, |v| {
        vec![meter(v, 0, 1, 1, &[(1, 10, 0)]), meter(v, 0, 1, 1, &[(1, 10, 0)])]
    }),
    Case(E::MmfcOutOfBands, V13, V15, |v| {
        vec![meter(v, 0, 1, 1, &[(1, 10, 0); 200])]
    }),
    Case(E::MmfcUnknownMeter, V13, V15, |v| {
        vec![meter(v, 1, 1, 7, &[(1, 10, 0)])]
    }),
    Case(E::TffcBadCommand, V15, V15, |v| vec![table_features(v, 9, &[])]),
    Case(E::TffcBadFeatures, V15, V15, |v| {
        vec![table_features(v, 0, &[0, 4, 0, 0])]
    }),
    Case(E::TffcEperm, V13, V15, |v| vec![table_features(v, 0, &[])]),
    Case(E::BpcBadExperimenter, V14, V15, |v| {
        vec![port_mod(
            v,
            1,
            1,
            0,
            &[0xff, 0xff, 0, 12, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0],
        )]
    }),
    Case(E::BpcBadExpType, V15, V15, |v| {
        let mut property = words(&[0xffff, 12, 0x0000, 0x154d, 0, 9]);
        property.resize(16, 0);
        let mut bytes = group(v, 0, 1, 1, &[]);
        bytes.extend(property);
        bytes[3] = bytes.len() as u8;
        vec![bytes]
    }),
    Case(E::BpcBadLen, V10, V15, |v| {
        vec![actions(v, &properties_of_controller(&[0, 2, 0, 0]))]
    }),
    Case(E::BpcBadType, V10, V15, |v| {
        vec![actions(v, &properties_of_controller(&[99, 8, 0, 0]))]
    }),
    Case(E::BpcBadValue, V14, V15, |v| {
        vec![table_mod(v, 0, 8, &words(&[3, 8, 0x6432, 0]))]
    }),
    Case(E::BpcDupType, V13, V15, |v| {
        vec![table_features(v, 0, &[0, 4, 0, 0, 0, 4, 0, 0])]
    }),
    Case(E::AcfcInvalid, V14, V15, |v| {
        vec![message(v, 28, &words(&[0, 8, 0x8000, 0]))]
    }),
    Case(E::AcfcUnsupported, V14, V15, |v| {
        vec![message(v, 28, &words(&[77, 8, 0, 0]))]
    }),
    Case(E::MofcBadCommand, V14, V15, |v| vec![monitor(v, 1, 0x0f, 9)]),
    Case(E::MofcBadFlags, V10, V15, |v| vec![monitor(v, 1, 0x8000, 0)]),
    Case(E::MofcMonitorExists, V10, V15, |v| {
        vec![monitor(v, 1, 0x0f, 0), monitor(v, 1, 0x0f, 0)]
    }),
    Case(E::MofcUnknownMonitor, V14, V15, |v| vec![monitor(v, 9, 0x0f, 2)]),
    Case(E::BfcBadFlags, V13, V15, |v| vec![bundle(v, 1, 0, 0x80)]),
    Case(E::BfcBadId, V13, V15, |v| vec![bundle(v, 1, 2, 3)]),
    Case(E::BfcBadType, V13, V15, |v| vec![bundle(v, 1, 99, 3)]),
    Case(E::BfcBadVersion, V14, V15, |v| {
        let mut other = flow(v, |_| {});
        other[0] = 1;
        vec![bundled(v, 1, 3, &other)]
    }),
    Case(E::BfcBundleClosed, V13, V15, |v| {
        vec![
            bundle(v, 1, 0, 3),
            bundle(v, 1, 2, 3),
            bundled(v, 1, 3, &flow(v, |_| {})),
        ]
    }),
    Case(E::BfcMsgBadLen, V13, V15, |v| {
        let mut short = flow(v, |_| {});
        short[3] = 4;
        vec![bundled(v, 1, 3, &short)]
    }),
    Case(E::BfcMsgBadXid, V13, V15, |v| {
        let mut other = flow(v, |_| {});
        other[7] = 99;
        vec![bundled(v, 1, 3, &other)]
    }),
    Case(E::BfcMsgUnsup, V13, V15, |v| vec![bundled(v, 1, 3, &barrier(v))]),
    Case(E::BfcSchedNotSupported, V15, V15, |v| vec![bundle(v, 1, 0, 7)]),
    Case(E::NxBacBadConjunction, V10, V15, |v| {
        vec![actions(v, &nicira_action(34, &[5, 1, 0, 0, 0, 1]))]
    }),
    Case(E::NxBacBadEdProp, V13, V15, |v| {
        vec![actions(
            v,
            &nicira_action(46, &[0, 0, 0, 1, 0x89, 0x4f, 0, 4, 1, 3, 0, 0, 0, 0, 0, 0]),
        )]
    }),
    Case(E::NxBacUnknownEdProp, V13, V15, |v| {
        vec![actions(
            v,
            &nicira_action(46, &[0, 0, 0, 1, 0x89, 0x4f, 0, 9, 1, 8, 0, 0, 0, 0]),
        )]
    }),
    Case(E::NxBrcMustBeZero, V10, V14, |v| {
        let body = [&words(&[8, 0, 0])[..], &[0, 1, 0, 4], &[0, 1, 2, 4], &[1; 8]].concat();
        vec![actions(v, &nicira_action(6, &body))]
    }),
    Case(E::NxBrcBadReason, V10, V15, |v| {
        let status = PortStatus {
            reason: 0,
            desc: PortDesc::default(),
        };
        let mut bytes = encode(v, Body::PortStatus(Box::new(status)));
        bytes[8] = 9;
        vec![bytes]
    }),
    Case(E::NxBrcMustBeZero, V10, V15, |v| {
        vec![nicira(v, 20, &[1, 0, 0, 0, 0, 0, 0, 5])]
    }),
    Case(E::NxBrcNxmInvalid, V10, V10, |v| {
        vec![matching(
            v,
            &nxm(
                1,
                30,
                true,
                &[0, 0, 0, 0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            ),
        )]
    }),
    Case(E::NxBrcUnencodableError, V12, V12, |v| {
        vec![set_field(v, &oxm(ETH_DST, true, &[0; 12]))]
    }),
    Case(E::NxRStale, V10, V15, |v| {
        // A packet, the reason and the metadata, and no continuation.
        let data = [&words(&[0, 64])[..], &[0x55; 60]].concat();
        vec![nicira(
            v,
            28,
            &[&data[..], &words(&[6, 12, 0x8000, 4, 0, 1, 0, 0])].concat(),
        )]
    }),
    Case(E::NxStNotConfigured, V10, V15, |v| {
        let request = StatsRequest::IpfixBridge;
        vec![encode(v, Body::StatsRequest { more: false, request })]
    }),
    Case(E::NxFmfcInvalidTlvField, V10, V15, |v| {
        vec![matching(v, &nxm(1, 40, false, &[0; 4]))]
    }),
    Case(E::NxTtmfcBadCommand, V10, V15, |v| vec![nicira(v, 24, &tlv(9, &[]))]),
    Case(E::NxTtmfcBadFieldIdx, V10, V15, |v| {
        vec![nicira(v, 24, &tlv(0, &[0, 1, 2, 4, 0, 99, 0, 0]))]
    }),
    Case(E::NxTtmfcBadOptLen, V10, V15, |v| {
        vec![nicira(v, 24, &tlv(0, &[0, 1, 2, 3, 0, 1, 0, 0]))]
    }),
    Case(E::NxTtmfcTableFull, V10, V15, |v| {
        let maps = [1, 2, 3].map(|kind| [0, 1, kind, 124, 0, kind, 0, 0]).concat();
        unmapped(v, &[nicira(v, 24, &tlv(0, &maps))])
    }),
    Case(E::NxTtmfcAlreadyMapped, V10, V15, |v| {
        let map = |kind| nicira(v, 24, &tlv(0, &[0, 1, kind, 4, 0, 1, 0, 0]));
        unmapped(v, &[map(1), map(2)])
    }),
    Case(E::NxTtmfcDupEntry, V10, V15, |v| {
        let map = |field| nicira(v, 24, &tlv(0, &[0, 1, 1, 4, 0, field, 0, 0]));
        unmapped(v, &[map(1), map(2)])
    }),
    Case(E::NxTtmfcInvalidTlvDel, V12, V15, |v| {
        let used = flow(v, |change| {
            change.matching.add_tun_metadata(1, &[5], None).unwrap();
        });
        let map = |command| nicira(v, 24, &tlv(command, &[0, 1, 1, 4, 0, 1, 0, 0]));
        unmapped(v, &[map(0), used, map(1)])
    }),
];
