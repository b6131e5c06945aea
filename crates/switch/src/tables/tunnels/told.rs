//! What collectors are told of tunnels that packets leave by.

use super::super::export::{OuterHeaders, SampledTunnel};
use super::super::pipeline::Pipeline;
use crate::dep::Read;
use crate::port::Ingress;
use std::net::IpAddr;
use tunnel::format::InnerIp;
use tunnel::vport::Config;

impl Pipeline<'_> {
    /// The tunnel of an OpenFlow port, for samples. The outer headers are those that the packet
    /// would get if it left by the tunnel now.
    pub(in super::super) fn tunnel_to(&mut self, number: u32) -> Option<SampledTunnel> {
        let bridge = self.packet.place.bridge?;
        let (port, interface) = bridge.of_ports.get(&number).copied()?;
        self.depend(Read::Port(bridge.id, port));
        let at = Ingress {
            bridge: bridge.id,
            port,
            interface,
        };
        let vport = self.switch.tunnels.ports().get(at)?;
        let config = &vport.config;
        self.consult_received_tunnel();
        let ip = self.inner_ip(config);
        let mark = self.outer_mark(config);
        self.depend(Read::Underlay);
        let remote = self.remote_of(config);
        let told = remote.and_then(|remote| {
            let source = self.source_of(config);
            let underlay = &self.switch.tunnels.underlay;
            let (_, hop) = underlay.way(vport, remote, mark as u32, source)?;
            Some(self.told_of(config, ip, (source.unwrap_or(hop.source), remote)))
        });
        Some(SampledTunnel::of(vport, told))
    }

    /// What collectors are told of the outer headers.
    pub(super) fn told_of(&self, config: &Config, ip: Option<InnerIp>, (src, dst): (IpAddr, IpAddr)) -> OuterHeaders {
        OuterHeaders {
            src,
            dst,
            tos: config.outer_tos(ip),
            src_port: 0,
            dst_port: config.dst_port,
            key: self.out_key(config).unwrap_or_default(),
        }
    }
}
