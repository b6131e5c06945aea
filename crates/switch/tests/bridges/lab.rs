//! A switch to send packets into.

use dp::{Action, Change, DropCause, Translation, Upcall};
use flow::{PortNo, extract};
use nanos::Nanos;
use std::collections::BTreeMap;
use switch::tables::{Patience, Translated};
use switch::{Attach, BridgeConfig, InterfaceConfig, LinkState, PortConfig, Punts, Switch, SwitchConfig};
use testkit::Packet;
use wire::{Vid, VlanTag};

/// A switch, its configuration, and the time.
pub(crate) struct Lab {
    pub(crate) config: SwitchConfig,
    pub(crate) switch: Switch,
    pub(crate) now: Nanos,
    /// The changes by the last packets and ticks.
    pub(crate) changes: Vec<Change>,
    pub(crate) ports: BTreeMap<String, u32>,
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab {
            config: SwitchConfig::default(),
            switch: Switch::new(42),
            now: Nanos::from_secs(1000),
            changes: Vec::new(),
            ports: BTreeMap::new(),
        }
    }

    /// A switch of one bridge, `br0`, of trunk ports of these names.
    pub(crate) fn with_ports(names: &[&str]) -> Lab {
        let mut lab = Lab::new();
        for name in names {
            lab.port("br0", name, PortConfig::default());
        }
        lab.configure();
        lab
    }

    pub(crate) fn bridge(&mut self, name: &str) -> &mut BridgeConfig {
        self.config.bridges.entry(name.to_owned()).or_default()
    }

    /// Adds a port with a device. Takes effect with [`Lab::configure`].
    pub(crate) fn port(&mut self, bridge: &str, name: &str, config: PortConfig) {
        let number = self.ports.len() as u32 + 1;
        let number = *self.ports.entry(name.to_owned()).or_insert(number);
        self.attach(bridge, name, config, Attach::Device(PortNo(number)), number as u16);
    }

    /// Adds a patch port with an interface of its name.
    pub(crate) fn patch(&mut self, bridge: &str, name: &str, peer: &str, config: PortConfig) {
        let attach = Attach::Patch { peer: peer.to_owned() };
        self.attach(bridge, name, config, attach, 1000);
    }

    fn attach(&mut self, bridge: &str, name: &str, mut config: PortConfig, attach: Attach, ofport: u16) {
        config.interfaces.push(InterfaceConfig {
            name: name.to_owned(),
            ofport,
            attach,
            link: LinkState::UP,
            punts: Punts::default(),
        });
        self.bridge(bridge).ports.insert(name.to_owned(), config);
    }

    pub(crate) fn port_mut(&mut self, name: &str) -> &mut PortConfig {
        let mut bridges = self.config.bridges.values_mut();
        bridges.find_map(|bridge| bridge.ports.get_mut(name)).unwrap()
    }

    pub(crate) fn configure(&mut self) {
        self.changes = self.switch.configure(self.config.clone(), self.now);
    }

    /// Advances the time, with all ticks that are due.
    pub(crate) fn wait(&mut self, secs: u64) {
        let end = self.now + std::time::Duration::from_secs(secs);
        self.changes.clear();
        while let Some(due) = self.switch.next_event().filter(|due| *due <= end) {
            self.changes.extend(self.switch.tick(due));
        }
        self.now = end;
    }

    pub(crate) fn translated(&self, port: &str, packet: Packet) -> Translated {
        let packet = packet.bytes();
        let key = &extract(&packet, &PortNo(self.ports[port]).into()).unwrap();
        let upcall = Upcall::new(key, &packet);
        self.switch.translate(&upcall, self.now, Patience::Whole).unwrap()
    }

    pub(crate) fn translate(&self, port: &str, packet: Packet) -> Translation {
        self.translated(port, packet).translation
    }

    /// Sends a packet, and learns from it. Returns the egress ports: `a b` for ports `a` and `b`,
    /// with tags as in [`show`] if any.
    pub(crate) fn send_packet(
        &mut self,
        port: &str,
        packet: Packet,
        tags: &[VlanTag],
    ) -> Result<Vec<String>, DropCause> {
        let packet = tags.iter().fold(packet, |packet, tag| packet.tag(tag.tpid, tag.tci));
        let translation = self.translate(port, packet.payload(0x88b5, b"data"));
        self.changes = self.switch.apply(&translation.effects, self.now);
        if let Some(cause) = translation.drop {
            assert!(translation.actions.is_empty());
            return Err(cause);
        }
        let mut tags = tags.to_vec();
        let mut out = Vec::new();
        for action in translation.actions.iter() {
            match action {
                Action::PushVlan(tag) => tags.insert(0, *tag),
                Action::PopVlan => {
                    tags.remove(0);
                }
                Action::Output(port) => {
                    let name = self.ports.iter().find(|(_, number)| **number == port.0).unwrap().0;
                    out.push(format!("{name} {}", show(&tags)).trim_end().to_owned());
                }
                other => panic!("plain switching does not ask for {other}"),
            }
        }
        out.sort();
        Ok(out)
    }

    /// Sends an untagged packet between stations.
    pub(crate) fn send(&mut self, port: &str, src: u32, dst: u32) -> Result<Vec<String>, DropCause> {
        self.send_packet(port, Packet::new(testkit::mac(src), testkit::mac(dst)), &[])
    }

    /// The stations that a bridge knows, as `port vlan station`, the oldest first.
    pub(crate) fn stations(&self, bridge: &str) -> Vec<String> {
        let bridge = self.switch.bridge(bridge).unwrap();
        let entries = bridge.entries(self.now);
        entries
            .map(|entry| format!("{} {} {}", entry.port, entry.vlan, entry.mac.0[5]))
            .collect()
    }
}

/// Tags in short: `10` a C-tag, `s10` an S-tag, `10p5` with priority 5, `10+20` one inside the
/// other, nothing for none.
pub(crate) fn show(tags: &[VlanTag]) -> String {
    let one = |tag: &VlanTag| {
        let service = if tag.tpid == 0x88a8 { "s" } else { "" };
        let priority = if tag.pcp() == 0 {
            String::new()
        } else {
            format!("p{}", tag.pcp())
        };
        format!("{service}{}{priority}", tag.vid())
    };
    tags.iter().map(one).collect::<Vec<_>>().join("+")
}

/// The tags that [`show`] prints so.
pub(crate) fn tags(text: &str) -> Vec<VlanTag> {
    let one = |text: &str| {
        let (tpid, text) = text.strip_prefix('s').map_or((0x8100, text), |text| (0x88a8, text));
        let (vid, pcp) = text.split_once('p').unwrap_or((text, "0"));
        VlanTag {
            tpid,
            tci: vid.parse::<u16>().unwrap() | pcp.parse::<u16>().unwrap() << 13,
        }
    };
    text.split('+').filter(|text| !text.is_empty()).map(one).collect()
}

pub(crate) fn vid(vid: u16) -> Vid {
    Vid::new(vid).unwrap()
}
