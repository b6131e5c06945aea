//! Bridges, ports and interfaces as users see them: VLANs of a bridge may appear as fake bridges,
//! and the port and interface of a bridge's own name are hidden.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::rows::{bridge, interface, open_vswitch, port};
use ovsdb::{Atom, Datum, Uuid};

use super::Stop;
use super::context::Context;

/// A bridge, real or fake.
pub(super) struct Bridge {
    pub(super) name: String,
    /// The row of the bridge, or of the one that a fake bridge is part of.
    pub(super) row: Uuid,
    /// For a fake bridge the port that stands for it, its bridge and its VLAN.
    pub(super) fake: Option<Fake>,
}

/// What a fake bridge is.
pub(super) struct Fake {
    pub(super) port: Uuid,
    pub(super) parent: String,
    pub(super) vlan: i64,
}

/// A port.
pub(super) struct Port {
    pub(super) name: String,
    pub(super) row: Uuid,
    /// The name of the bridge, real or fake, that it belongs to.
    pub(super) bridge: String,
    /// Names.
    pub(super) interfaces: Vec<String>,
}

/// An interface.
pub(super) struct Interface {
    pub(super) row: Uuid,
    /// The name of its port.
    pub(super) port: String,
    /// The name of its port's bridge.
    pub(super) bridge: String,
}

/// All of them, by name.
#[derive(Default)]
pub(super) struct Model {
    pub(super) bridges: BTreeMap<String, Bridge>,
    ports: BTreeMap<String, Port>,
    interfaces: BTreeMap<String, Interface>,
}

/// A VLAN number from a column, if there is a legal one.
fn vlan(tag: &Datum) -> Option<i64> {
    tag.as_one()
        .and_then(Atom::as_integer)
        .filter(|tag| (0..=4095).contains(tag))
}

impl Model {
    pub(super) fn build(context: &Context<'_>) -> Model {
        let mut model = Model::default();
        let real = context.references(open_vswitch::TABLE, context.root, open_vswitch::columns::BRIDGES);
        for &row in &real {
            let name = context.text(bridge::TABLE, row, bridge::columns::NAME);
            if model.bridges.contains_key(&name) {
                tracing::warn!(target: "vsctl", "{name}: database contains duplicate bridge name");
                continue;
            }
            model.bridges.insert(name.clone(), Bridge { name, row, fake: None });
        }
        let mut of_vlan = BTreeMap::new();
        for &row in &real {
            let parent = context.text(bridge::TABLE, row, bridge::columns::NAME);
            for port in context.references(bridge::TABLE, row, bridge::columns::PORTS) {
                if let Some(fake) = fake_bridge(context, port, &parent) {
                    let name = context.text(port::TABLE, port, port::columns::NAME);
                    if !model.bridges.contains_key(&name) {
                        of_vlan.entry((row, fake.vlan)).or_insert_with(|| name.clone());
                        model.bridges.insert(
                            name.clone(),
                            Bridge {
                                name,
                                row,
                                fake: Some(fake),
                            },
                        );
                    }
                }
            }
        }
        for &row in &real {
            let parent = context.text(bridge::TABLE, row, bridge::columns::NAME);
            for port in context.references(bridge::TABLE, row, bridge::columns::PORTS) {
                model.add_port(context, row, &parent, port, &of_vlan);
            }
        }
        model
    }

    fn add_port(
        &mut self,
        context: &Context<'_>,
        bridge: Uuid,
        parent: &str,
        row: Uuid,
        of_vlan: &BTreeMap<(Uuid, i64), String>,
    ) {
        let name = context.text(port::TABLE, row, port::columns::NAME);
        if self.bridges.contains_key(&name) || self.ports.contains_key(&name) {
            return;
        }
        let tag = vlan(&context.get(port::TABLE, row, port::columns::TAG));
        let owner = tag.and_then(|tag| of_vlan.get(&(bridge, tag)));
        let owner = owner.map_or_else(|| parent.to_owned(), String::clone);
        let mut names = Vec::new();
        for row in context.references(port::TABLE, row, port::columns::INTERFACES) {
            let interface = context.text(interface::TABLE, row, interface::columns::NAME);
            names.push(interface.clone());
            let entry = Interface {
                row,
                port: name.clone(),
                bridge: owner.clone(),
            };
            self.interfaces.entry(interface).or_insert(entry);
        }
        names.sort_unstable();
        self.ports.insert(
            name.clone(),
            Port {
                name,
                row,
                bridge: owner,
                interfaces: names,
            },
        );
    }

    /// The bridge of that name.
    pub(super) fn bridge(&self, name: &str) -> Result<&Bridge, Stop> {
        self.bridges
            .get(name)
            .ok_or_else(|| Stop::Fatal(format!("no bridge named {name}")))
    }

    /// The bridge of that name, which must not be a fake one.
    pub(super) fn real_bridge(&self, name: &str) -> Result<&Bridge, Stop> {
        let bridge = self.bridge(name)?;
        match bridge.fake {
            None => Ok(bridge),
            Some(_) => Stop::fatal(format!("{name} is a fake bridge")),
        }
    }

    /// The fake bridge of a VLAN of the bridge `parent`.
    pub(super) fn fake_of_vlan(&self, parent: &str, vlan: i64) -> Option<&Bridge> {
        let is = |fake: &Fake| fake.parent == parent && fake.vlan == vlan;
        self.bridges
            .values()
            .find(|bridge| bridge.fake.as_ref().is_some_and(is))
    }

    /// The port of that name, if there is one.
    pub(super) fn find_port(&self, name: &str) -> Option<&Port> {
        self.ports.get(name)
    }

    /// The port of that name.
    pub(super) fn port(&self, name: &str) -> Result<&Port, Stop> {
        self.find_port(name)
            .ok_or_else(|| Stop::Fatal(format!("no port named {name}")))
    }

    /// The ports of a bridge, by name.
    pub(super) fn ports_of(&self, bridge: &str) -> impl Iterator<Item = &Port> {
        self.ports.values().filter(move |port| port.bridge == bridge)
    }

    /// The interface of that name, if there is one.
    pub(super) fn find_interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.get(name)
    }

    /// The interface of that name.
    pub(super) fn interface(&self, name: &str) -> Result<&Interface, Stop> {
        self.find_interface(name)
            .ok_or_else(|| Stop::Fatal(format!("no interface named {name}")))
    }

    /// The names of a bridge's interfaces.
    pub(super) fn interfaces_of<'a>(&'a self, bridge: &'a str) -> BTreeSet<&'a str> {
        self.ports_of(bridge)
            .flat_map(|port| &port.interfaces)
            .map(String::as_str)
            .collect()
    }

    /// Refuses a new `what` (`a port named x`) because its name is taken.
    pub(super) fn check_name_is_free(&self, name: &str, what: &str) -> Result<(), Stop> {
        let refuse = |because: String| Stop::fatal(format!("cannot create {what} because {because}"));
        if self.bridges.contains_key(name) {
            return refuse(format!("a bridge named {name} already exists"));
        }
        if let Some(port) = self.ports.get(name) {
            return refuse(format!("a port named {name} already exists on bridge {}", port.bridge));
        }
        if let Some(interface) = self.interfaces.get(name) {
            return refuse(format!(
                "an interface named {name} already exists on bridge {}",
                interface.bridge
            ));
        }
        Ok(())
    }
}

fn fake_bridge(context: &Context<'_>, port: Uuid, parent: &str) -> Option<Fake> {
    let marked = context.get(port::TABLE, port, port::columns::FAKE_BRIDGE);
    if marked.as_one().and_then(Atom::as_bool) != Some(true) {
        return None;
    }
    let vlan = vlan(&context.get(port::TABLE, port, port::columns::TAG))?;
    Some(Fake {
        port,
        parent: parent.to_owned(),
        vlan,
    })
}
