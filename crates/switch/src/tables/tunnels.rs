//! Tunnels in a translation: packets that came through one, and packets that leave by one.
//!
//! A packet that leaves by a tunnel gets its outer headers in the datapath. It then enters the
//! bridge whose local port has the outer source address, as if that port had received it: rules,
//! mirrors and queues of the underlay see the outer packet. The key of the outer packet is in the
//! translation except for its UDP source port, which every packet has of its own. Where the
//! underlay reads that port, the packet recirculates instead.
//!
//! Packets that are longer than the path takes are refused where they get their outer headers:
//! the limit is that of the device, or what an ICMP error has told.
//!
//! Where no bridge of ours leads to the other end, the packet with its outer headers leaves by the
//! tunnel's datapath port, which hands it to the host's stack. Packets that the host's stack has
//! received come from there without outer headers.

mod ended;
mod told;

use super::Credited;
use super::export::OuterHeaders;
use super::pipeline::Pipeline;
use crate::bridge::Bridge;
use crate::dep::Read;
use crate::port::{Egress, Ingress};
use crate::tunnel::Way;
use dp::{Action, DropCause, Effect, PathLimit, TunnelPush};
use flow::{Field, Key, MatchField, PacketMeta, PortNo, Tunnel};
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::format::geneve::{Options, OptionsBuffer};
use tunnel::format::{Body, EncapsulateError, Encapsulation, Erspan, ErspanV2, Gbp, Inner, InnerIp, Outer, Packet};
use tunnel::neighbour::BridgeName;
use tunnel::vport::{self, Config, Endpoint, Local, Mode, Tos, Ttl, Type, Vport};
use wire::{EtherType, MacAddr};

const UDP: u128 = 17;

/// The bits of the congestion mark and of the DSCP in a type of service.
const ECN: u128 = 3;
const DSCP: u128 = 0xfc;

/// Bytes behind the headers of a packet whose outer key is asked for.
const SOME_PAYLOAD: usize = 64;

impl<'a> Pipeline<'a> {
    /// The port of a packet that a tunnel's datapath port has decapsulated. `None` where the
    /// datapath port is not that of a tunnel, or no tunnel has the packet.
    pub(super) fn received_by_tunnel(&mut self, device: PortNo) -> Option<Ingress> {
        if !self.switch.tunnels.is_device(device) {
            return None;
        }
        self.consult_tunnel();
        let Some(at) = self.switch.tunnels.find(self.original) else {
            self.dropped(DropCause::NoTunnel);
            return None;
        };
        let vport = self.switch.tunnels.ports().get(at);
        if vport.is_some_and(|vport| !self.is_permitted(vport)) {
            return None;
        }
        self.credit_port(at, false);
        Some(at)
    }

    /// Whether the tunnel may forward the packet, which it otherwise drops: no packet passes a
    /// tunnel with IPsec unencrypted.
    fn is_permitted(&mut self, vport: &Vport) -> bool {
        if !vport.config.ipsec {
            return true;
        }
        self.depend(Read::Underlay);
        let permitted = self.switch.tunnels.underlay.permits(vport);
        if !permitted {
            self.warning(|_| format!("{}: not encrypted", vport.name));
            self.dropped(DropCause::TunnelNotEncrypted);
        }
        permitted
    }

    /// Whether the packet has no Ethernet header, and its port is one of a tunnel that shows that
    /// to rules (`packet_type=ptap`). On other ports it has one with addresses of zero.
    pub(super) fn comes_bare(&self, at: Ingress) -> bool {
        let shows = |vport: &Vport| vport.config.mode == Mode::Ptap;
        self.original.get(Field::TunFlags) as u16 & Tunnel::NO_ETHERNET != 0
            && self.switch.tunnels.ports().get(at).is_some_and(shows)
    }

    /// Consults the fields that select the tunnel port, the ones that Open vSwitch consults.
    pub(super) fn consult_tunnel(&mut self) {
        let flags = Tunnel::DF | Tunnel::CSUM | Tunnel::KEY | Tunnel::NO_ETHERNET;
        self.consult(Field::TunFlags, flags.into());
        for field in [Field::TunId, Field::TunSrc, Field::TunDst, Field::TunTos] {
            self.consult(field, u128::MAX);
        }
        if self.original.get(Field::TunDst) == 0 {
            self.consult(Field::TunIpv6Src, u128::MAX);
            self.consult(Field::TunIpv6Dst, u128::MAX);
        }
    }

    /// Whether the switch has made the packet: an ICMP error as from the other end of a tunnel.
    pub(super) fn is_own_error(&mut self) -> bool {
        if !self.switch.tunnels.is_device(self.original.in_port()) {
            return false;
        }
        self.consult_unshown(Field::TunFlags, Tunnel::OWN_ERROR.into());
        self.original.get(Field::TunFlags) as u16 & Tunnel::OWN_ERROR != 0
    }

    /// Gives the packet the fields that the bridge has for options of its tunnel. Returns whether
    /// it may go on.
    pub(super) fn read_tunnel_options(&mut self, bridge: &Bridge) -> bool {
        let map = bridge.tables.options().packets();
        let from_tunnel = self.switch.tunnels.is_device(self.original.in_port());
        if !from_tunnel || map.is_empty() && self.tunnel_options.is_empty() {
            return true;
        }
        self.consult(Field::TunOptions, u128::MAX);
        let options = Options::new(self.tunnel_options).and_then(|options| dp::geneve::receive(map, options));
        match options {
            Ok(options) => {
                self.packet.state.set_tunnel_options(&options);
                true
            }
            Err(refusal) => {
                self.warning(|_| refusal.to_string());
                self.dropped(dp::cause_of_refusal(refusal));
                false
            }
        }
    }

    /// Sends the packet through a tunnel.
    pub(super) fn send_through_tunnel(&mut self, at: Ingress) {
        let Some(vport) = self.switch.tunnels.ports().get(at) else {
            return self.dropped(DropCause::PortDown);
        };
        if !self.another_output() {
            return;
        }
        let config = &vport.config;
        let takes_all = config.mode != Mode::LegacyL2 && config.carries_l3();
        if !takes_all && !self.is_ethernet() {
            return;
        }
        self.consult_received_tunnel();
        let inner = self.inner_of(config);
        let ip = self.inner_ip(config);
        let Some(remote) = self.remote_of(config) else {
            self.warning(|_| String::from("Not tunneling to our own address"));
            self.note_left_tunnel(|p| p.left_tunnel(config, ip));
            return self.dropped(DropCause::TunnelRoute);
        };
        if !self.is_permitted(vport) {
            return;
        }
        let mark = self.outer_mark(config);
        self.depend(Read::Underlay);
        let device = PortNo(vport.datapath_port);
        let source = self.source_of(config);
        let underlay = &self.switch.tunnels.underlay;
        let Some((way, hop)) = underlay.way(vport, remote, mark as u32, source) else {
            self.detail(|_| String::from("output to native tunnel"));
            self.warning(|_| String::from("native tunnel routing failed"));
            return self.dropped(DropCause::TunnelRoute);
        };
        let limit = self.path_limit(config, (way, &hop.device), remote);
        let source = source.unwrap_or(hop.source);
        let (underlay, ethernet) = match way {
            Way::Native(name, bridge) => {
                let next_hop = hop.gateway.unwrap_or(remote);
                self.detail(|_| String::from("output to native tunnel"));
                self.detail(|_| format!("tunneling to {next_hop} via {name}"));
                let Some(mac) = self.next_hop_mac(name, next_hop) else {
                    return;
                };
                let own = bridge.mac;
                self.detail(|_| format!("tunneling from {own} {source} to {mac} {next_hop}"));
                (bridge.local, (mac, own))
            }
            Way::Host => {
                self.detail(|_| String::from("output to kernel tunnel"));
                let none = MacAddr::default();
                (device, (none, none))
            }
        };
        let outer = Outer {
            ethernet: Some(ethernet),
            src: source,
            dst: remote,
            tos: config.outer_tos(ip),
            ttl: config.outer_ttl(ip),
            df: config.df,
            label: config.label,
            ports: self.switch.tunnels.tables.source_ports,
        };
        let headers = inner
            .ok_or(EncapsulateError::Inner)
            .and_then(|inner| self.encapsulation(config, &outer, inner));
        let headers = match headers {
            Ok(headers) => headers,
            Err(error) => {
                self.warning(|_| error.to_string());
                return self.dropped(DropCause::TunnelRoute);
            }
        };
        let push = Arc::new(TunnelPush {
            port: device,
            underlay,
            kind: config.kind.kind(),
            headers,
            sequence: self.switch.tunnels.sequence(at),
            limit,
        });
        let told = self.told_of(config, ip, (source, remote));
        self.credit_port(at, true);
        match way {
            Way::Native(..) => self.send_encapsulated(at, vport, push, (mark, told)),
            Way::Host => self.send_by_host(at, vport, push, (mark, told)),
        }
    }

    /// How long the tunnel's packets to an end may be.
    fn path_limit(&mut self, config: &Config, (way, device): (Way<'_>, &str), remote: IpAddr) -> Option<PathLimit> {
        let may_fragment = !config.df && remote.is_ipv4();
        if may_fragment && way == Way::Host {
            // The host's stack makes the fragments.
            return None;
        }
        self.depend(Read::PathMtu(remote));
        let tunnels = &self.switch.tunnels;
        let of_device = tunnels.underlay.mtus.get(device).copied();
        // Routers fragment what may be fragmented.
        let of_path = tunnels.tables.path_mtus.get(remote).filter(|_| !may_fragment);
        let mtu = of_device.into_iter().chain(of_path).min()?;
        Some(PathLimit {
            mtu,
            fragments: may_fragment,
            answers: !self.packet.is_mirrored,
            id: match config.in_key {
                vport::Key::None => None,
                vport::Key::Value(key) => Some(key),
                vport::Key::Flow => self.out_key(config),
            },
        })
    }

    /// Counts the packet for both ends of a patch through which it goes to this one.
    pub(super) fn credit_patch(&mut self, peer: Ingress) {
        if let Some(own) = self.switch.peer_of(peer) {
            self.credit_port(*own, true);
        }
        self.credit_port(peer, false);
    }

    /// Counts the packet for a tunnel, or an end of a patch.
    fn credit_port(&mut self, at: Ingress, sent: bool) {
        let Ingress {
            bridge,
            port,
            interface,
        } = at;
        let credited = Credited::Port {
            bridge,
            port,
            interface: interface as u16,
            sent,
        };
        self.credits.push(credited.credit());
    }

    /// Hands the packet with its outer headers to the host's stack.
    fn send_by_host(&mut self, at: Ingress, vport: &Vport, push: Arc<TunnelPush>, (mark, told): (u128, OuterHeaders)) {
        let device = push.port;
        self.commit_all();
        self.export_left_by(at, vport, &push, told);
        let before = self.packet.base.key.get(Field::PktMark);
        let Some(mut outer) = outer_key(&push, self.packet.base.queue) else {
            return self.dropped(DropCause::TunnelRoute);
        };
        outer.set(Field::PktMark, before);
        let limit = self.packet.limit.take();
        if let Some(saved) = self.begin_copy() {
            self.actions.extend(limit.map(Action::Trunc));
            self.actions.push(Action::TunnelPush(push));
            self.packet.base.key = outer;
            self.packet.state.key = outer;
            self.packet.state.key.set(Field::PktMark, mark);
            self.commit_all();
            self.actions.push(Action::Output(device));
            self.end_copy(saved);
        }
        self.packet.limit = limit;
        self.mirror_sent(Egress::Tunnel(at));
    }

    /// The mark by which the route is chosen, and which the outer packet has.
    fn outer_mark(&mut self, config: &Config) -> u128 {
        match config.egress_pkt_mark {
            Some(mark) => u128::from(mark),
            None => {
                self.consult_unshown(Field::PktMark, u128::MAX);
                self.packet.state.key.get(Field::PktMark)
            }
        }
    }

    /// The outer headers may have what the packet came with.
    fn consult_received_tunnel(&mut self) {
        if self.switch.tunnels.is_device(self.original.in_port()) {
            Field::of_tunnels().for_each(|field| self.consult_unshown(field, u128::MAX));
        }
    }

    fn out_key(&self, config: &Config) -> Option<u64> {
        match config.out_key {
            vport::Key::None => None,
            vport::Key::Value(key) => Some(key),
            vport::Key::Flow => Some(self.packet.state.get(MatchField::TunId) as u64),
        }
    }

    fn send_encapsulated(
        &mut self,
        at: Ingress,
        vport: &Vport,
        push: Arc<TunnelPush>,
        (mark, told): (u128, OuterHeaders),
    ) {
        let Some(entry) = self.switch.attachments.get(&push.underlay).copied() else {
            return self.dropped(DropCause::TunnelRoute);
        };
        self.commit_all();
        self.export_left_by(at, vport, &push, told);
        let before = self.packet.base.key.get(Field::PktMark);
        let Some(mut outer) = outer_key(&push, self.packet.base.queue) else {
            return self.dropped(DropCause::TunnelRoute);
        };
        outer.set(Field::PktMark, mark);
        let mut held = outer;
        held.set(Field::PktMark, before);
        // What the underlay reads is of the outer packet, which is decided already.
        let consulted = std::mem::replace(&mut self.consulted, [0; super::WORDS]);
        let start = (self.actions.len(), self.controllers.len());
        let (rules, credits) = (self.rules.len(), self.credits.len());
        let action = Action::TunnelPush(push.clone());
        let limit = self.packet.limit.take();
        self.as_outer(push.underlay, |pipeline| {
            pipeline.with_other_packet(|pipeline| {
                pipeline.enter_after(entry, outer, |copy| {
                    copy.actions.extend(limit.map(Action::Trunc));
                    copy.actions.push(action.clone());
                    copy.packet.base.key = held;
                });
            });
        });
        let read = std::mem::replace(&mut self.consulted, consulted);
        let is_udp = outer.get(Field::IpProto) == UDP;
        if is_udp && super::words::get(&read, MatchField::UdpSrc) != 0 && !self.failed {
            // The underlay looks at the port that each packet has of its own.
            self.take_back(start);
            self.rules.truncate(rules);
            self.credits.truncate(credits);
            self.recirculate_encapsulated(
                entry,
                push.underlay,
                [limit.map(Action::Trunc), Some(action)],
                (held, mark),
            );
        }
        self.packet.limit = limit;
        self.mirror_sent(Egress::Tunnel(at));
    }

    /// The packet enters the underlay's bridge when the datapath knows its outer headers.
    fn recirculate_encapsulated(
        &mut self,
        entry: Ingress,
        underlay: PortNo,
        push: [Option<Action>; 2],
        (held, mark): (Key, u128),
    ) {
        let Some(saved) = self.begin_copy() else { return };
        self.actions.extend(push.into_iter().flatten());
        self.packet.base.key = held;
        self.packet.state.key = held;
        self.packet.state.key.set(Field::PktMark, mark);
        self.as_outer(underlay, |pipeline| pipeline.enter_again(entry));
        self.end_copy(saved);
    }

    /// The other end of a tunnel; `None` where the rules have chosen none, or the one that the
    /// packet came from.
    fn remote_of(&self, config: &Config) -> Option<IpAddr> {
        let remote = match config.remote {
            Endpoint::Address(remote) => remote,
            Endpoint::Flow => self.packet.state.key.tunnel_addresses()?.1,
        };
        let own = self.original.tunnel_addresses().map(|(_, dst)| dst);
        (own != Some(remote)).then_some(remote)
    }

    /// The fields of a tunnel that the packet was not sent through.
    fn left_tunnel(&self, config: &Config, ip: Option<InnerIp>) -> Key {
        let mut key = self.packet.state.key;
        key.set(Field::TunSrc, 0);
        key.set(Field::TunIpv6Src, 0);
        match config.local {
            Local::Address(IpAddr::V4(local)) => key.set(Field::TunSrc, local.to_bits().into()),
            Local::Address(IpAddr::V6(local)) => key.set(Field::TunIpv6Src, local.to_bits()),
            Local::Any | Local::Flow => {}
        }
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        let flags = flag(config.df, Tunnel::DF)
            | flag(config.csum, Tunnel::CSUM)
            | flag(config.out_key != vport::Key::None, Tunnel::KEY);
        key.set(Field::TunFlags, flags.into());
        key.set(Field::TunTtl, config.outer_ttl(ip).into());
        key.set(Field::TunTos, config.outer_tos(ip).into());
        key
    }

    /// The outer source address that is configured or that rules have chosen; `None` where it is
    /// that of the route.
    fn source_of(&self, config: &Config) -> Option<IpAddr> {
        let chosen = match config.local {
            Local::Address(local) => Some(local),
            Local::Flow => self.packet.state.key.tunnel_addresses().map(|(src, _)| src),
            Local::Any => None,
        };
        chosen.filter(|chosen| !chosen.is_unspecified())
    }

    /// The Ethernet address of the next hop; it is asked for where it is not known.
    fn next_hop_mac(&mut self, name: &str, next_hop: IpAddr) -> Option<MacAddr> {
        let Some(bridge) = self.switch.bridge_ids.get(name).copied() else {
            self.dropped(DropCause::TunnelRoute);
            return None;
        };
        self.depend(Read::Neighbour(bridge, next_hop));
        self.effects.push(Effect::Resolve {
            bridge,
            address: next_hop,
        });
        let mac = self.switch.tunnels.mac_of(BridgeName::new(name), next_hop);
        if mac.is_none() {
            self.detail(|_| {
                let kind = if next_hop.is_ipv4() { "ARP" } else { "ND" };
                format!("neighbor cache miss for {next_hop} on bridge {name}, sending {kind} request")
            });
            self.dropped(DropCause::TunnelNeighbour);
        }
        mac
    }

    /// What the tunnel carries of the packet; `None` where it cannot carry it.
    fn inner_of(&mut self, config: &Config) -> Option<Inner> {
        match config.mode {
            Mode::LegacyL2 => Some(Inner::Ethernet),
            Mode::Ptap if !self.is_bare() => Some(Inner::Ethernet),
            Mode::Ptap | Mode::LegacyL3 => {
                let kind = EtherType(self.read(Field::EthType) as u16);
                let carried = [EtherType::IPV4, EtherType::IPV6, EtherType::MPLS, EtherType::NSH];
                carried.contains(&kind).then_some(Inner::Packet(kind))
            }
        }
    }

    /// What the outer header inherits; `None` from a packet that is not IP.
    fn inner_ip(&mut self, config: &Config) -> Option<InnerIp> {
        let kind = EtherType(self.read(Field::EthType) as u16);
        if !matches!(kind, EtherType::IPV4 | EtherType::IPV6) {
            return None;
        }
        let inherits = if config.tos == Tos::Inherit { DSCP } else { 0 };
        self.consult(Field::IpTos, ECN | inherits);
        if config.ttl == Ttl::Inherit {
            self.consult(Field::IpTtl, u128::MAX);
        }
        Some(InnerIp {
            tos: self.packet.state.key.get(Field::IpTos) as u8,
            ttl: self.packet.state.key.get(Field::IpTtl) as u8,
            label: None,
        })
    }

    fn encapsulation(
        &mut self,
        config: &Config,
        outer: &Outer,
        inner: Inner,
    ) -> Result<Encapsulation, EncapsulateError> {
        let get = |field| self.packet.state.get(field);
        let key = self.out_key(config);
        let (port, csum, id) = (config.dst_port, config.csum, key.unwrap_or(0));
        let mut segments = config.segments.as_slice();
        let end;
        if let ([], IpAddr::V6(remote)) = (segments, outer.dst) {
            end = [remote];
            segments = &end;
        }
        let options = self.packet.place.bridge.map(|bridge| bridge.tables.options().packets());
        let options = match (config.kind, options) {
            (Type::Geneve, Some(map)) => dp::geneve::send(map, &self.packet.state.tunnel_options())?,
            _ => OptionsBuffer::default(),
        };
        let body = match config.kind {
            Type::Vxlan => Body::Vxlan {
                port,
                csum,
                id,
                gbp: config.extensions.gbp.then(|| Gbp {
                    id: get(MatchField::TunGbpId) as u16,
                    flags: get(MatchField::TunGbpFlags) as u8,
                }),
                gpe: config.extensions.gpe,
            },
            Type::Geneve => Body::Geneve {
                port,
                csum,
                id,
                oam: get(MatchField::TunFlags) as u16 & Tunnel::OAM != 0,
                options: options.options(),
            },
            Type::Gre | Type::Ip6gre => Body::Gre {
                id: key,
                csum,
                sequence: config.seq,
            },
            Type::Erspan | Type::Ip6erspan => Body::Erspan {
                id,
                fields: self.erspan(config).ok_or(EncapsulateError::Erspan)?,
            },
            Type::Gtpu => Body::Gtpu {
                port,
                id,
                sequence: config.seq,
            },
            Type::Bareudp => Body::Bareudp {
                port,
                csum,
                payload: config.payload,
            },
            Type::Srv6 => Body::Srv6 { segments },
        };
        Encapsulation::new(outer, &body, inner)
    }

    fn erspan(&self, config: &Config) -> Option<Erspan> {
        let get = |field| self.packet.state.get(field);
        let erspan = &config.erspan;
        match erspan.version.unwrap_or(get(MatchField::TunErspanVer) as u8) {
            1 => Some(Erspan::V1 {
                index: erspan.index.unwrap_or(get(MatchField::TunErspanIdx) as u32),
            }),
            2 => Some(Erspan::V2(ErspanV2 {
                egress: erspan.egress.unwrap_or(get(MatchField::TunErspanDir) != 0),
                hwid: erspan.hwid.unwrap_or(get(MatchField::TunErspanHwid) as u8),
            })),
            _ => None,
        }
    }
}

/// The key of packets with these outer headers, whose UDP source port is not known.
fn outer_key(push: &TunnelPush, queue: u32) -> Option<Key> {
    let mut frame = vec![0; push.headers.len() + SOME_PAYLOAD];
    push.headers.write(&mut frame, &Packet::default()).ok()?;
    let mut meta = PacketMeta::received(push.underlay);
    meta.priority = queue;
    let mut key = flow::extract(&frame, &meta)?;
    if key.get(Field::IpProto) == UDP {
        key.set(Field::TpSrc, 0);
    }
    Some(key)
}
