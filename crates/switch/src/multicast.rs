//! The multicast forwarding table of a bridge: what snooping has found out (RFC 4541).
//!
//! The machine `protocols::snooping` decides; this is its result by port of the bridge, for
//! translations to read.

use crate::bridge::Bridge;
use crate::dep::Read;
use crate::switch::Switch;
use crate::tables::tags::{Reader, Tags};
use crate::tables::words::{StateWords, WORDS};
use dp::Change;
use flow::PacketMeta;
use protocols::snooping::{Event, SourceFilter};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use wire::Vid;

/// How a bridge treats multicast packets if it snoops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnoopingConfig {
    /// Whether packets of groups without members go to all ports, or to routers only.
    pub flood_unregistered: bool,
    /// Whether the control plane reports to routers in place of the hosts, whose reports end here.
    pub proxy_reports: bool,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Multicast {
    groups: BTreeMap<(Vid, IpAddr), Vec<(u32, SourceFilter)>>,
    routers: BTreeMap<Vid, Vec<u32>>,
}

impl Multicast {
    /// The members of a group; `None` without any.
    pub(crate) fn members(&self, vlan: Vid, group: IpAddr) -> Option<&[(u32, SourceFilter)]> {
        self.groups.get(&(vlan, group)).map(Vec::as_slice)
    }

    /// The ports of a VLAN behind which routers are.
    pub(crate) fn routers(&self, vlan: Vid) -> &[u32] {
        self.routers.get(&vlan).map_or(&[], Vec::as_slice)
    }
}

impl Switch {
    /// Applies what snooping has found out in a bridge. Events name ports by the OpenFlow number of
    /// an interface; unknown ones are ignored. `whole` says that the events are the whole table.
    pub fn snoop(&mut self, bridge: &str, events: &[Event], whole: bool) -> Vec<Change> {
        let Ok(bridge) = self.bridge_mut(bridge) else {
            return Vec::new();
        };
        let mut stale = Vec::new();
        bridge.snoop(events, whole, &mut stale);
        self.changes(stale)
    }

    /// The VLAN to which a port assigns a frame that a control protocol has taken; `None` if the
    /// port refuses it, or there is no such port.
    pub fn vlan_at(&self, bridge: &str, number: u32, frame: &[u8]) -> Option<Vid> {
        let bridge = self.bridge(bridge)?;
        let (port, _) = bridge.of_ports.get(&number)?;
        let key = flow::extract(frame, &PacketMeta::default())?;
        let mut consulted: StateWords = [0; WORDS];
        let reader = &mut Reader::new(&key, &mut consulted, self.vlan_limit);
        bridge.ports.get(port)?.vlans.ingress(&mut Tags::default(), reader)
    }
}

impl Bridge {
    fn snoop(&mut self, events: &[Event], whole: bool, stale: &mut Vec<Read>) {
        let id = self.id;
        let port_of = |number: u32| self.of_ports.get(&number).map(|(port, _)| *port);
        let (mut groups, mut routers) = (BTreeSet::new(), BTreeSet::new());
        for event in events {
            match event {
                Event::Group { vlan, group, members } => {
                    let key = (*vlan, *group);
                    let members = members.iter();
                    let new: Vec<(u32, SourceFilter)> = members
                        .filter_map(|(number, filter)| Some((port_of(*number)?, filter.clone())))
                        .collect();
                    groups.insert(key);
                    let old = match new.is_empty() {
                        true => self.multicast.groups.remove(&key),
                        false => self.multicast.groups.insert(key, new.clone()),
                    };
                    if old.unwrap_or_default() != new {
                        stale.push(Read::Members(id, *vlan, *group));
                    }
                }
                Event::Routers { vlan, ports } => {
                    let new: Vec<u32> = ports.iter().filter_map(|number| port_of(*number)).collect();
                    routers.insert(*vlan);
                    let old = match new.is_empty() {
                        true => self.multicast.routers.remove(vlan),
                        false => self.multicast.routers.insert(*vlan, new.clone()),
                    };
                    if old.unwrap_or_default() != new {
                        stale.push(Read::Routers(id, *vlan));
                    }
                }
            }
        }
        if whole {
            self.multicast.groups.retain(|key, _| {
                let stays = groups.contains(key);
                if !stays {
                    stale.push(Read::Members(id, key.0, key.1));
                }
                stays
            });
            self.multicast.routers.retain(|vlan, _| {
                let stays = routers.contains(vlan);
                if !stays {
                    stale.push(Read::Routers(id, *vlan));
                }
                stays
            });
        }
    }
}
