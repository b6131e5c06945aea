//! Random configurations of a fixed set of ports, for both switches; random packets.

use crate::actions::Frame;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;
use switch::{
    Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, PortConfig, PriorityTags, Punts, SwitchConfig,
    VlanMode, VlanSet,
};
use testkit::{Packet, Rng, to_hex};
use wire::{Vid, VlanTag};

pub(crate) const BRIDGES: [&str; 2] = ["br0", "br1"];

/// Bridge, port, and the peer of a patch port.
const PORTS: [(&str, &str, Option<&str>); 10] = [
    ("br0", "a1", None),
    ("br0", "a2", None),
    ("br0", "a3", None),
    ("br0", "a4", None),
    ("br0", "a5", None),
    ("br0", "x0", Some("x1")),
    ("br1", "x1", Some("x0")),
    ("br1", "b1", None),
    ("br1", "b2", None),
    ("br1", "b3", None),
];

const VIDS: [u16; 5] = [0, 10, 20, 30, 99];

/// The numbers that Open vSwitch gave the ports.
pub(crate) struct Topology {
    /// Bridge, port, OpenFlow number, datapath number; patch ports are not among them.
    ports: Vec<(&'static str, String, u16, u32)>,
    /// OpenFlow numbers of patch ports.
    patches: BTreeMap<String, u16>,
}

impl Topology {
    /// The commands that add the ports.
    pub(crate) fn create() -> String {
        let mut words = String::new();
        for bridge in BRIDGES {
            let _ = write!(
                words,
                "-- add-br {bridge} -- set bridge {bridge} datapath_type=dummy fail_mode=standalone "
            );
        }
        for (bridge, port, peer) in PORTS {
            let kind = match peer {
                Some(peer) => format!("type=patch options:peer={peer}"),
                None => "type=dummy".to_owned(),
            };
            let _ = write!(words, "-- add-port {bridge} {port} -- set interface {port} {kind} ");
        }
        words
    }

    /// The same ports without Open vSwitch.
    pub(crate) fn fixed() -> Topology {
        let mut show = String::new();
        for (at, (bridge, port, peer)) in PORTS.iter().enumerate() {
            if at == 0 || PORTS[at - 1].0 != *bridge {
                let _ = writeln!(show, "{bridge}:\n{bridge} 65534/{}:", 100 + at);
            }
            let _ = match peer {
                None => writeln!(show, "{port} {0}/{0}: (dummy)", at + 1),
                Some(peer) => writeln!(show, "{port} {}/none: (patch: peer={peer})", at + 1),
            };
        }
        Topology::read(&show)
    }

    /// Reads `dpif/show`: lines like `a1 1/3: (dummy)` under the name of a bridge.
    pub(crate) fn read(show: &str) -> Topology {
        let mut ports = Vec::new();
        let mut patches = BTreeMap::new();
        let mut bridge = "";
        for line in show.lines().map(str::trim) {
            if let Some(name) = BRIDGES.iter().find(|name| line.strip_suffix(':') == Some(name)) {
                bridge = name;
            }
            let mut words = line.split([' ', '/', ':']);
            let (Some(name), Some(ofport), Some(port)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            match (ofport.parse(), port.parse()) {
                (Ok(ofport), Ok(port)) => ports.push((bridge, name.to_owned(), ofport, port)),
                (Ok(ofport), Err(_)) if port == "none" => {
                    patches.insert(name.to_owned(), ofport);
                }
                _ => {}
            }
        }
        assert_eq!(ports.len(), 10, "{show}");
        assert_eq!(patches.len(), 2, "{show}");
        Topology { ports, patches }
    }
}

/// A port's settings.
#[derive(Clone)]
struct Port {
    config: PortConfig,
}

/// One configuration.
#[derive(Clone)]
pub(crate) struct Config {
    ports: BTreeMap<&'static str, Port>,
    bridges: BTreeMap<&'static str, (VlanSet, bool)>,
    vlan_limit: u8,
}

impl Config {
    pub(crate) fn random(rng: &mut Rng) -> Config {
        // One in three has the same modes on most ports, so that traffic flows.
        let calm = rng.chance(33);
        let ports = PORTS
            .iter()
            .map(|(_, name, _)| {
                (
                    *name,
                    Port {
                        config: random_port(rng, calm),
                    },
                )
            })
            .collect();
        let bridges = BRIDGES
            .iter()
            .map(|name| {
                let flood = if rng.chance(15) { vlans(rng) } else { VlanSet::new() };
                (*name, (flood, rng.chance(15)))
            })
            .collect();
        Config {
            ports,
            bridges,
            vlan_limit: 1 + rng.below(2) as u8,
        }
    }

    /// Changes one of its ports, or the settings of a bridge.
    pub(crate) fn change(&mut self, rng: &mut Rng) {
        if rng.chance(20) {
            let other = Config::random(rng);
            self.bridges = other.bridges;
        } else {
            let name = rng.pick(&PORTS).1;
            self.ports.insert(
                name,
                Port {
                    config: random_port(rng, false),
                },
            );
        }
    }

    /// The commands that bring Open vSwitch to this configuration from any other.
    pub(crate) fn vsctl(&self) -> String {
        let mut words = format!("set Open_vSwitch . other_config:vlan-limit={} ", self.vlan_limit);
        for (name, (flood, forward)) in &self.bridges {
            let _ = write!(words, "-- clear bridge {name} flood_vlans ");
            let _ = write!(words, "-- set bridge {name} other_config:forward-bpdu={forward} ");
            if !flood.is_empty() {
                let _ = write!(words, "flood_vlans={} ", list(flood));
            }
        }
        for (name, Port { config }) in &self.ports {
            let mode = match config.vlan_mode {
                VlanMode::Access => "access",
                VlanMode::Trunk => "trunk",
                VlanMode::NativeTagged => "native-tagged",
                VlanMode::NativeUntagged => "native-untagged",
                VlanMode::Dot1qTunnel => "dot1q-tunnel",
            };
            let priority = match config.priority_tags {
                PriorityTags::Never => "never",
                PriorityTags::IfNonzero => "if-nonzero",
                PriorityTags::Always => "always",
            };
            let qinq = if config.qinq_ethertype == 0x8100 {
                "802.1q"
            } else {
                "802.1ad"
            };
            let _ = write!(words, "-- clear port {name} tag trunks cvlans ");
            let _ = write!(
                words,
                "-- set port {name} vlan_mode={mode} protected={} ",
                config.protected
            );
            let _ = write!(
                words,
                "other_config:priority-tags={priority} other_config:qinq-ethtype={qinq} "
            );
            if let Some(tag) = config.tag {
                let _ = write!(words, "tag={tag} ");
            }
            for (column, set) in [("trunks", &config.trunks), ("cvlans", &config.cvlans)] {
                if !set.is_empty() {
                    let _ = write!(words, "{column}={} ", list(set));
                }
            }
        }
        words
    }

    /// The same configuration for our switch.
    pub(crate) fn switch(&self, topology: &Topology) -> SwitchConfig {
        let mut config = SwitchConfig {
            vlan_limit: self.vlan_limit,
            ..SwitchConfig::default()
        };
        for (name, (flood_vlans, forward_bpdu)) in &self.bridges {
            let bridge = BridgeConfig {
                fail_mode: FailMode::Standalone,
                mac_aging: Duration::from_secs(300),
                flood_vlans: flood_vlans.clone(),
                forward_bpdu: *forward_bpdu,
                ..BridgeConfig::default()
            };
            config.bridges.insert((*name).to_owned(), bridge);
        }
        for (bridge, name, ofport, port) in &topology.ports {
            let mut settings = self
                .ports
                .get(name.as_str())
                .map_or_else(PortConfig::default, |port| port.config.clone());
            let attach = Attach::Device(flow::PortNo(*port));
            settings.interfaces.push(InterfaceConfig {
                name: name.clone(),
                ofport: *ofport,
                attach,
                link: LinkState::UP,
                punts: Punts::default(),
            });
            config
                .bridges
                .get_mut(*bridge)
                .unwrap()
                .ports
                .insert(name.clone(), settings);
        }
        for (bridge, name, peer) in PORTS {
            let Some(peer) = peer else { continue };
            let mut settings = self.ports[name].config.clone();
            let attach = Attach::Patch { peer: peer.to_owned() };
            settings.interfaces.push(InterfaceConfig {
                name: name.to_owned(),
                ofport: topology.patches[name],
                attach,
                link: LinkState::UP,
                punts: Punts::default(),
            });
            config
                .bridges
                .get_mut(bridge)
                .unwrap()
                .ports
                .insert(name.to_owned(), settings);
        }
        config
    }

    /// The differences, with the settings of the ports that they concern.
    pub(crate) fn difference(
        &self,
        topology: &Topology,
        shot: &Shot,
        theirs: &[(u32, Frame)],
        ours: &[(u32, Frame)],
    ) -> String {
        let mut text = format!("  vlan-limit {}, from {}\n", self.vlan_limit, self.port(&shot.name));
        for (whose, own, other) in [("theirs", theirs, ours), ("ours", ours, theirs)] {
            for (port, frame) in own.iter().filter(|output| !other.contains(output)) {
                let name = topology
                    .ports
                    .iter()
                    .find(|(.., at)| at == port)
                    .map_or("?", |(_, name, ..)| name);
                let _ = writeln!(text, "  only {whose}: {port} {:?} to {}", frame.0, self.port(name));
            }
        }
        let patches: Vec<_> = ["x0", "x1"].map(|name| self.port(name)).into();
        text + "  " + &patches.join("\n  ")
    }

    fn port(&self, name: &str) -> String {
        match self.ports.get(name) {
            None => name.to_owned(),
            Some(Port { config: c }) => format!(
                "{name}: {:?} tag {:?} trunks {:?} cvlans {:?} qinq {:x} priority {:?} protected {}",
                c.vlan_mode, c.tag, c.trunks, c.cvlans, c.qinq_ethertype, c.priority_tags, c.protected
            ),
        }
    }

    /// Why the difference is intended, if it is.
    pub(crate) fn excuse(
        &self,
        shot: &Shot,
        trace: &str,
        theirs: &[(u32, Frame)],
        ours: &[(u32, Frame)],
        learned_alike: bool,
    ) -> Option<&'static str> {
        let ports = || self.ports.values().map(|port| &port.config);
        let tunnels = ports().any(|port| port.vlan_mode == VlanMode::Dot1qTunnel);
        if theirs == ours && learned_alike && tunnels {
            return Some("it sees that a tag to push is the one that was popped; we know only where tags come from");
        }
        if trace.contains("partial VLAN tag") {
            // A tag under the one that `vlan-limit` lets it see.
            return Some("it drops what enters the next bridge with a tag that it has not parsed; we parse it");
        }
        if alike(theirs, ours, |tags| {
            tags.iter().copied().filter(|tag| tag.tci != 0).collect()
        }) {
            return Some("of tags of VLAN 0 and priority 0 it keeps some where no port asks for it");
        }
        let of_one_type = |tags: &[VlanTag]| {
            let tags = tags.iter().filter(|tag| tag.tci != 0);
            tags.map(|tag| VlanTag { tpid: 0x8100, ..*tag }).collect()
        };
        if tunnels && any_empty(theirs) && !any_empty(ours) && alike(theirs, ours, of_one_type) {
            return Some("on the tag of VLAN 0 that it keeps, the next bridge pushes a service tag");
        }
        let ports_of = |outputs: &[(u32, Frame)]| outputs.iter().map(|out| out.0).collect::<Vec<_>>();
        let tags_in = |outputs: &[(u32, Frame)]| outputs.iter().map(|out| out.1.0.len()).sum::<usize>();
        let innermost_lost = self.vlan_limit == 2 && shot.tags.len() >= 2
            || ports_of(theirs) == ports_of(ours) && tags_in(theirs) < tags_in(ours);
        if tunnels && innermost_lost {
            return Some("with a service tag on two others it loses the innermost; we keep all");
        }
        let inside_priority = shot.tags.len() >= 2 && shot.tags[0].vid() == Vid::NONE;
        if self.vlan_limit == 2 && inside_priority {
            return Some("it loses the tag inside a priority tag; we keep it");
        }
        let vlans = |tags: &[VlanTag]| {
            let tags = tags.iter().filter(|tag| tag.vid() != Vid::NONE);
            tags.map(|tag| VlanTag {
                tci: tag.vid().get(),
                ..*tag
            })
            .collect()
        };
        let priority = shot.tags.iter().any(|tag| tag.pcp() != 0);
        // If a patch port keeps a tag for the priority alone, the next bridge has the packet in
        // VLAN 0. Without that tag, the inner one names the VLAN, and other ports may carry it.
        let keeps = |port: &Port| port.config.priority_tags != PriorityTags::Never;
        let behind = ["x0", "x1"].iter().any(|name| self.ports.get(name).is_some_and(keeps));
        let common = |some: &[(u32, Frame)], other: &[(u32, Frame)]| -> Vec<(u32, Frame)> {
            let is_common = |out: &&(u32, Frame)| ports_of(other).contains(&out.0);
            some.iter().filter(is_common).cloned().collect()
        };
        let (of_both, ours_of_both) = (common(theirs, ours), common(ours, theirs));
        let same_vlans =
            alike(theirs, ours, vlans) || behind && of_both != ours_of_both && alike(&of_both, &ours_of_both, vlans);
        if priority && ports().any(|port| port.priority_tags != PriorityTags::Never) && same_vlans {
            return Some("with priority-tags it gives the outer of two tags the priority that the packet came with");
        }
        let zero = |port: &PortConfig| {
            matches!(port.vlan_mode, VlanMode::NativeTagged | VlanMode::NativeUntagged)
                && port.tag.is_none_or(|tag| tag == Vid::NONE)
                && !port.trunks.is_empty()
                && !port.trunks.contains(Vid::NONE)
        };
        if ports().any(zero) {
            return Some(
                "it does not carry a native VLAN 0 that is not among the trunks; the manual says that it does",
            );
        }
        if trace.contains("forwarding to learned port") {
            return Some("to a learned port it sends what it would not flood there; we look at the VLANs either way");
        }
        None
    }
}

/// Whether a frame has a tag of VLAN 0 and priority 0.
fn any_empty(outputs: &[(u32, Frame)]) -> bool {
    outputs.iter().any(|output| output.1.0.iter().any(|tag| tag.tci == 0))
}

/// Whether the same comes out of the same ports, as far as `view` sees a frame's tags.
fn alike(theirs: &[(u32, Frame)], ours: &[(u32, Frame)], view: impl Fn(&[VlanTag]) -> Vec<VlanTag>) -> bool {
    let seen = |outputs: &[(u32, Frame)]| {
        outputs
            .iter()
            .map(|(port, frame)| (*port, view(&frame.0)))
            .collect::<Vec<_>>()
    };
    seen(theirs) == seen(ours)
}

fn random_port(rng: &mut Rng, calm: bool) -> PortConfig {
    let modes = [
        VlanMode::Access,
        VlanMode::Trunk,
        VlanMode::NativeTagged,
        VlanMode::NativeUntagged,
        VlanMode::Dot1qTunnel,
    ];
    let vlan_mode = if calm && rng.chance(60) {
        VlanMode::Trunk
    } else {
        *rng.pick(&modes)
    };
    let tag = *rng.pick(&[Some(10), Some(10), Some(20), Some(0), None]);
    // A tunnel needs a service VLAN.
    let tag = match vlan_mode {
        VlanMode::Dot1qTunnel => tag.filter(|tag| *tag != 0).or(Some(10)),
        _ => tag,
    };
    PortConfig {
        vlan_mode,
        tag: tag.filter(|_| vlan_mode != VlanMode::Trunk).map(Vid::from_tci),
        trunks: if vlan_mode != VlanMode::Access && rng.chance(40) {
            vlans(rng)
        } else {
            VlanSet::new()
        },
        cvlans: if vlan_mode == VlanMode::Dot1qTunnel && rng.chance(40) {
            vlans(rng)
        } else {
            VlanSet::new()
        },
        qinq_ethertype: *rng.pick(&[0x88a8, 0x8100]),
        priority_tags: *rng.pick(&[
            PriorityTags::Never,
            PriorityTags::Never,
            PriorityTags::IfNonzero,
            PriorityTags::Always,
        ]),
        protected: rng.chance(20),
        ..PortConfig::default()
    }
}

fn vlans(rng: &mut Rng) -> VlanSet {
    VIDS.iter()
        .filter(|_| rng.chance(50))
        .map(|vid| Vid::from_tci(*vid))
        .collect()
}

fn list(set: &VlanSet) -> String {
    set.iter().map(|vid| vid.to_string()).collect::<Vec<_>>().join(",")
}

/// A packet into a port.
pub(crate) struct Shot {
    pub(crate) bridge: &'static str,
    pub(crate) name: String,
    pub(crate) ofport: u16,
    pub(crate) port: u32,
    pub(crate) tags: Vec<VlanTag>,
    src: [u8; 6],
    dst: [u8; 6],
}

impl Shot {
    pub(crate) fn random(rng: &mut Rng, topology: &Topology) -> Shot {
        let (bridge, name, ofport, port) = rng.pick(&topology.ports).clone();
        let depth = *rng.pick(&[0, 0, 1, 1, 1, 2, 2, 3]);
        let tags = (0..depth)
            .map(|_| {
                let pcp: u16 = *rng.pick(&[0, 0, 5]);
                VlanTag {
                    tpid: *rng.pick(&[0x8100, 0x8100, 0x88a8]),
                    tci: rng.pick(&VIDS) | pcp << 13,
                }
            })
            .collect();
        let stations = [1, 2, 3, 4].map(testkit::mac);
        let odd = [
            [0xff; 6],
            [1, 0x80, 0xc2, 0, 0, 0],
            [1, 0, 0xc, 0xcc, 0xcc, 0xcc],
            [1, 0, 0x5e, 0, 0, 1],
        ];
        let dst = if rng.chance(15) {
            *rng.pick(&odd)
        } else {
            *rng.pick(&stations)
        };
        let src = if rng.chance(3) {
            [3, 0, 0, 0, 0, 1]
        } else {
            *rng.pick(&stations)
        };
        Shot {
            bridge,
            name,
            ofport,
            port,
            tags,
            src,
            dst,
        }
    }

    pub(crate) fn key(&self) -> flow::Key {
        flow::extract(&self.bytes(), &flow::PortNo(self.port).into()).unwrap()
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let packet = self.tags.iter().fold(Packet::new(self.src, self.dst), |packet, tag| {
            packet.tag(tag.tpid, tag.tci)
        });
        packet
            .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into())
            .udp(1, 2, b"")
            .bytes()
    }

    pub(crate) fn hex(&self) -> String {
        to_hex(&self.bytes())
    }
}

impl fmt::Display for Shot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "into {} ({}): {} > {}",
            self.name,
            self.port,
            to_hex(&self.src),
            to_hex(&self.dst)
        )?;
        for tag in &self.tags {
            write!(f, " [{:04x} vid {} pcp {}]", tag.tpid, tag.vid(), tag.pcp())?;
        }
        Ok(())
    }
}
