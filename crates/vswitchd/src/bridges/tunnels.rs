//! Tunnels: their datapath ports, and the networks that lead to their other ends.

use super::{BridgeState, Bridges, interfaces_of};
use crate::desired::{self, Desired, InterfaceKind};
use crate::dummy_port;
use crate::path_mtus::TooBig;
use crate::routes::{Routes, addresses_of};
use dp::{Datapath, PortNo};
use netdev::{HostTunnel, HostTunnelConfig, Link};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use switch::{Underlay, UnderlayBridge, Way};
use tunnel::route::{Prefix, Table};
use tunnel::vport::{Endpoint, IpsecPeer, Local, Vport};

/// Sockets of the host's stack for a tunnel's datapath port.
pub(super) struct HostPort {
    port: PortNo,
    config: HostTunnelConfig,
    /// Why there are none.
    error: Option<String>,
}

fn close(datapath: &dyn Datapath, name: &str, host: &HostPort) {
    if let Err(error) = datapath.del_port(host.port) {
        tracing::warn!(target: "tunnel", "{name}: {error}");
    }
}

/// The longest packets of the devices that routes lead by.
fn mtus(routes: &Table, links: &[Link]) -> BTreeMap<String, u16> {
    let devices = routes.devices();
    let named = links.iter().filter(|link| devices.contains(link.name.as_str()));
    named
        .map(|link| (link.name.clone(), u16::try_from(link.mtu).unwrap_or(u16::MAX)))
        .collect()
}

impl Bridges {
    /// Gives numbers to the datapath ports of tunnels. As in Open vSwitch a number is in the name,
    /// if it is free.
    pub(super) fn number_tunnels(&mut self, desired: &Desired) {
        let configs = desired.bridges.values().flat_map(interfaces_of);
        let names: BTreeSet<String> = configs
            .filter_map(|(.., interface)| match &interface.kind {
                InterfaceKind::Tunnel(config) => Some(config.datapath_port()),
                _ => None,
            })
            .collect();
        self.tunnel_ports.retain(|name, _| names.contains(name));
        for name in names {
            if !self.tunnel_ports.contains_key(&name) {
                // Without a free number the interface has no port.
                if let Some(number) = dummy_port::number(&name, |number| self.is_free(number)) {
                    self.tunnel_ports.insert(name, PortNo(number));
                }
            }
        }
    }

    /// The tunnel of an interface that is one.
    pub(super) fn tunnel_of(&self, name: &str, interface: &desired::Interface) -> Option<Arc<Vport>> {
        let InterfaceKind::Tunnel(config) = &interface.kind else {
            return None;
        };
        let port = self.tunnel_ports.get(&config.datapath_port())?;
        Some(Arc::new(Vport {
            name: name.to_owned(),
            datapath_port: port.0,
            config: **config,
        }))
    }

    /// Says which tunnels the switch has refused, in their rows and, when that is new, in the log.
    pub(super) fn refuse_tunnels(&self, state: &mut BTreeMap<String, BridgeState>) {
        for (name, why) in self.shared.switch.read().refused_tunnels() {
            let error = format!("could not add network device {name} to ofproto (File exists)");
            let mut interfaces = state.values_mut().filter_map(|bridge| bridge.interfaces.get_mut(&name));
            let Some(interface) = interfaces.next() else { continue };
            if self
                .interface(&name)
                .is_none_or(|before| before.ofport.as_ref() != Err(&error))
            {
                tracing::warn!(target: "tunnel", "{why}");
                tracing::warn!(target: "bridge", "{error}");
            }
            interface.ofport = Err(error);
        }
    }

    /// Whether there are tunnels.
    pub(crate) fn has_tunnels(&self) -> bool {
        !self.tunnel_ports.is_empty()
    }

    /// Tells the switch the networks that lead to tunnels' other ends. Returns whether a row has to
    /// say something else of them.
    pub(crate) fn settle_underlay(&mut self, routes: &mut Routes) -> bool {
        let follows_kernel = routes.follows_kernel();
        let peers = self.ipsec_peers(follows_kernel);
        // No packet may pass before this, and those that have come before it are dropped.
        let secured = self.ipsec.secure(&peers);
        self.open_host_tunnels(follows_kernel, &secured.added);
        if !self.has_tunnels() {
            self.ipsec.release_others(&peers);
            return false;
        }
        let links = match follows_kernel {
            true => netdev::list_links().unwrap_or_default(),
            false => Vec::new(),
        };
        let bridges = self.state.iter();
        let bridges = bridges.filter_map(|(name, state)| Some((name.clone(), self.underlay_of(name, state)?)));
        let host = self.host_tunnels.values().filter(|host| host.error.is_none());
        let underlay = Underlay {
            bridges: bridges.collect(),
            routes: routes.shared(),
            host: host.map(|host| host.port).collect(),
            mtus: mtus(routes.table(), &links),
            encrypted: secured.encrypted,
        };
        let is_shown = follows_kernel && self.show_ways(&underlay, &links, &secured.errors);
        self.shared.update(|switch, _| switch.set_underlay(underlay));
        // Tunnels that had IPsec before have ended, or forward without it from here on.
        self.ipsec.release_others(&peers);
        is_shown
    }

    /// The other ends of tunnels with IPsec, if the host's stack carries their packets.
    fn ipsec_peers(&self, follows_kernel: bool) -> BTreeSet<IpsecPeer> {
        let interfaces = self.interfaces().filter(|_| follows_kernel);
        let working = interfaces.filter(|(.., interface)| interface.ofport.is_ok());
        working
            .filter_map(|(.., interface)| interface.tunnel.as_ref()?.config.ipsec_peer())
            .collect()
    }

    /// Becomes readable when policies of IPsec may have gone.
    pub(crate) fn ipsec_events(&self) -> Option<BorrowedFd<'_>> {
        self.ipsec.events()
    }

    /// Packets that the kernel has dropped because of IPsec, by cause.
    pub(crate) fn blocked_by_kernel(&self) -> Vec<(&'static str, u64)> {
        self.ipsec.blocked_by_kernel()
    }

    /// Whether policies of IPsec may have gone.
    pub(crate) fn may_have_lost_ipsec(&mut self) -> bool {
        self.ipsec.may_have_lost()
    }

    /// Ends the tunnels that the host's stack carries, and then leaves no policy of IPsec behind.
    pub(crate) fn end_host_tunnels(&mut self) {
        self.open_host_tunnels(false, &BTreeSet::new());
        self.ipsec.release_others(&BTreeSet::new());
    }

    /// Opens sockets of the host's stack for the tunnels that there are, and closes others. Where
    /// the kernel's routes are left out, so is its stack. Sockets that may hold unencrypted packets
    /// of `fresh` are replaced.
    fn open_host_tunnels(&mut self, follows_kernel: bool, fresh: &BTreeSet<IpsecPeer>) {
        let mut wanted = BTreeMap::new();
        if follows_kernel && self.has_tunnels() {
            for own in self.shared.switch.read().tunnel_listeners() {
                let config = HostTunnelConfig {
                    format: own.format,
                    protocol: own.protocol,
                    port: own.port,
                };
                wanted.insert(own.name.clone(), (PortNo(own.datapath_port), config));
            }
        }
        let datapath = &self.datapath;
        self.host_tunnels.retain(|name, host| {
            let config = (host.config.protocol, host.config.port);
            let is_clean = fresh.iter().all(|peer| (peer.protocol, peer.port) != config);
            let stays = wanted.get(name) == Some(&(host.port, host.config)) && is_clean;
            if !stays && host.error.is_none() {
                close(&**datapath, name, host);
            }
            stays
        });
        for (name, (port, config)) in wanted {
            let before = self.host_tunnels.get(&name);
            if before.is_some_and(|host| host.error.is_none()) {
                continue;
            }
            let shared = self.shared.clone();
            let too_big = move |destination, mark| {
                shared.path_mtus.push(TooBig::Refused(config, destination, mark));
            };
            let device = HostTunnel::open(&name, config, Arc::new(too_big)).map_err(|error| error.to_string());
            let opened = device.and_then(|device| {
                let added = self.datapath.add_port(port, Arc::new(device));
                added.map_err(|error| error.to_string())
            });
            let error = opened.err();
            if let Some(error) = error.as_ref().filter(|_| before.is_none()) {
                tracing::warn!(target: "tunnel", "{error}: the host's stack carries no packets of its tunnels");
            }
            self.host_tunnels.insert(name, HostPort { port, config, error });
        }
    }

    /// Shows which way each tunnel takes, and why it takes none. Returns whether that is new.
    fn show_ways(&mut self, underlay: &Underlay, links: &[Link], errors: &BTreeMap<IpsecPeer, String>) -> bool {
        let mut is_new = false;
        let carrier = |device: &str| {
            let link = links.iter().find(|link| link.name == device);
            link.is_some_and(|link| link.carrier)
        };
        for interface in self
            .state
            .values_mut()
            .flat_map(|bridge| bridge.interfaces.values_mut())
        {
            let Some(tunnel) = &interface.tunnel else { continue };
            let host = self.host_tunnels.get(&tunnel.config.datapath_port());
            let error = host.and_then(|host| host.error.clone());
            let ipsec = match tunnel.config.ipsec_peer() {
                Some(peer) => errors.get(&peer).cloned(),
                None => tunnel.config.ipsec.then(|| {
                    String::from("IPsec: remote_ip=flow names nobody to encrypt for: all packets are dropped")
                }),
            };
            let error = [error, ipsec]
                .into_iter()
                .flatten()
                .reduce(|all, one| format!("{all}; {one}"));
            let mut details = BTreeMap::new();
            if let Endpoint::Address(remote) = tunnel.config.remote {
                let mark = tunnel.config.egress_pkt_mark.unwrap_or(0);
                let source = match tunnel.config.local {
                    Local::Address(local) => Some(local),
                    Local::Any | Local::Flow => None,
                };
                if let Some((way, hop)) = underlay.way(tunnel, remote, mark, source) {
                    let way = match way {
                        Way::Native(..) => "native",
                        Way::Host => "host",
                    };
                    let up = if carrier(&hop.device) { "up" } else { "down" };
                    details.insert("tunnel_egress_iface".to_owned(), hop.device.clone());
                    details.insert("tunnel_egress_iface_carrier".to_owned(), up.to_owned());
                    details.insert("underlay".to_owned(), way.to_owned());
                }
            }
            is_new |= interface.details != details || interface.underlay_error != error;
            interface.details = details;
            interface.underlay_error = error;
        }
        is_new
    }

    /// A bridge whose local port has an address.
    fn underlay_of(&self, name: &str, state: &BridgeState) -> Option<UnderlayBridge> {
        let local = state.interfaces.get(name)?;
        let addresses = self.addresses_of(name).into_iter();
        let addresses: Vec<IpAddr> = addresses.map(|prefix| prefix.host()).collect();
        (!addresses.is_empty()).then_some(UnderlayBridge {
            local: local.port?,
            mac: local.link.as_ref()?.mac,
            addresses,
        })
    }

    /// The addresses of a device: those of a dummy, or the kernel's.
    pub(crate) fn addresses_of(&self, name: &str) -> Vec<Prefix> {
        let device = self.interface(name).and_then(|interface| interface.device.as_ref());
        match device.and_then(|device| device.as_dummy()) {
            Some(dummy) => {
                let own = dummy.addresses().into_iter();
                own.filter_map(|(address, len)| Prefix::new(address, len)).collect()
            }
            None => addresses_of(name),
        }
    }
}
