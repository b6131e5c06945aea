//! Hidden rules of the switch: above every priority that a controller can set, looked up for every
//! packet in table 0, and in no dump, count or timeout.
//!
//! With them the switch reaches its controllers through its own ports, and keeps forwarding when no
//! controller answers.

use super::rule::Rule;
use super::rules::Rules;
use super::words;
use crate::dep::Read;
use crate::switch::Switch;
use classifier::Classifier;
use dp::Change;
use nanos::Nanos;
use openflow::model::{Instructions, Match};

/// A hidden rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenRule {
    /// Above 65535. The matching rule of the highest priority wins.
    pub priority: u32,
    /// The packets. A match that no packet can have is legal and never matches.
    pub matching: Match,
    /// What the rule does with them.
    pub instructions: Instructions,
}

/// A bridge's hidden rules.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    given: Vec<HiddenRule>,
    rules: Option<Box<Rules>>,
    in_band: bool,
}

impl Hidden {
    /// The rules, if there are any.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        self.rules.as_deref()
    }

    /// Whether there are no hidden rules, and in-band control is off.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_none() && !self.in_band
    }

    /// Whether the local port gets every reply of a DHCP server.
    pub(crate) fn is_in_band(&self) -> bool {
        self.in_band
    }

    fn replace(&mut self, given: Vec<HiddenRule>, seed: u64, now: Nanos) {
        let mut rules = Rules::new(Classifier::new(words::layout(), seed), 0, 0);
        for rule in &given {
            debug_assert!(rule.priority > u16::MAX.into());
            if rule.matching.tun_metadata().is_empty() {
                // Two equal rules are one.
                let made = Rule::builtin(rule.instructions.clone(), now);
                let _ = rules.insert(&words::match_words(&rule.matching), rule.priority, made);
            }
        }
        self.rules = (!given.is_empty()).then(|| Box::new(rules));
        self.given = given;
    }
}

impl Switch {
    /// Replaces a bridge's hidden rules.
    pub fn set_hidden_rules(&mut self, bridge: &str, rules: Vec<HiddenRule>, now: Nanos) -> Vec<Change> {
        let seed = self.seed;
        let id = self.bridge_ids.get(bridge);
        let Some(bridge) = id.and_then(|id| self.bridges.get_mut(id)) else {
            return Vec::new();
        };
        if bridge.hidden.given == rules {
            return Vec::new();
        }
        bridge.hidden.replace(rules, flow::mix(seed, bridge.id.into()), now);
        let id = bridge.id;
        self.changes([Read::Bridge(id)])
    }

    /// Sets whether a bridge is controlled in-band. If so, its local port always gets a copy of the
    /// replies of DHCP servers to clients, whatever the tables do with them. Without it the switch
    /// might never get the address from which it reaches its controllers.
    pub fn set_in_band(&mut self, bridge: &str, in_band: bool) -> Vec<Change> {
        let id = self.bridge_ids.get(bridge);
        let Some(bridge) = id.and_then(|id| self.bridges.get_mut(id)) else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut bridge.hidden.in_band, in_band);
        let id = bridge.id;
        self.changes((before != in_band).then_some(Read::Bridge(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attach, BridgeConfig, FailMode, InterfaceConfig, LinkState, PortConfig, Punts, SwitchConfig};
    use dp::{Action as Out, Key, PortNo};
    use flow::Field;
    use openflow::model::{Action, FlowMod, Port};
    use std::collections::BTreeMap;

    fn switch(mode: FailMode) -> Switch {
        let mut ports = BTreeMap::new();
        for (number, ofport) in [(1, 1), (2, 2), (3, 3), (9_u32, 0xfffe)] {
            let interface = InterfaceConfig {
                name: format!("p{number}"),
                ofport,
                attach: Attach::Device(PortNo(number)),
                link: LinkState::UP,
                punts: Punts::default(),
            };
            let config = PortConfig {
                interfaces: vec![interface],
                ..PortConfig::default()
            };
            ports.insert(format!("p{number}"), config);
        }
        let bridge = BridgeConfig {
            fail_mode: mode,
            ports,
            ..BridgeConfig::default()
        };
        let mut config = SwitchConfig::default();
        config.bridges.insert("br0".to_owned(), bridge);
        let mut switch = Switch::new(1);
        switch.configure(config, Nanos::ZERO);
        switch
    }

    fn to(port: Port) -> Instructions {
        Instructions::apply(vec![Action::Output { port, max_len: 0 }])
    }

    fn hidden(priority: u32, fields: &[(flow::MatchField, u128)], port: Port) -> HiddenRule {
        let mut matching = Match::default();
        for (field, value) in fields {
            matching.set(*field, *value, u128::MAX);
        }
        HiddenRule {
            priority,
            matching,
            instructions: to(port),
        }
    }

    fn packet(eth_type: u16) -> Key {
        let mut key = Key::ZERO;
        key.set(Field::InPort, 1);
        key.set(Field::EthSrc, 0x0200_0000_0001);
        key.set(Field::EthDst, 0x0200_0000_0002);
        key.set(Field::EthType, eth_type.into());
        key
    }

    /// The ports through which a packet leaves.
    fn ways(switch: &Switch, key: &Key) -> Vec<u32> {
        let actions = switch.ask(key).translation.actions;
        let port = |action: &Out| match action {
            Out::Output(port) => Some(port.0),
            _ => None,
        };
        actions.iter().filter_map(port).collect()
    }

    const T: Nanos = Nanos::ZERO;

    #[test]
    fn they_go_before_every_rule_and_nobody_sees_them() {
        let mut switch = switch(FailMode::Secure);
        let rule = FlowMod {
            priority: u16::MAX,
            instructions: to(Port(2)),
            ..FlowMod::default()
        };
        switch.flow_mod("br0", &rule, T).unwrap();
        let arp = [(flow::MatchField::EthType, 0x0806)];
        let changes = switch.set_hidden_rules("br0", vec![hidden(180_001, &arp, Port(3))], T);
        assert_ne!(changes, []);
        assert_eq!(ways(&switch, &packet(0x0806)), [3]);
        assert_eq!(ways(&switch, &packet(0x0800)), [2]);
        let there = switch.bridge("br0").unwrap().tables();
        assert_eq!((there.len(), there.rules_in(0)), (1, 1));
        let all = FlowMod {
            command: openflow::model::FlowCommand::Delete,
            ..FlowMod::default()
        };
        switch.flow_mod("br0", &all, T).unwrap();
        assert_eq!(ways(&switch, &packet(0x0806)), [3]);
        assert_eq!(ways(&switch, &packet(0x0800)), []);
        assert_ne!(switch.set_hidden_rules("br0", Vec::new(), T), []);
        assert_eq!(ways(&switch, &packet(0x0806)), []);
    }

    #[test]
    fn the_higher_priority_counts_among_them_and_the_same_again_changes_nothing() {
        let mut switch = switch(FailMode::Secure);
        let arp = [(flow::MatchField::EthType, 0x0806)];
        let rules = vec![hidden(15_790_320, &[], Port::NORMAL), hidden(180_001, &arp, Port(3))];
        switch.set_hidden_rules("br0", rules.clone(), T);
        assert_eq!(ways(&switch, &packet(0x0806)), [2, 3, 9]);
        assert_eq!(switch.set_hidden_rules("br0", rules, T), []);
        assert_eq!(switch.set_hidden_rules("br9", Vec::new(), T), []);
    }

    #[test]
    fn a_bridge_that_nobody_programmed_heeds_them_too() {
        let mut switch = switch(FailMode::Standalone);
        assert_eq!(ways(&switch, &packet(0x0800)), [2, 3, 9]);
        let ip = [(flow::MatchField::EthType, 0x0800)];
        switch.set_hidden_rules("br0", vec![hidden(70_000, &ip, Port(3))], T);
        assert_eq!(ways(&switch, &packet(0x0800)), [3]);
        assert_eq!(ways(&switch, &packet(0x0806)), [2, 3, 9]);
    }

    /// A DHCP server's reply to a client: from port `server` to port `client`.
    fn answer(in_port: u32, server: u16, client: u16) -> Key {
        let mut key = packet(0x0800);
        key.set(Field::InPort, u128::from(in_port));
        key.set(Field::IpProto, 17);
        key.set(Field::TpSrc, server.into());
        key.set(Field::TpDst, client.into());
        key
    }

    #[test]
    fn in_band_the_local_port_gets_what_dhcp_servers_answer_once_and_nothing_else() {
        let mut switch = switch(FailMode::Secure);
        assert_eq!(ways(&switch, &answer(1, 67, 68)), []);
        assert_ne!(switch.set_in_band("br0", true), []);
        assert_eq!(switch.set_in_band("br0", true), []);
        assert_eq!(switch.set_in_band("br9", true), []);
        assert_eq!(ways(&switch, &answer(1, 67, 68)), [9]);
        for other in [answer(1, 68, 67), answer(1, 67, 69), answer(1, 66, 68), packet(0x0800)] {
            assert_eq!(ways(&switch, &other), []);
        }
        let mut tcp = answer(1, 67, 68);
        tcp.set(Field::IpProto, 6);
        assert_eq!(ways(&switch, &tcp), []);
        let mut ipv6 = answer(1, 67, 68);
        ipv6.set(Field::EthType, 0x86dd);
        assert_eq!(ways(&switch, &ipv6), []);
        assert_eq!(ways(&switch, &answer(9, 67, 68)), [], "it is its own");
        let mask = switch.ask(&answer(1, 67, 69)).translation.mask;
        assert_eq!((mask.get(Field::TpSrc), mask.get(Field::TpDst)), (0xffff, 0xffff));

        let mut rule = FlowMod {
            instructions: to(Port(2)),
            ..FlowMod::default()
        };
        switch.flow_mod("br0", &rule, T).unwrap();
        assert_eq!(ways(&switch, &answer(1, 67, 68)), [2, 9]);
        rule.instructions = to(Port::LOCAL);
        switch.flow_mod("br0", &rule, T).unwrap();
        assert_eq!(ways(&switch, &answer(1, 67, 68)), [9]);
        rule.instructions = Instructions::apply(vec![Action::Clone(vec![Action::SetVlanVid(5), Action::Exit])]);
        switch.flow_mod("br0", &rule, T).unwrap();
        let actions = switch.ask(&answer(1, 67, 68)).translation.actions;
        assert_eq!(*actions, [Out::Output(PortNo(9))], "not a changed copy");
        rule.instructions = Instructions::default();
        switch.flow_mod("br0", &rule, T).unwrap();
        assert_eq!(ways(&switch, &answer(1, 67, 68)), [9]);
        assert_ne!(switch.set_in_band("br0", false), []);
        assert_eq!(ways(&switch, &answer(1, 67, 68)), []);
    }

    #[test]
    fn in_band_a_bridge_that_nobody_programmed_sends_answers_to_the_local_port_too() {
        let mut switch = switch(FailMode::Standalone);
        switch.set_in_band("br0", true);
        let mut known = answer(2, 67, 68);
        known.set(Field::EthSrc, 0x0200_0000_0002);
        let learned = switch.ask(&known).translation;
        assert!(learned.actions.contains(&Out::Output(PortNo(9))));
        assert_eq!(ways(&switch, &answer(1, 67, 68)), [2, 3, 9], "flooded, and once");
    }

    #[test]
    fn megaflows_are_no_wider_than_what_hidden_rules_looked_at() {
        let mut switch = switch(FailMode::Secure);
        let arp = [
            (flow::MatchField::EthType, 0x0806),
            (flow::MatchField::EthDst, 0x0200_0000_0002),
        ];
        switch.set_hidden_rules("br0", vec![hidden(180_001, &arp, Port(3))], T);
        let other = switch.ask(&packet(0x0800)).translation;
        assert_eq!(other.mask.get(Field::EthType), 0xffff);
        let whole = switch.ask(&packet(0x0806)).translation;
        assert_eq!(whole.mask.get(Field::EthDst), 0xffff_ffff_ffff);
    }
}
