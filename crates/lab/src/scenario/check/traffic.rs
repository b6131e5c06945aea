//! Checks of a cell's testbed and traffic.

use super::{Faults, Filled};
use crate::controller::MASKS;
use crate::scenario::node::Fault;
use crate::scenario::openflow::Mode;
use crate::scenario::setup::{Cause, Observe, Setup};
use crate::topology::{Attachment, Bridge, Control, End, Link, Topology};
use crate::traffic::observe::witnessed;
use crate::traffic::udp::MOST_FLOOD;
use crate::traffic::{Flow, Streams, Test};
use std::collections::BTreeSet;

pub(super) fn flows(setup: &Setup, filled: &Filled, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    let background = setup
        .background
        .iter()
        .enumerate()
        .map(|flow| (&filled.background, flow));
    let measured = setup.measured.iter().enumerate().map(|flow| (&filled.measure, flow));
    for (list, (n, flow)) in background.chain(measured) {
        let Flow { name, from, to, test } = flow;
        if name.is_empty() || name.contains('.') || name.len() > 40 {
            faults.say(
                list,
                n,
                &["name"],
                format!("'{name}' is no name of a flow: 1 to 40 characters without '.'"),
            );
        }
        if !seen.insert(name) {
            faults.say(list, n, &["name"], format!("there are two flows '{name}'"));
        }
        for (key, host) in [("from", from), ("to", to)] {
            if setup.topology.host(host).is_none() {
                faults.say(list, n, &[key], format!("there is no host '{host}'"));
            }
        }
        if from == to {
            faults.say(list, n, &["to"], format!("'{from}' sends to itself"));
        } else if setup.topology.host(from).is_some()
            && setup.topology.host(to).is_some()
            && !reaches(&setup.topology, from, to)
        {
            faults.say(list, n, &["to"], format!("no path leads from '{from}' to '{to}'"));
        }
        let has_ip6 = |name: &String| {
            let host = setup.topology.host(name);
            host.is_none_or(|host| host.addresses.iter().any(|address| address.ip6.is_some()))
        };
        if let Test::Rtt { ip6: true, .. } = test {
            if !has_ip6(from) || !has_ip6(to) {
                faults.say(list, n, &["ip6"], "both hosts need an 'ip6' address".to_owned());
            }
            if setup
                .openflow
                .as_ref()
                .is_some_and(|openflow| openflow.mode == Mode::Openflow)
            {
                faults.say(list, n, &["ip6"], "the rules of [openflow] are for IPv4".to_owned());
            }
        }
        if let Test::Flood { .. } = test {
            for (key, name) in [("from", from), ("to", to)] {
                let host = setup.topology.host(name);
                if host.is_some_and(|host| host.attachment != Attachment::Container) {
                    let message = format!("'{name}' must be a network namespace: attachment = \"container\"");
                    faults.say(list, n, &[key], message);
                }
            }
        }
        if let Some((key, message)) = test_fault(test) {
            faults.say(list, n, &[key], message);
        }
    }
    for (n, observation) in setup.observed.iter().enumerate() {
        if !seen.insert(&observation.name) {
            faults.say(
                &filled.observe,
                n,
                &["name"],
                format!("the name '{}' is taken", observation.name),
            );
        }
        if observation.name.is_empty() || observation.name.contains('.') {
            faults.say(
                &filled.observe,
                n,
                &["name"],
                "a name has at least one character and no '.'",
            );
        }
    }
    if setup.measured.is_empty() && setup.observed.is_empty() {
        let span = filled.measure.as_ref().map_or(0..0, |node| node.span.clone());
        faults
            .0
            .push(Fault::new(&span, "a cell has neither a [[measure]] nor an [[observe]]"));
    }
}

/// Through bridges, and hosts that route.
fn reaches(topology: &Topology, from: &str, to: &str) -> bool {
    let passes = |name: &str| name == from || topology.host(name).is_none_or(|host| host.forwards);
    let mut reached = BTreeSet::from([from]);
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        if !passes(at) {
            continue;
        }
        for link in &topology.links {
            for (near, far) in [(&link.a.at, &link.b.at), (&link.b.at, &link.a.at)] {
                if near == at && reached.insert(far) {
                    next.push(far);
                }
            }
        }
    }
    reached.contains(to)
}

fn test_fault(test: &Test) -> Option<(&'static str, String)> {
    let payload = |payload: u32| {
        let legal = (20..=65_507).contains(&payload);
        (!legal).then(|| {
            (
                "payload",
                format!("a datagram's payload is 20 to 65 507 bytes, not {payload}"),
            )
        })
    };
    match test {
        Test::Rtt { payload: bytes, .. } | Test::NewFlows { payload: bytes, .. } => payload(*bytes),
        Test::Flood { payload, rate, of_most } => {
            if !(1..=MOST_FLOOD).contains(payload) {
                let message = format!("a datagram of a flood has 1 to {MOST_FLOOD} bytes of payload, not {payload}");
                return Some(("payload", message));
            }
            match (rate, of_most) {
                (Some(0), _) => Some(("rate", "a rate is more than 0 datagrams a second".to_owned())),
                (Some(_), Some(_)) => Some((
                    "of_most",
                    "a flood has a 'rate', or a share of the highest one, not both".to_owned(),
                )),
                (_, Some(share)) if !(*share > 0.0 && *share <= 1.0) => Some((
                    "of_most",
                    format!("'of_most' is a share of the highest rate, above 0 and at most 1, not {share}"),
                )),
                _ => None,
            }
        }
        Test::Cbr {
            payload: bytes, rate, ..
        } => payload(*bytes).or_else(|| (*rate == 0).then(|| ("rate", "a rate is more than 0 bit/s".to_owned()))),
        Test::TcpStream(streams)
        | Test::UdpStream(streams)
        | Test::TcpRr(streams)
        | Test::TcpCrr(streams)
        | Test::UdpRr(streams) => {
            let Streams {
                streams,
                message,
                buffer,
                ..
            } = streams;
            if !(1..=1000).contains(streams) {
                return Some(("streams", format!("streams are 1 to 1000, not {streams}")));
            }
            if *message == Some(0) {
                return Some(("message", "a message has at least 1 byte".to_owned()));
            }
            (*buffer == Some(0)).then(|| ("buffer", "a buffer has at least 1 byte".to_owned()))
        }
    }
}

pub(super) fn observations(setup: &Setup, filled: &Filled, faults: &mut Faults) {
    for (n, observation) in setup.observed.iter().enumerate() {
        let mut say = |path: &[&str], message: String| faults.say(&filled.observe, n, path, message);
        let host = |name: &String, say: &mut dyn FnMut(&[&str], String), key: &str| {
            if setup.topology.host(name).is_none() {
                say(&[key], format!("there is no host '{name}'"));
            }
        };
        let two_hosts = |from: &String, to: &String, say: &mut dyn FnMut(&[&str], String)| {
            host(from, say, "from");
            host(to, say, "to");
            if from == to {
                say(&["to"], format!("'{from}' sends to itself"));
            }
        };
        match &observation.what {
            Observe::Reachability { groups } => {
                groups.iter().flatten().for_each(|name| host(name, &mut say, "groups"));
                for member in &setup.topology.hosts {
                    let of = groups.iter().filter(|group| group.contains(&member.name)).count();
                    if of != 1 {
                        say(
                            &["groups"],
                            format!("'{}' must be in one group, not in {of}", member.name),
                        );
                    }
                }
            }
            Observe::Broadcast { from, rate, payload } => {
                host(from, &mut say, "from");
                if *rate == 0 || !(20..=1472).contains(payload) {
                    say(
                        &["rate"],
                        "broadcasts have a rate above 0 a second and 20 to 1472 bytes".to_owned(),
                    );
                }
            }
            Observe::Capture { flow } => {
                if setup.measured.iter().all(|measured| measured.name != *flow) {
                    say(&["flow"], format!("no measured flow is '{flow}'"));
                }
            }
            Observe::Witness { flow } => {
                let known = setup.measured.iter().find(|measured| measured.name == *flow);
                match known.map(|measured| witnessed(&measured.test)) {
                    None => say(&["flow"], format!("no measured flow is '{flow}'")),
                    Some(None) => say(&["flow"], "iperf3 witnesses cbr and tcp_stream only".to_owned()),
                    Some(Some(_)) => {}
                }
                if setup.measured.len() > 1 || !setup.background.is_empty() {
                    say(
                        &["flow"],
                        "iperf3 sends alone: what it says can be compared with a flow that was alone only".to_owned(),
                    );
                }
            }
            Observe::Usage { flow: Some(flow) } => {
                match setup.measured.iter().find(|measured| measured.name == *flow) {
                    None => say(&["flow"], format!("no measured flow is '{flow}'")),
                    Some(known) if known.test.arrives().is_none() => {
                        let message = "processor time is divided by bytes or datagrams that arrive: \
                                       of tcp_stream, udp_stream, cbr, flood and new_flows";
                        say(&["flow"], message.to_owned());
                    }
                    Some(_) => {}
                }
            }
            Observe::Fairness { flows } => {
                for name in flows
                    .iter()
                    .filter(|name| setup.measured.iter().all(|flow| flow.name != **name))
                {
                    say(&["flows"], format!("no measured flow is '{name}'"));
                }
            }
            Observe::Cut {
                between,
                which,
                by,
                after,
            } => {
                let (a, b) = between;
                let joins = |link: &&Link| (&link.a.at, &link.b.at) == (a, b) || (&link.a.at, &link.b.at) == (b, a);
                match (setup.topology.links.iter().filter(joins).nth(*which), by) {
                    (None, _) => say(&["between"], format!("there is no such link between '{a}' and '{b}'")),
                    (Some(link), Cause::Silence) if link.rate.is_none() || link.serial || link.delay > 0 => {
                        let message = "only a link with a rate and without a delay can lose frames in silence";
                        say(&["by"], message.to_owned());
                    }
                    (Some(link), Cause::Removal) if link.a.port.bond.is_none() || link.b.port.bond.is_none() => {
                        say(&["by"], "only a link between two bonds can be taken out".to_owned());
                    }
                    _ => {}
                }
                if !(0.0..=1.0).contains(after) {
                    say(&["after"], "'after' is a share of the measured time, 0 to 1".to_owned());
                }
            }
            Observe::Liveness { between: (a, b) } => {
                let end = |name: &str, end: &End| {
                    let lacp = end.port.bond.as_ref().is_some_and(|bond| bond.lacp);
                    end.at == name && (end.port.bfd.is_some() || lacp)
                };
                let watched = |link: &Link| end(a, &link.a) && end(b, &link.b) || end(b, &link.a) && end(a, &link.b);
                if !setup.topology.links.iter().any(watched) {
                    let message = format!("no link between '{a}' and '{b}' has BFD or LACP at both ends");
                    say(&["between"], message);
                }
            }
            Observe::Watch {
                one_in,
                bridge,
                from,
                to,
                ..
            } => {
                host(from, &mut say, "from");
                host(to, &mut say, "to");
                let at = |end: &str| {
                    setup.topology.links.iter().any(|link| {
                        (link.a.at == end && link.b.at == *bridge) || (link.b.at == end && link.a.at == *bridge)
                    })
                };
                if !at(from) || !at(to) || from == to {
                    say(
                        &["bridge"],
                        format!("'{from}' and '{to}' must be two hosts at the bridge '{bridge}'"),
                    );
                }
                if *one_in == 0 {
                    say(&["one_in"], "one sample in at least 1 packet".to_owned());
                }
            }
            Observe::FlowStatistics { every } | Observe::PortStatistics { every } => {
                if !(*every >= 0.001 && *every <= 3600.0) {
                    say(&["every"], "requests are 0.001 to 3600 seconds apart".to_owned());
                }
            }
            Observe::Capacity { masks, .. } if !(1..=MASKS).contains(masks) => {
                say(&["masks"], format!("masks are 1 to {MASKS}, not {masks}"));
            }
            Observe::Replay { from, to, speed, .. } => {
                two_hosts(from, to, &mut say);
                if !(*speed > 0.0 && speed.is_finite()) {
                    say(&["speed"], "a speed is a number above 0".to_owned());
                }
            }
            Observe::Application {
                from,
                to,
                connections,
                size,
                ..
            } => {
                two_hosts(from, to, &mut say);
                for name in [from, to] {
                    let what = match setup.topology.host(name).map(|host| host.attachment) {
                        Some(Attachment::Guest { .. } | Attachment::Libvirt { .. }) => {
                            "is a guest, which has no programs"
                        }
                        Some(Attachment::Podman) => "is a container of Podman, which has no files of the application",
                        Some(Attachment::Container) | None => continue,
                    };
                    say(
                        &["from"],
                        format!("'{name}' {what}: applications run on hosts with attachment = \"container\""),
                    );
                }
                if !(1..=1000).contains(connections) {
                    say(
                        &["connections"],
                        format!("connections are 1 to 1000, not {connections}"),
                    );
                }
                if !(1..=100_000_000).contains(size) {
                    say(&["size"], format!("a page has 1 to 100 000 000 bytes, not {size}"));
                }
            }
            Observe::Rfc2544 {
                from,
                beside,
                to,
                payload,
                most,
                resolution,
                ..
            } => {
                two_hosts(from, to, &mut say);
                beside.iter().for_each(|name| two_hosts(name, to, &mut say));
                if !(20..=65_507).contains(payload) {
                    say(
                        &["payload"],
                        format!("a datagram's payload is 20 to 65 507 bytes, not {payload}"),
                    );
                }
                if *most == 0 {
                    say(&["most"], "a rate is more than 0 bit/s".to_owned());
                }
                if !(0.001..=0.5).contains(resolution) {
                    say(
                        &["resolution"],
                        "a resolution is a share of the highest rate, 0.001 to 0.5".to_owned(),
                    );
                }
            }
            Observe::Gaps { during, number, .. } => {
                if !(1..=during.most()).contains(number) {
                    say(&["number"], format!("a number is 1 to {}, not {number}", during.most()));
                }
                let rules = |bridge: &Bridge| bridge.control == Control::Rules;
                if setup.topology.hosts.len() < 2 || !setup.topology.bridges.first().is_some_and(rules) {
                    let message = "gaps need two hosts and a bridge with control = \"rules\"";
                    say(&["observe"], message.to_owned());
                }
            }
            Observe::Capacity { at_most: rules, .. }
            | Observe::Addresses { at_most: rules }
            | Observe::Rules { rules } => {
                if *rules == 0 {
                    say(&[], "there is at least one rule".to_owned());
                }
            }
            Observe::PacketOut { payload } if !(20..=1472).contains(payload) => {
                say(&["payload"], "a packet-out has 20 to 1472 bytes of payload".to_owned());
            }
            Observe::Mininet { topology, rate } => {
                let known = ["minimal", "linear", "reversed", "single", "tree", "torus"];
                let kind = topology.split(',').next().unwrap_or_default();
                let sizes = topology.split(',').skip(1);
                if !known.contains(&kind) || !sizes.clone().all(|size| size.parse::<u8>().is_ok_and(|size| size > 0)) {
                    say(
                        &["topology"],
                        format!(
                            "'{topology}' is no topology of Mininet: one of {} with sizes, as in single,3",
                            known.join(", ")
                        ),
                    );
                }
                if *rate == Some(0) {
                    say(&["rate"], "a rate is more than 0 bit/s".to_owned());
                }
                if !setup.topology.bridges.is_empty() || !setup.topology.hosts.is_empty() {
                    say(
                        &["topology"],
                        "Mininet makes all hosts and bridges of its network: others are not allowed".to_owned(),
                    );
                }
                if setup.systems != ["mininet"] {
                    say(
                        &["observe"],
                        "only systems = [\"mininet\"] makes such a network".to_owned(),
                    );
                }
            }
            Observe::Idle {}
            | Observe::Usage { flow: None }
            | Observe::Barrier {}
            | Observe::Supported {}
            | Observe::Effect {}
            | Observe::PacketIn {}
            | Observe::PacketOut { .. } => {}
        }
    }
}
