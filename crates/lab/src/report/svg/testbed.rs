//! A testbed, drawn: bridges in a row, hosts beside and below them, and labels on the cables.

use super::canvas::{Anchor, Canvas, Drawing, width};
use crate::topology::{Address, Attachment, Bridge, Control, Host, Link, Port, QosKind, Stateful, Topology};
use std::collections::BTreeMap;

/// Least width of a box.
const BOX: f64 = 118.0;
/// Distance of two boxes, for a cable's label.
const GAP: f64 = 122.0;
const ROW: f64 = 74.0;
const LINE: f64 = 14.0;

/// Draws testbeds of the same shape, such as the cells of a scenario; where they differ, all values
/// are side by side.
pub(crate) fn testbed(all: &[&Topology]) -> Drawing {
    let Some(topology) = all.first() else {
        return Drawing::default();
    };
    let places = place(all);
    let mut canvas = Canvas::default();
    let mut lowest = 0.0f64;
    for (n, link) in topology.links.iter().enumerate() {
        let same: Vec<&Link> = all.iter().filter_map(|topology| topology.links.get(n)).collect();
        lowest = lowest.max(draw_link(&mut canvas, &places, link, &same));
    }
    for (n, bridge) in topology.bridges.iter().enumerate() {
        let same = all.iter().filter_map(|topology| topology.bridges.get(n));
        let lines = distinct(same.map(bridge_lines));
        draw_box(&mut canvas, "bridge", &places[&bridge.name], &bridge.name, &lines);
    }
    for (n, host) in topology.hosts.iter().enumerate() {
        let same = all.iter().filter_map(|topology| topology.hosts.get(n));
        let lines = distinct(same.map(host_lines));
        draw_box(&mut canvas, "host", &places[&host.name], &host.name, &lines);
    }
    let right = places.values().map(|place| place.x + place.width).fold(0.0, f64::max);
    let bottom = places
        .values()
        .map(|place| place.y + place.height)
        .fold(lowest, f64::max);
    let names: Vec<&str> = topology.hosts.iter().map(|host| host.name.as_str()).collect();
    let label = format!(
        "Testbed with the hosts {} and {} switch(es)",
        names.join(", "),
        topology.bridges.len()
    );
    canvas.done(right + 2.0, bottom + 2.0, label)
}

/// The position of a box.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl Place {
    fn middle(self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }
}

/// Which side of the switches a host stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Left,
    Right,
    Below,
}

fn place(all: &[&Topology]) -> BTreeMap<String, Place> {
    let Some(topology) = all.first() else {
        return BTreeMap::new();
    };
    let bridges = in_a_row(topology);
    let wide = box_width(all);
    // The text of every testbed's box must fit.
    let host_height = |host: &Host| {
        let same = all
            .iter()
            .flat_map(|topology| &topology.hosts)
            .filter(|other| other.name == host.name);
        tall(same.map(|host| host_lines(host).len()).max().unwrap_or(0))
    };
    let bridge_height = |bridge: &Bridge| {
        let same = all
            .iter()
            .flat_map(|topology| &topology.bridges)
            .filter(|other| other.name == bridge.name);
        tall(same.map(|bridge| bridge_lines(bridge).len()).max().unwrap_or(0))
    };
    let sides: Vec<(&Host, Side, usize)> = topology
        .hosts
        .iter()
        .map(|host| side(topology, &bridges, host))
        .collect();
    let on = |side: Side| sides.iter().filter(move |(_, s, _)| *s == side);
    let rows = on(Side::Left).count().max(on(Side::Right).count()).max(1);
    let column = if on(Side::Left).count() > 0 { wide + GAP } else { 0.0 };
    let row = topology
        .hosts
        .iter()
        .map(|host| host_height(host) + 22.0)
        .fold(ROW, f64::max);
    let height = row * rows as f64;
    let mut places = BTreeMap::new();
    for (n, bridge) in bridges.iter().enumerate() {
        // A switch with several hosts beside it is as tall as they are together: their cables run
        // level.
        let own = bridge_height(bridge).max(height - 22.0);
        let place = Place {
            x: column + n as f64 * (wide + GAP),
            y: (height - own) / 2.0,
            width: wide,
            height: own,
        };
        places.insert(bridge.name.clone(), place);
    }
    let far = column + bridges.len().max(1) as f64 * (wide + GAP);
    for (side, x) in [(Side::Left, 0.0), (Side::Right, far)] {
        let count = on(side).count();
        for (n, (host, ..)) in on(side).enumerate() {
            let own = host_height(host);
            let middle = (n as f64 + 0.5) * height / count as f64;
            let place = Place {
                x,
                y: middle - own / 2.0,
                width: wide,
                height: own,
            };
            places.insert(host.name.clone(), place);
        }
    }
    let mut below: BTreeMap<usize, usize> = BTreeMap::new();
    for (host, _, bridge) in on(Side::Below) {
        let nth = below.entry(*bridge).or_default();
        let place = Place {
            x: column + *bridge as f64 * (wide + GAP) + *nth as f64 * (wide + 16.0),
            y: height + 44.0,
            width: wide,
            height: host_height(host),
        };
        *nth += 1;
        places.insert(host.name.clone(), place);
    }
    places
}

/// Wide enough for the text of any box.
fn box_width(all: &[&Topology]) -> f64 {
    let Some(topology) = all.first() else { return BOX };
    let hosts = (0..topology.hosts.len()).map(|n| distinct(all.iter().filter_map(|t| t.hosts.get(n)).map(host_lines)));
    let bridges =
        (0..topology.bridges.len()).map(|n| distinct(all.iter().filter_map(|t| t.bridges.get(n)).map(bridge_lines)));
    hosts
        .chain(bridges)
        .flatten()
        .map(|line| width(&line, 11.0) + 14.0)
        .fold(BOX, f64::max)
}

/// Height of a box with a name and this many lines.
fn tall(lines: usize) -> f64 {
    26.0 + LINE * lines as f64
}

/// The bridges from one end of their chain to the other.
fn in_a_row(topology: &Topology) -> Vec<&Bridge> {
    let is_bridge = |name: &str| topology.bridges.iter().any(|bridge| bridge.name == name);
    let joins: Vec<(&str, &str)> = topology
        .links
        .iter()
        .map(|link| (link.a.at.as_str(), link.b.at.as_str()))
        .filter(|(a, b)| is_bridge(a) && is_bridge(b))
        .collect();
    let degree = |name: &str| joins.iter().filter(|(a, b)| *a == name || *b == name).count();
    let mut left: Vec<&Bridge> = topology.bridges.iter().collect();
    let mut row: Vec<&Bridge> = Vec::new();
    while !left.is_empty() {
        let joined = |bridge: &&Bridge| {
            let last = row.last().map_or("", |last| last.name.as_str());
            joins
                .iter()
                .any(|(a, b)| (*a == last && *b == bridge.name) || (*b == last && *a == bridge.name))
        };
        let next = left.iter().position(joined);
        let next = next
            .or_else(|| left.iter().position(|bridge| degree(&bridge.name) <= 1))
            .unwrap_or(0);
        row.push(left.remove(next));
    }
    row
}

fn side<'a>(topology: &'a Topology, bridges: &[&Bridge], host: &'a Host) -> (&'a Host, Side, usize) {
    let at = |host: &Host| {
        let bridge = topology.links.iter().find_map(|link| other_end(link, &host.name));
        bridge.and_then(|(name, port)| Some((bridges.iter().position(|bridge| bridge.name == name)?, port)))
    };
    let Some((bridge, port)) = at(host) else {
        return (host, Side::Below, 0);
    };
    let last = bridges.len().saturating_sub(1);
    if host.forwards {
        return (host, Side::Below, bridge);
    }
    if last > 0 {
        let side = match bridge {
            0 => Side::Left,
            _ if bridge == last => Side::Right,
            _ => Side::Below,
        };
        return (host, side, bridge);
    }
    // Around one switch: the first VLAN's hosts on the left, the others on the right; without VLANs
    // half and half.
    let others: Vec<&Host> = topology.hosts.iter().filter(|host| !host.forwards).collect();
    let first = others.first().and_then(|host| at(host)).map(|(_, port)| port.access);
    let mixed = others.iter().any(|host| at(host).map(|(_, port)| port.access) != first);
    let nth = others.iter().position(|other| other.name == host.name).unwrap_or(0);
    let is_left = if mixed {
        Some(port.access) == first
    } else {
        nth < others.len().div_ceil(2)
    };
    (host, if is_left { Side::Left } else { Side::Right }, bridge)
}

fn other_end<'a>(link: &'a Link, name: &str) -> Option<(&'a str, &'a Port)> {
    if link.a.at == name {
        Some((&link.b.at, &link.b.port))
    } else if link.b.at == name {
        Some((&link.a.at, &link.a.port))
    } else {
        None
    }
}

fn draw_box(canvas: &mut Canvas, class: &str, place: &Place, name: &str, lines: &[String]) {
    canvas.rect(
        class,
        (place.x + 1.0, place.y + 1.0),
        (place.width - 1.0, place.height - 1.0),
        4.0,
        "",
    );
    let (x, y) = place.middle();
    let top = y - LINE * lines.len() as f64 / 2.0;
    canvas.text("t name", (x, top + 4.0), Anchor::Middle, name);
    for (n, line) in lines.iter().enumerate() {
        canvas.text("t", (x, top + 4.0 + LINE * (n + 1) as f64), Anchor::Middle, line);
    }
}

/// Draws a cable with its label. Returns the label's lowest point.
fn draw_link(canvas: &mut Canvas, places: &BTreeMap<String, Place>, link: &Link, same: &[&Link]) -> f64 {
    let (Some(a), Some(b)) = (places.get(&link.a.at), places.get(&link.b.at)) else {
        return 0.0;
    };
    let (from, to) = ends(*a, *b);
    canvas.line("cable", from, to);
    let cable = distinct(same.iter().map(|link| vec![speed(link)])).concat();
    let at = distinct_ports(same, |link| &link.a.port);
    let bt = distinct_ports(same, |link| &link.b.port);
    if (from.0 - to.0).abs() < 1.0 {
        // Downwards: everything stands beside it.
        let middle = f64::midpoint(from.1, to.1);
        canvas.text("t", (from.0 + 8.0, middle - 3.0), Anchor::Start, &cable);
        let port = [at.as_slice(), bt.as_slice()].concat().join(", ");
        canvas.text("t port", (from.0 + 8.0, middle + 11.0), Anchor::Start, &port);
        return middle + 15.0;
    }
    let level = f64::midpoint(from.1, to.1);
    let middle = f64::midpoint(from.0, to.0);
    canvas.text("t", (middle, level - 5.0), Anchor::Middle, &cable);
    let lines = at.iter().chain(&bt).flat_map(|line| wrapped(line, GAP - 6.0));
    let mut lowest = level;
    for (n, line) in lines.enumerate() {
        lowest = level + 18.0 + n as f64 * 12.0;
        canvas.text(
            "t port",
            (middle, level + 14.0 + n as f64 * 12.0),
            Anchor::Middle,
            &line,
        );
    }
    lowest
}

/// Values side by side, in lines that are no wider.
fn wrapped(text: &str, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for value in text.split(" / ") {
        match lines.last_mut() {
            Some(line) if width(&format!("{line} / {value}"), 11.0) <= most => *line = format!("{line} / {value}"),
            _ => lines.push(value.to_owned()),
        }
    }
    lines
}

/// The ends of a cable: at the sides of neighbouring boxes, horizontal if one box reaches the
/// other's height.
fn ends(a: Place, b: Place) -> ((f64, f64), (f64, f64)) {
    let (am, bm) = (a.middle(), b.middle());
    let beside = a.x + a.width <= b.x || b.x + b.width <= a.x;
    if !beside {
        let x = if a.height < b.height { am.0 } else { bm.0 };
        let (upper, lower) = if am.1 < bm.1 { (a, b) } else { (b, a) };
        let (top, bottom) = ((x, upper.y + upper.height), (x, lower.y));
        return if am.1 < bm.1 { (top, bottom) } else { (bottom, top) };
    }
    let y = if a.height < b.height { am.1 } else { bm.1 };
    let (left, right) = if am.0 < bm.0 { (a, b) } else { (b, a) };
    let (l, r) = ((left.x + left.width, y), (right.x, y));
    if am.0 < bm.0 { (l, r) } else { (r, l) }
}

fn speed(link: &Link) -> String {
    let rate = link.rate.map_or_else(|| "bare cable".into(), bits);
    match link.delay {
        0 => rate,
        delay => format!("{rate}, {} ms", delay as f64 / 1000.0),
    }
}

/// A rate as it is said.
fn bits(rate: u64) -> String {
    match rate {
        r if r >= 1_000_000_000 => format!("{} Gbit/s", r as f64 / 1e9),
        r if r >= 1_000_000 => format!("{} Mbit/s", r as f64 / 1e6),
        r => format!("{} kbit/s", r as f64 / 1e3),
    }
}

fn port_lines(port: &Port) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(vlan) = port.access {
        lines.push(format!("VLAN {vlan}"));
    }
    if !port.trunk.is_empty() {
        let vlans: Vec<String> = port.trunk.iter().map(u16::to_string).collect();
        lines.push(format!("trunk {}", vlans.join(", ")));
    }
    if let Some(qos) = &port.qos {
        let kind = match qos.kind {
            QosKind::Fifo => "FIFO",
            QosKind::Sfq => "SFQ",
            QosKind::Codel => "CoDel",
            QosKind::FqCodel => "FQ-CoDel",
            QosKind::Htb => "HTB",
            QosKind::Hfsc => "HFSC",
        };
        lines.push(kind.to_owned());
        lines.extend(qos.rate.map(|rate| format!("at {}", bits(rate))));
    }
    if let Some(policing) = port.policing {
        lines.push(format!("policed at {}", bits(policing.rate * 1000)));
    }
    lines
}

fn distinct_ports(links: &[&Link], port: impl Fn(&Link) -> &Port) -> Vec<String> {
    distinct(links.iter().map(|link| port_lines(port(link))))
}

fn host_lines(host: &Host) -> Vec<String> {
    let address = |address: &Address| match address.vlan {
        Some(vlan) => format!("{} in VLAN {vlan}", address.ip),
        None => format!("{}/{}", address.ip, address.prefix),
    };
    let mut lines: Vec<String> = host.addresses.iter().map(address).collect();
    let kind = match host.attachment {
        Attachment::Guest { memory } => format!("guest of {memory} MiB"),
        Attachment::Libvirt { memory } => format!("libvirt guest, {memory} MiB"),
        Attachment::Container => "container".into(),
        Attachment::Podman => "Podman container".into(),
    };
    lines.push(if host.forwards { format!("router, {kind}") } else { kind });
    lines
}

fn bridge_lines(bridge: &Bridge) -> Vec<String> {
    let mut lines = vec!["switch under test".to_owned()];
    match bridge.control {
        Control::Learning => {}
        Control::Rules => lines.push("by rules".into()),
        Control::Reactive => lines.push("controller decides".into()),
        Control::Ovn => lines.push("chassis of OVN".into()),
    }
    lines.extend(bridge.stateful.as_ref().map(|stateful| match stateful {
        Stateful::Firewall { .. } => "stateful firewall".to_owned(),
        Stateful::Snat { address, .. } => format!("SNAT to {address}"),
        Stateful::Balance { servers, .. } => format!("balances over {} addresses", servers.len()),
    }));
    for svi in &bridge.svis {
        lines.push(match svi.vlan {
            Some(vlan) => format!("vlan{vlan} {}", svi.ip),
            None => svi.ip.to_string(),
        });
    }
    lines
}

/// Lines of all, those that differ side by side: at most four values.
fn distinct(all: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let all: Vec<Vec<String>> = all.collect();
    let longest = all.iter().map(Vec::len).max().unwrap_or(0);
    let line = |n: usize| {
        let mut values: Vec<&str> = Vec::new();
        for value in all.iter().filter_map(|lines| lines.get(n)) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        let more = values.len() > 4;
        values.truncate(4);
        joined(&values) + if more { " …" } else { "" }
    };
    (0..longest).map(line).collect()
}

/// Values with one unit share it: `10 / 100 Mbit/s`.
fn joined(values: &[&str]) -> String {
    let unit = values
        .first()
        .and_then(|value| value.split_once(' '))
        .map_or("", |(_, unit)| unit);
    let ending = format!(" {unit}");
    if !unit.is_empty() && values.iter().all(|value| value.ends_with(&ending)) {
        let numbers: Vec<&str> = values.iter().filter_map(|value| value.strip_suffix(&ending)).collect();
        return numbers.join(" / ") + &ending;
    }
    values.join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTED: &str = r#"
        host = [
            { name = "pc1", address = [{ ip = "10.0.0.1", prefix = 24 }], gateway = "10.0.0.254" },
            { name = "pc3", address = [{ ip = "20.0.0.3", prefix = 24 }], gateway = "20.0.0.254" },
            { name = "router", forwards = true, address = [{ ip = "10.0.0.254", prefix = 24, vlan = 10 }, { ip = "20.0.0.254", prefix = 24, vlan = 20 }] },
        ]
        bridge = [{ name = "sw" }]
        link = [
            { a = { at = "pc1" }, b = { at = "sw", port = { access = 10 } }, rate = 10_000_000 },
            { a = { at = "pc3" }, b = { at = "sw", port = { access = 20, policing = { rate = 10240, burst = 1024 } } }, rate = 10_000_000, delay = 1500 },
            { a = { at = "router" }, b = { at = "sw", port = { trunk = [10, 20] } } },
        ]
    "#;

    #[test]
    fn a_testbed_shows_every_host_cable_vlan_and_what_differs_between_cells() {
        let slow: Topology = toml::from_str(ROUTED).unwrap();
        let mut fast = slow.clone();
        fast.links[0].rate = Some(100_000_000);
        let drawing = testbed(&[&slow, &fast]);
        for text in [
            ">pc1<",
            ">sw<",
            ">router<",
            ">VLAN 10<",
            ">trunk 10, 20<",
            ">10 / 100 Mbit/s<",
            ">10 Mbit/s, 1.5 ms<",
            ">bare cable<",
            ">policed at 10.24 Mbit/s<",
            ">10.0.0.254 in VLAN 10<",
        ] {
            assert!(drawing.body().contains(text), "{text}: {}", drawing.body());
        }
    }

    #[test]
    fn boxes_do_not_cover_each_other() {
        let chain = |n: usize| {
            let mut text = String::from(
                "host=[{name='h1',address=[]},{name='h2',address=[]},{name='h3',address=[]},{name='h4',address=[]}]\nbridge=[",
            );
            text += &(0..n).map(|n| format!("{{name='s{n}'}},")).collect::<String>();
            text += "]\nlink=[{a={at='h1'},b={at='s0'}},{a={at='h3'},b={at='s0'}},";
            text += &(1..n)
                .map(|n| format!("{{a={{at='s{}'}},b={{at='s{n}'}}}},", n - 1))
                .collect::<String>();
            text + &format!("{{a={{at='h2'}},b={{at='s{}'}}}}]", n - 1)
        };
        for text in [ROUTED.to_owned(), chain(1), chain(2), chain(3)] {
            let topology: Topology = toml::from_str(&text).unwrap();
            let places: Vec<Place> = place(&[&topology]).into_values().collect();
            assert_eq!(places.len(), topology.hosts.len() + topology.bridges.len());
            for (n, a) in places.iter().enumerate() {
                for b in &places[n + 1..] {
                    let apart =
                        a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
                    assert!(apart, "{a:?} {b:?} in {text}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_drawn_as_nothing() {
        assert_eq!(testbed(&[]).width, 0.0);
        assert!(testbed(&[&Topology::default()]).shapes.is_empty());
    }
}
