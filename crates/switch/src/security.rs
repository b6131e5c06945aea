//! Port security in a bridge: limits of addresses, sticky addresses, and ports that were shut.

use crate::bridge::Bridge;
use crate::dep::Read;
use crate::fdb::Station;
use crate::port::Port;
use crate::switch::Switch;
use crate::{BridgeConfig, FdbError, MacLimit};
use dp::Change;
use std::collections::{BTreeMap, BTreeSet};
use wire::{MacAddr, Vid};

/// What port security has done with a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secured {
    /// The name of the bridge.
    pub bridge: String,
    /// The name of the port.
    pub port: String,
    /// The VLAN of the station.
    pub vlan: Vid,
    /// The station.
    pub mac: MacAddr,
    /// What.
    pub what: Security,
}

/// What port security does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// The station is sticky at the port now.
    Sticky,
    /// The station is no longer sticky.
    Released,
    /// The station was one too many: the port is shut.
    Shut,
    /// The port that the station had shut is open again.
    Opened,
}

/// A port with a limit of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecuredPort<'a> {
    /// Its name.
    pub port: &'a str,
    /// Its limit.
    pub limit: MacLimit,
    /// Stations that it has.
    pub stations: usize,
    /// How many of them are sticky.
    pub sticky: usize,
    /// The station that was one too many, if the port is shut.
    pub shut: Option<(Vid, MacAddr)>,
}

impl Switch {
    /// What port security has done since the last call.
    pub fn take_secured(&mut self) -> Vec<Secured> {
        let done = std::mem::take(&mut self.secured);
        let named = done.into_iter().filter_map(|(bridge, port, (vlan, mac), what)| {
            Some(Secured {
                bridge: self.bridge_name(bridge)?.to_owned(),
                port: self.bridges.get(&bridge)?.ports.get(&port)?.name.clone(),
                vlan,
                mac,
                what,
            })
        });
        named.collect()
    }

    /// Opens a port that was shut.
    ///
    /// # Errors
    /// [`FdbError::NoBridge`], [`FdbError::NoPort`].
    pub fn open_port(&mut self, bridge: &str, port: &str) -> Result<Vec<Change>, FdbError> {
        let bridge = self.bridge_mut(bridge)?;
        let id = *bridge.port_ids.get(port).ok_or(FdbError::NoPort)?;
        let Some(station) = bridge.ports.get(&id).and_then(|port| port.shut) else {
            return Ok(Vec::new());
        };
        let (number, mut stale) = (bridge.id, Vec::new());
        bridge.set_shut(id, None, &mut stale);
        self.secured.push((number, id, station, Security::Opened));
        Ok(self.changes(stale))
    }
}

impl Bridge {
    /// The ports with a limit of addresses.
    pub fn secured_ports(&self) -> impl Iterator<Item = SecuredPort<'_>> {
        self.ports.iter().filter_map(|(id, port)| {
            Some(SecuredPort {
                port: &port.name,
                limit: port.mac_limit?,
                stations: self.fdb.count(*id, usize::MAX),
                sticky: self.fdb.sticky_at(*id).count(),
                shut: port.shut,
            })
        })
    }

    /// The station that has shut a port.
    pub fn shut_by(&self, port: &str) -> Option<(Vid, MacAddr)> {
        self.ports.get(self.port_ids.get(port)?)?.shut
    }

    /// Whether a station that is refused at a port shuts it.
    pub(crate) fn would_shut(&self, port: u32) -> bool {
        let port = self.ports.get(&port);
        port.is_some_and(|port| port.mac_limit.is_some_and(|limit| limit.shuts) && port.shut.is_none())
    }

    /// Shuts a port for a station, or opens it.
    pub(crate) fn set_shut(&mut self, id: u32, station: Option<Station>, stale: &mut Vec<Read>) {
        let Some(port) = self.ports.get_mut(&id).filter(|port| port.shut != station) else {
            return;
        };
        port.shut = station;
        port.settle();
        if station.is_some() {
            self.fdb.flush(Some(id));
        }
        stale.extend([Read::Port(self.id, id), Read::Flood(self.id)]);
        self.note_control(stale);
    }

    /// Follows the limits of ports. A port with another limit starts to learn again.
    pub(crate) fn set_limits(&mut self, old: &BTreeMap<u32, Port>, stale: &mut Vec<Read>) {
        for (id, port) in &self.ports {
            let before = old.get(id).and_then(|old| old.mac_limit);
            if before == port.mac_limit {
                continue;
            }
            self.fdb.set_limit(*id, port.mac_limit);
            self.fdb.flush(Some(*id));
            self.sticky.remove(id);
            let sticky: Vec<Station> = self.fdb.sticky_at(*id).collect();
            for (vlan, mac) in sticky {
                self.fdb.del_sticky(vlan, mac, *id);
                stale.extend(Read::moved(self.id, vlan, mac));
            }
        }
        let ports = &self.ports;
        self.sticky.retain(|id, _| ports.contains_key(id));
    }

    /// Follows the sticky stations of the configuration: what has come to it or gone from it since
    /// the last one. Stations that packets have made sticky meanwhile stay.
    pub(crate) fn set_sticky(&mut self, config: &BridgeConfig, stale: &mut Vec<Read>) {
        for (name, port) in &config.ports {
            let Some(limit) = port.mac_limit.filter(|limit| limit.sticky) else {
                continue;
            };
            let Some(&id) = self.port_ids.get(name) else { continue };
            let new: BTreeSet<Station> = port.sticky.iter().copied().take(limit.most as usize).collect();
            let old = self.sticky.insert(id, new.clone()).unwrap_or_default();
            for &(vlan, mac) in old.difference(&new) {
                if self.fdb.del_sticky(vlan, mac, id) {
                    stale.extend(Read::moved(self.id, vlan, mac));
                }
            }
            for &(vlan, mac) in new.difference(&old) {
                if self.fdb.lookup(vlan, mac).is_some_and(|(_, fixed)| fixed) {
                    continue;
                }
                let evicted = self.fdb.add_sticky(vlan, mac, id);
                stale.extend(Read::moved(self.id, vlan, mac));
                stale.extend(evicted.map(|(vlan, mac)| Read::Station(self.id, vlan, mac)));
            }
        }
    }
}
