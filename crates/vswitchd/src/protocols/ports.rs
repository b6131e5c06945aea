//! What control protocols know of the switch's interfaces.

use crate::bridges::Bridges;
use dp::PortNo;
use std::collections::{BTreeMap, HashMap};
use switch::tables::ControlPort;
use switch::{Bridge, Switch};
use wire::MacAddr;

/// An interface of a bridge that works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortFacts {
    pub(crate) bridge: String,
    pub(crate) interface: String,
    /// Its OpenFlow port number.
    pub(crate) ofport: u16,
    /// The datapath port that frames leave by; `None` for a patch and for a tunnel.
    pub(crate) device: Option<PortNo>,
    /// The address of the device; that of the bridge where there is none.
    pub(crate) mac: MacAddr,
    /// Whether its bridge has mirrors, captures among them, which may want copies of frames.
    pub(crate) mirrored: bool,
    /// Whether the device has a link; a patch and a tunnel have.
    pub(crate) up: bool,
    /// In bit/s, if it is known.
    pub(crate) speed: Option<u64>,
    pub(crate) full_duplex: bool,
}

/// All interfaces that work.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    interfaces: BTreeMap<String, PortFacts>,
    by_number: HashMap<ControlPort, String>,
    /// The address of each bridge.
    bridges: BTreeMap<String, MacAddr>,
}

impl Ports {
    pub(crate) fn new(bridges: &Bridges, switch: &Switch) -> Ports {
        let mut ports = Ports::default();
        for (bridge, name, interface) in bridges.interfaces() {
            let (Ok(ofport), Some(number)) = (&interface.ofport, switch.bridge_number(bridge)) else {
                continue;
            };
            let link = interface.link.as_ref();
            let mac = link.map_or(MacAddr::ZERO, |link| link.mac);
            if name == bridge {
                ports.bridges.insert(bridge.to_owned(), mac);
            }
            // The datapath port of a tunnel takes packets off their outer headers, and sends none.
            let device = interface.port.filter(|_| interface.tunnel.is_none());
            let at = ControlPort::new(number, flow::port_from_of10(*ofport));
            ports.by_number.insert(at, name.to_owned());
            let facts = PortFacts {
                bridge: bridge.to_owned(),
                interface: name.to_owned(),
                ofport: *ofport,
                device,
                mac,
                mirrored: switch.bridge(bridge).is_some_and(Bridge::has_mirrors),
                up: link.is_none_or(|link| link.carrier),
                speed: link.and_then(|link| link.speed),
                full_duplex: link.and_then(|link| link.full_duplex).unwrap_or(true),
            };
            ports.interfaces.insert(name.to_owned(), facts);
        }
        let Ports {
            interfaces, bridges, ..
        } = &mut ports;
        for facts in interfaces.values_mut().filter(|facts| facts.device.is_none()) {
            facts.mac = bridges.get(&facts.bridge).copied().unwrap_or_default();
        }
        ports
    }

    /// An interface by its name.
    pub(crate) fn get(&self, interface: &str) -> Option<&PortFacts> {
        self.interfaces.get(interface)
    }

    /// The interface at which a frame has come in.
    pub(crate) fn at(&self, port: ControlPort) -> Option<&PortFacts> {
        self.get(self.by_number.get(&port)?)
    }

    /// The address of a bridge's local port.
    pub(crate) fn mac_of_bridge(&self, bridge: &str) -> Option<MacAddr> {
        self.bridges.get(bridge).copied()
    }
}
