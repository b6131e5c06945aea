//! Samples and flow records for collectors (tables "NetFlow", "sFlow" and "IPFIX" in
//! ovs-vswitchd.conf.db(5), action `sample` in ovs-actions(7)).
//!
//! The bridge that receives a packet samples it before anything else, and tells NetFlow of its
//! flow; bridges behind patch ports do not. A bridge with IPFIX also samples what it sends.

use super::pipeline::{Pipeline, delivers};
use super::translated::NewFlowRecord;
use super::{Context, Credited};
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::export::{FlowKey, FlowOutput, FlowRecord};
use crate::port::Ingress;
use dp::{Action, Direction, FlowSample, Labels, PortNo, PuntReason, SampleData, TunnelPush};
use flow::{Field, MatchField, Tunnel};
use openflow::model::{Port, Sample, SampleDirection};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::vport::{Type, Vport};
use wire::EtherType;

/// What a translation notes for the exporters of the bridge that received the packet.
#[derive(Default)]
pub(super) struct Exported<'a> {
    pub(super) bridge: Option<&'a Bridge>,
    /// The places of the punts to sFlow and to IPFIX in the actions, of received packets: what
    /// becomes of these is known at the end.
    sflow: Option<usize>,
    ipfix: Option<usize>,
    /// The flow of the packet, for NetFlow.
    flow: Option<FlowKey>,
    /// Whether the packet was flooded.
    flooded: bool,
    /// The tunnels that it leaves by.
    tunnels: Vec<LeftBy>,
    /// The local port of the bridge where it ends a tunnel.
    ended_at: Option<PortNo>,
    /// The port that the packet comes in on if it is an outer one. The datapath does not know it.
    pub(super) outer_port: Option<PortNo>,
}

/// A tunnel that a packet leaves by.
struct LeftBy {
    push: Arc<TunnelPush>,
    at: Ingress,
    tunnel: SampledTunnel,
}

/// A handle's meaning: what a sample is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sampled {
    /// The bridge, by its number in the switch.
    pub bridge: u32,
    /// What the sample is for.
    pub data: SampleData,
    /// The port that the packet comes in on, if the datapath knows another one.
    pub in_port: Option<PortNo>,
    /// The tunnel that the packet came through, without outer headers: it has its own.
    pub from: Option<SampledTunnel>,
    /// The tunnel that the packet leaves by: for sFlow if that is the only way, for IPFIX if the
    /// sample is about that port.
    pub to: Option<SampledTunnel>,
}

/// A tunnel of a sampled packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SampledTunnel {
    /// The name of its interface.
    pub name: Arc<str>,
    /// Its type.
    pub kind: Type,
    /// The outer headers, if they are known.
    pub outer: Option<OuterHeaders>,
}

/// The outer headers of a sampled packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterHeaders {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Type of service or traffic class.
    pub tos: u8,
    /// UDP source port; 0 without UDP, or if the packet gets its own.
    pub src_port: u16,
    /// UDP destination port; 0 without UDP.
    pub dst_port: u16,
    /// The key; 0 without one.
    pub key: u64,
}

impl From<&Tunnel> for OuterHeaders {
    fn from(tunnel: &Tunnel) -> OuterHeaders {
        OuterHeaders {
            src: tunnel.src,
            dst: tunnel.dst,
            tos: tunnel.tos,
            src_port: tunnel.tp_src,
            dst_port: tunnel.tp_dst,
            key: tunnel.id,
        }
    }
}

/// sFlow's "packet dropped for unknown reason", and its mark of several outputs (sFlow version 5,
/// `interface`).
const DROPPED: u32 = 0x4000_0000 | 256;
const SEVERAL: u32 = 0x8000_0000;

impl<'a> Pipeline<'a> {
    /// The packet enters the first bridge of its way.
    pub(super) fn export_received(&mut self) {
        let Some(bridge) = self.packet.place.bridge else { return };
        let Some(export) = &bridge.export else { return };
        self.exported.bridge = Some(bridge);
        if export.netflow {
            self.tell_flows_apart();
        }
        if self.in_port() == Port::ANY.0 {
            return;
        }
        if let Some(sflow) = export.sflow.as_ref().filter(|sflow| sflow.probability != 0) {
            self.exported.sflow = Some(self.take_sample(sflow.probability, 0, sflow.header));
        }
        if let Some(ipfix) = export.ipfix.filter(|ipfix| ipfix.input && ipfix.probability != 0) {
            self.exported.ipfix = Some(self.take_sample(ipfix.probability, 0, u16::MAX));
        }
    }

    /// The packet, as it is at this point, leaves its bridge through a device, or through a tunnel
    /// with that datapath port.
    pub(super) fn export_sent(&mut self, device: PortNo, tunnel: Option<SampledTunnel>) {
        // Collectors would take what is no Ethernet packet for one.
        if self.is_bare() {
            return;
        }
        let ipfix = self
            .packet
            .place
            .bridge
            .and_then(|bridge| bridge.export.as_ref()?.ipfix);
        if let Some(ipfix) = ipfix.filter(|ipfix| ipfix.output) {
            let data = SampleData::Ipfix {
                output_port: device.0,
                dropped: false,
            };
            self.sample(ipfix.probability, data, tunnel);
        }
    }

    /// The packet leaves through a tunnel.
    pub(super) fn export_left_by(&mut self, at: Ingress, vport: &Vport, push: &Arc<TunnelPush>, outer: OuterHeaders) {
        let exports = |bridge: &Bridge| bridge.export.is_some();
        if self.exported.bridge.is_none() && !self.packet.place.bridge.is_some_and(exports) {
            return;
        }
        let tunnel = SampledTunnel::of(vport, Some(outer));
        self.export_sent(push.port, Some(tunnel.clone()));
        let push = push.clone();
        self.exported.tunnels.push(LeftBy { push, at, tunnel });
    }

    /// The packet ends a tunnel at this local port of a bridge. As in Open vSwitch, IPFIX does not
    /// count it as sent: nobody receives it there.
    pub(super) fn export_ended(&mut self, device: PortNo) {
        self.exported.ended_at = Some(device);
    }

    /// Does something with the outer packet, which comes in on a port of the underlay's bridge.
    pub(super) fn as_outer(&mut self, port: PortNo, run: impl FnOnce(&mut Self)) {
        let before = self.exported.outer_port.replace(port);
        run(self);
        self.exported.outer_port = before;
    }

    /// The tunnel that the packet came through.
    fn came_through(&mut self) -> Option<SampledTunnel> {
        if self.exported.outer_port.is_some() || !self.switch.tunnels.is_device(self.original.in_port()) {
            return None;
        }
        self.consult_tunnel();
        let vport = self
            .switch
            .tunnels
            .ports()
            .get(self.switch.tunnels.find(self.original)?)?;
        Some(SampledTunnel::of(vport, None))
    }

    pub(super) fn flooded(&mut self) {
        self.exported.flooded = true;
    }

    /// The action `sample`.
    pub(super) fn sample_flow(&mut self, sample: &Sample) {
        let Some(bridge) = self.packet.place.bridge else { return };
        if self.is_bare() || !bridge.export.as_ref().is_some_and(|export| export.flow_samples) {
            return;
        }
        let in_port = self.in_port();
        if in_port == Port::ANY.0 {
            return;
        }
        let (mut output_port, mut to) = (u32::MAX, None);
        if sample.sampling_port != Port::ANY && sample.sampling_port.0 != in_port {
            let number = sample.sampling_port.0;
            let Some(device) = bridge.device_of(number) else {
                return self.error(|p| {
                    let port = p.text_of_port(sample.sampling_port);
                    format!("can't use unknown port {port} in flow sample action")
                });
            };
            output_port = device.0;
            to = self.tunnel_to(number);
        }
        self.commit_all();
        let data = SampleData::Flow(FlowSample {
            probability: sample.probability,
            collector_set: sample.collector_set_id,
            domain: sample.obs_domain_id,
            point: sample.obs_point_id,
            output_port,
            tunnel_out: to.as_ref().is_some_and(|to| to.outer.is_some()),
            direction: match sample.direction {
                SampleDirection::Default => None,
                SampleDirection::Ingress => Some(Direction::Ingress),
                SampleDirection::Egress => Some(Direction::Egress),
            },
        });
        // The same part of 2^32 as of 2^16.
        let probability = u32::from(sample.probability) << 16 | u32::from(sample.probability);
        self.sample(probability, data, to);
    }

    fn sample(&mut self, probability: u32, data: SampleData, to: Option<SampledTunnel>) {
        let Some(bridge) = self.packet.place.bridge else { return };
        if probability == 0 {
            return;
        }
        let from = self.came_through();
        let meaning = Sampled {
            bridge: bridge.id,
            data,
            in_port: self.exported.outer_port,
            from,
            to,
        };
        if let Some(handle) = self.remember(Context::Sampled(meaning)) {
            self.take_sample(probability, handle, u16::MAX);
        }
    }

    /// Appends a sample; the place of its punt.
    fn take_sample(&mut self, probability: u32, handle: u32, max_len: u16) -> usize {
        self.actions.push(Action::Sample { probability, steps: 1 });
        self.actions.push(Action::Punt {
            reason: PuntReason::Sample,
            handle,
            max_len,
        });
        self.actions.len() - 1
    }

    /// NetFlow's flows differ in addresses, protocol, ports and DSCP, and their records tell which
    /// TCP flags were seen.
    fn tell_flows_apart(&mut self) {
        if self.read_kind() != EtherType::IPV4 {
            return;
        }
        const DSCP: u128 = 0xfc;
        self.consult(Field::IpTos, DSCP);
        for field in [Field::Ipv4Src, Field::Ipv4Dst, Field::IpProto, Field::IpFrag] {
            self.consult(field, u128::MAX);
        }
        let key = self.packet.state.key;
        let protocol = key.get(Field::IpProto) as u8;
        let is_later_fragment = key.get(Field::IpFrag) & 2 != 0;
        let mut ports = (0, 0);
        let mut tcp_flags = 0;
        if !is_later_fragment {
            match protocol {
                6 | 17 | 132 => {
                    self.consult(Field::TpSrc, u128::MAX);
                    self.consult(Field::TpDst, u128::MAX);
                    ports = (key.get(Field::TpSrc) as u16, key.get(Field::TpDst) as u16);
                }
                1 => {
                    self.consult(Field::IcmpType, u128::MAX);
                    self.consult(Field::IcmpCode, u128::MAX);
                    ports = (key.get(Field::IcmpType) as u16, key.get(Field::IcmpCode) as u16);
                }
                _ => {}
            }
            if protocol == 6 {
                self.unshown(|p| p.consult(Field::TcpFlags, u128::MAX));
                tcp_flags = key.get(Field::TcpFlags) as u16 as u8;
            }
        }
        self.exported.flow = Some(FlowKey {
            in_port: self.packet.state.get(MatchField::InPortOxm) as u32,
            src: (key.get(Field::Ipv4Src) as u32).into(),
            dst: (key.get(Field::Ipv4Dst) as u32).into(),
            protocol,
            tos: key.get(Field::IpTos) as u8 & DSCP as u8,
            src_port: ports.0,
            dst_port: ports.1,
            tcp_flags,
        });
    }

    fn read_kind(&mut self) -> EtherType {
        EtherType(self.read(Field::EthType) as u16)
    }

    /// The translation is done: tells sFlow and NetFlow where the packet went.
    pub(super) fn finish_export(&mut self) -> Option<NewFlowRecord> {
        let bridge = self.exported.bridge.filter(|_| !self.failed)?;
        let export = bridge.export.as_ref()?;
        let mut outputs = Vec::new();
        self.outputs(&self.actions, &mut outputs);
        let only = match outputs[..] {
            [only] => Some(only),
            _ => None,
        };
        let from = match self.exported.sflow.or(self.exported.ipfix) {
            Some(_) => self.came_through(),
            None => None,
        };
        // The one behind comes first, in case a sample is left out.
        if let Some(at) = self.exported.ipfix {
            let data = SampleData::Ipfix {
                output_port: u32::MAX,
                dropped: !self.actions.iter().any(delivers),
            };
            let meaning = Sampled {
                bridge: bridge.id,
                data,
                in_port: None,
                from: from.clone(),
                to: None,
            };
            self.name_sample(at, meaning);
        }
        if let Some((at, sflow)) = self.exported.sflow.zip(export.sflow.as_ref()) {
            let known = match only {
                Some(Out::Device(device)) => sflow.ifindex.get(&device),
                _ => None,
            };
            let output = match (outputs.len() as u32, known) {
                (0, _) => DROPPED,
                (_, Some(ifindex)) => *ifindex,
                (several, None) => SEVERAL | several,
            };
            let to = match only {
                Some(Out::Tunnel { place, sent: true }) => Some(self.exported.tunnels[place].tunnel.clone()),
                _ => None,
            };
            let tci = self.packet.base.key.get(Field::VlanTci0) as u16;
            let tci = if tci & 0x1000 == 0 { 0 } else { tci & !0x1000 };
            // The sample itself stands before all labels.
            let labels = Labels::pushed(&self.actions);
            let meaning = Sampled {
                bridge: bridge.id,
                data: SampleData::Sflow { tci, output, labels },
                in_port: None,
                from,
                to,
            };
            self.name_sample(at, meaning);
        }
        let key = self.exported.flow?;
        let output = match only {
            _ if outputs.is_empty() => FlowOutput::Dropped,
            _ if self.exported.flooded => FlowOutput::Flooded,
            None => FlowOutput::Several,
            Some(out) => {
                if let Out::Device(device) = out {
                    self.depend(Read::Attachment(device));
                }
                self.number_of(out).map_or(FlowOutput::Several, FlowOutput::Port)
            }
        };
        let record = FlowRecord { key, output };
        let mut hasher = DefaultHasher::new();
        (self.switch.seed, bridge.id, &record).hash(&mut hasher);
        let (bridge, number) = (bridge.id, hasher.finish());
        self.credits.push(Credited::Netflow { bridge, flow: number }.credit());
        Some(NewFlowRecord { bridge, number, record })
    }

    /// Gives the punt at a place of the actions its handle; without a free one the sample is left
    /// out.
    fn name_sample(&mut self, at: usize, meaning: Sampled) {
        let handle = self.remember(Context::Sampled(meaning));
        match (handle, self.actions.get_mut(at)) {
            (Some(known), Some(Action::Punt { handle, .. })) => *handle = known,
            (None, Some(_)) => drop(self.actions.drain(at - 1..=at)),
            _ => {}
        }
    }

    /// Appends where actions send the packet. What a tunnel's underlay does with the outer packet
    /// is not another way.
    fn outputs(&self, actions: &[Action], found: &mut Vec<Out>) {
        let mut at = 0;
        while let Some(action) = actions.get(at) {
            let behind = at + 1 + action.steps();
            match action {
                Action::Output(device) => found.push(Out::Device(*device)),
                Action::TunnelPop { .. } => found.extend(self.exported.ended_at.map(Out::Device)),
                Action::TunnelPush(push) => {
                    let sent = actions[at + 1..].iter().any(delivers);
                    let mut all = self.exported.tunnels.iter();
                    let place = all.position(|left| Arc::ptr_eq(&left.push, push));
                    found.extend(place.map(|place| Out::Tunnel { place, sent }));
                    return;
                }
                _ => self.outputs(&actions[at + 1..behind], found),
            }
            at = behind;
        }
    }

    fn number_of(&self, out: Out) -> Option<u32> {
        let at = match out {
            Out::Device(device) => self.switch.attachments.get(&device)?,
            Out::Tunnel { place, .. } => &self.exported.tunnels.get(place)?.at,
        };
        self.switch.bridges.get(&at.bridge)?.number_of(*at)
    }
}

/// A way that a packet goes.
#[derive(Clone, Copy)]
enum Out {
    Device(PortNo),
    /// The tunnel at this place among those that it leaves by.
    Tunnel {
        place: usize,
        /// Whether the underlay sends the outer packet.
        sent: bool,
    },
}

impl SampledTunnel {
    pub(super) fn of(vport: &Vport, outer: Option<OuterHeaders>) -> SampledTunnel {
        SampledTunnel {
            name: vport.name.as_str().into(),
            kind: vport.config.kind,
            outer,
        }
    }
}
