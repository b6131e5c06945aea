//! IPFIX of a bridge, or of a set of collectors for the action `sample`.

use super::rows::Ipfix;
use super::samples::Sample;
use super::targets::{Collectors, Sent};
use super::{Facts, since_1970};
use dp::{Direction, PortNo, SampleData};
use export::ipfix::{Addresses, Exporter, Headers, Interface, Ip, Settings, Transport};
use flow::{Field, Key, PacketMeta};
use nanos::Nanos;
use openflow::model::IpfixStats;
use std::collections::HashMap;
use std::time::Duration;
use switch::tables::{Sampled, SampledTunnel};
use wire::EtherType;
use wire::headers::behind_tags;

/// An exporter and its collectors.
pub(super) struct OfIpfix {
    pub(super) row: Ipfix,
    exporter: Exporter,
    collectors: Collectors,
    sent: Sent,
}

impl OfIpfix {
    pub(super) fn new(row: &Ipfix, now: Nanos) -> OfIpfix {
        let settings = Settings {
            active_timeout: row.active_timeout,
            max_flows: row.max_flows,
            template_interval: row.template_interval,
            stats_interval: row.stats_interval,
            virtual_obs_id: row.virtual_obs_id.clone().unwrap_or_default(),
        };
        let mut collectors = Collectors::new("IPFIX");
        collectors.set(&row.targets);
        OfIpfix {
            row: row.clone(),
            exporter: Exporter::new(settings, now),
            collectors,
            sent: Sent::default(),
        }
    }

    /// What it has done, for OpenFlow; `set` is its set of collectors, 0 for a bridge's.
    pub(super) fn statistics(&self, set: u32) -> IpfixStats {
        let statistics = self.exporter.statistics();
        IpfixStats {
            total_flows: statistics.flows,
            current_flows: statistics.current_flows,
            packets: statistics.packets,
            ipv4_packets: statistics.ipv4_packets,
            ipv6_packets: statistics.ipv6_packets,
            error_packets: statistics.error_packets,
            tx_packets: self.sent.sent,
            tx_errors: self.sent.failed,
            collector_set_id: set,
            ..IpfixStats::default()
        }
    }

    pub(super) fn next(&self) -> Nanos {
        self.exporter.next()
    }

    pub(super) fn run(&mut self, now: Nanos) {
        let messages = self.exporter.run(now, since_1970());
        self.send(&messages);
    }

    pub(super) fn flush(&mut self, now: Nanos) {
        let messages = self.exporter.flush(now, since_1970());
        self.send(&messages);
    }

    fn send(&mut self, messages: &[Vec<u8>]) {
        let Sent { sent, failed } = self.collectors.send(messages);
        self.sent.sent += sent;
        self.sent.failed += failed;
    }

    /// Takes a sample of a packet that has come in or goes out.
    pub(super) fn take<'a>(
        &mut self,
        sample: &'a Sample,
        ports: &'a HashMap<PortNo, Facts>,
        now: Nanos,
        wall: Duration,
    ) {
        let (domain, point, weight, output_port, leaves, dropped) = match sample.meaning.data {
            SampleData::Sflow { .. } => return,
            SampleData::Ipfix { output_port, dropped } => {
                let weight = u64::from(self.row.sampling);
                let leaves = output_port != u32::MAX;
                (self.row.domain, self.row.point, weight, output_port, leaves, dropped)
            }
            SampleData::Flow(flow) => {
                let weight = u64::from(u16::MAX / flow.probability.max(1));
                let leaves = match flow.direction {
                    Some(direction) => direction == Direction::Egress,
                    None => flow.output_port != u32::MAX,
                };
                (flow.domain, flow.point, weight, flow.output_port, leaves, false)
            }
        };
        let Some(headers) = headers(&sample.packet) else {
            return self.exporter.unreadable();
        };
        let interface = |port: u32, tunnel: Option<&'a SampledTunnel>| match tunnel {
            // It has no device of its own.
            Some(tunnel) => Interface {
                ifindex: 0,
                name: &tunnel.name,
            },
            None => ports
                .get(&PortNo(port))
                .map_or_else(Interface::default, Facts::interface),
        };
        let Sampled { from, to, .. } = &sample.meaning;
        let has_output = leaves && output_port != u32::MAX;
        let tunnel = match output_port {
            u32::MAX => sample.tunnel_in(),
            _ if leaves => sample.tunnel_out(),
            _ => None,
        };
        let sample = export::ipfix::Sample {
            domain,
            point,
            weight,
            leaves,
            input: interface(sample.in_port.0, from.as_ref()),
            output: has_output.then(|| interface(output_port, to.as_ref())),
            tunnel: tunnel.filter(|_| self.row.tunnels),
            headers,
            len: sample.total_len,
            dropped,
        };
        self.exporter.sample(&sample, now, wall);
    }
}

impl Facts {
    fn interface(&self) -> Interface<'_> {
        Interface {
            ifindex: self.ifindex,
            name: &self.name,
        }
    }
}

/// The headers of a packet; `None` without an Ethernet header.
fn headers(packet: &[u8]) -> Option<Headers> {
    const TAGGED: u128 = 0x1000;
    let key = flow::extract(packet, &PacketMeta::default())?;
    let tci = key.get(Field::VlanTci0);
    let (kind, start) = behind_tags(packet, usize::MAX)?;
    Some(Headers {
        eth_src: packet.get(6..12)?.try_into().ok()?,
        eth_dst: packet.get(..6)?.try_into().ok()?,
        eth_type: kind.0,
        tci: (tci & TAGGED != 0).then_some(tci as u16 & !(TAGGED as u16)),
        ip: ip(&key, packet.get(start..)?),
    })
}

/// The IP header that stands at the beginning of `packet`.
fn ip(key: &Key, packet: &[u8]) -> Option<Ip> {
    const IPV6_HEADER: u16 = 40;
    let len = |at: usize| packet.get(at..at + 2).map(|len| u16::from_be_bytes([len[0], len[1]]));
    let get = |field| key.get(field);
    let (addresses, len) = match EtherType(get(Field::EthType) as u16) {
        EtherType::IPV4 => {
            let (src, dst) = (get(Field::Ipv4Src) as u32, get(Field::Ipv4Dst) as u32);
            (Addresses::V4(src.into(), dst.into()), len(2)?)
        }
        EtherType::IPV6 => {
            let (src, dst) = (get(Field::Ipv6Src), get(Field::Ipv6Dst));
            let label = get(Field::Ipv6Label) as u32;
            (
                Addresses::V6(src.into(), dst.into(), label),
                len(4)?.saturating_add(IPV6_HEADER),
            )
        }
        _ => return None,
    };
    let protocol = get(Field::IpProto) as u8;
    let is_later_fragment = get(Field::IpFrag) & 2 != 0;
    let (src, dst) = (get(Field::TpSrc) as u16, get(Field::TpDst) as u16);
    let transport = match protocol {
        _ if is_later_fragment => Transport::Other,
        6 => Transport::Tcp(src, dst, get(Field::TcpFlags) as u8),
        17 => Transport::Udp(src, dst),
        132 => Transport::Sctp(src, dst),
        1 if matches!(addresses, Addresses::V4(..)) => icmp(key),
        58 if matches!(addresses, Addresses::V6(..)) => icmp(key),
        _ => Transport::Other,
    };
    Some(Ip {
        addresses,
        ttl: get(Field::IpTtl) as u8,
        protocol,
        tos: get(Field::IpTos) as u8,
        len,
        transport,
    })
}

fn icmp(key: &Key) -> Transport {
    Transport::Icmp(key.get(Field::IcmpType) as u8, key.get(Field::IcmpCode) as u8)
}
