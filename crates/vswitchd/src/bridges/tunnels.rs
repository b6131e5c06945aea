//! Tunnels: their datapath ports, and the networks that lead to their other ends.

use super::{BridgeState, Bridges, interfaces_of};
use crate::desired::{self, Desired, InterfaceKind};
use crate::dummy_port;
use crate::routes::{Routes, addresses_of};
use dp::PortNo;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use switch::{Underlay, UnderlayBridge};
use tunnel::route::Prefix;
use tunnel::vport::Vport;

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

    /// Tells the switch the networks that lead to tunnels' other ends.
    pub(crate) fn settle_underlay(&self, routes: &mut Routes) {
        if !self.has_tunnels() {
            return;
        }
        let bridges = self.state.iter();
        let bridges = bridges.filter_map(|(name, state)| Some((name.clone(), self.underlay_of(name, state)?)));
        let (bridges, routes) = (bridges.collect(), routes.shared());
        self.shared
            .update(|switch, _| switch.set_underlay(Underlay { routes, bridges }));
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
