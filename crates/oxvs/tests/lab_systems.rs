//! The laboratory's switches forward as their topology says, report their losses, and leave nothing
//! behind.
//!
//! Systems that a machine cannot run are skipped with the laboratory's own reason.

use lab::bed::{self, Bed};
use lab::results::Loss;
use lab::systems::{Running, System, named};
use lab::topology::Topology;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;
use testkit::skip;

/// Longer than any step here.
const LONG: Duration = Duration::from_secs(20);

/// Two hosts in two VLANs, and the switch as the router between them.
const ROUTED: &str = "
host = [
    { name = 'PC1', address = [{ ip = '10.0.0.1', prefix = 24 }], gateway = '10.0.0.254' },
    { name = 'PC3', address = [{ ip = '20.0.0.3', prefix = 24 }], gateway = '20.0.0.254' },
]
bridge = [{ name = 's1', svi = [{ ip = '10.0.0.254', prefix = 24, vlan = 10 }, { ip = '20.0.0.254', prefix = 24, vlan = 20 }] }]
link = [
    { a = { at = 'PC1' }, b = { at = 's1', port = { access = 10 } } },
    { a = { at = 'PC3' }, b = { at = 's1', port = { access = 20 } } },
]";

/// Two hosts in one VLAN at two switches, which a trunk joins.
const TRUNKED: &str = "
host = [
    { name = 'PC1', address = [{ ip = '10.0.0.1', prefix = 24 }] },
    { name = 'PC2', address = [{ ip = '10.0.0.2', prefix = 24 }] },
]
bridge = [{ name = 's1' }, { name = 's2' }]
link = [
    { a = { at = 'PC1' }, b = { at = 's1', port = { access = 10 } } },
    { a = { at = 's1', port = { trunk = [10, 20] } }, b = { at = 's2', port = { trunk = [10, 20] } } },
    { a = { at = 'PC2' }, b = { at = 's2', port = { access = 10 } } },
]";

fn topology(text: &str) -> Topology {
    bed::use_program(Path::new(env!("CARGO_BIN_EXE_oxvs-lab")));
    toml::from_str(text).unwrap()
}

/// Two hosts at one switch without VLANs; `port` is the set-up of the second one's port.
fn pair(port: &str, bridge: &str) -> Topology {
    topology(&format!(
        "host = [{{ name = 'PC1', address = [{{ ip = '10.0.0.1', prefix = 24 }}] }}, {{ name = 'PC2', address = [{{ ip = '10.0.0.2', prefix = 24 }}] }}]
         bridge = [{{ name = 's1'{bridge} }}]
         link = [{{ a = {{ at = 'PC1' }}, b = {{ at = 's1' }} }}, {{ a = {{ at = 'PC2' }}, b = {{ at = 's1', port = {{ {port} }} }} }}]"
    ))
}

fn ping(bed: &Bed, from: &str, to: &str) {
    let mut command = bed
        .host(from)
        .unwrap()
        .command(&["ping", "-c", "2", "-i", "0.05", "-W", "10", to]);
    bed::command::run(&mut command).unwrap();
}

/// A megabyte over TCP.
fn transfer(bed: &Bed, from: &str, to: &str, address: &str) {
    const BYTES: usize = 1 << 20;
    let address: SocketAddr = format!("{address}:7777").parse().unwrap();
    // The switch may translate the address.
    let any = SocketAddr::from(([0; 4], address.port()));
    let listener = bed.host(to).unwrap().enter(|| Ok(TcpListener::bind(any)?)).unwrap();
    let receiver = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received.len()
    });
    let mut stream = bed
        .host(from)
        .unwrap()
        .enter(|| Ok(TcpStream::connect_timeout(&address, LONG)?))
        .unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream.write_all(&vec![7; BYTES]).unwrap();
    drop(stream);
    assert_eq!(receiver.join().unwrap(), BYTES);
}

/// Devices of the switch's namespace, the processes in it, and the kernel's encryption.
fn contents(bed: &Bed) -> (Vec<String>, [String; 2]) {
    let devices = bed.counters().unwrap().into_keys().collect();
    let say = |words: &[&str]| bed::command::run_words(words).unwrap();
    let pids = say(&["ip", "netns", "pids", bed.namespace()]);
    let script = "ip xfrm state list; ip xfrm policy list; nft list tables; true";
    let encryption = say(&["ip", "netns", "exec", bed.namespace(), "sh", "-c", script]);
    (devices, [pids, encryption])
}

fn packets(losses: &[Loss], cause: &str, place: &str) -> u64 {
    losses
        .iter()
        .filter(|loss| loss.cause == cause && loss.place == place)
        .map(|loss| loss.packets)
        .sum()
}

/// Greets a bridge, which greets back.
fn hello(running: &dyn Running) {
    let mut stream = running.openflow("s1").unwrap().unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[1], 0, "its first message is a HELLO");
    assert!(running.openflow("s9").is_err());
}

/// Checks of every switch on the routed testbed.
fn routes(name: &str) {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let system: Box<dyn System> = named(name).unwrap();
    let topology = topology(ROUTED);
    if let Some(reason) = system.missing(&topology) {
        assert!(reason.len() > 10, "{reason:?}");
        skip!("{name}: {reason}");
    }
    let bed = Bed::build(&topology).unwrap();
    let before = contents(&bed);
    let mut running = system.start(&topology, &bed).unwrap();
    ping(&bed, "PC1", "20.0.0.3");
    ping(&bed, "PC3", "10.0.0.254");
    transfer(&bed, "PC1", "PC3", "20.0.0.3");
    running.check().unwrap();
    let said = running.configuration().join("\n");
    assert!(
        said.contains("10.0.0.254/24") && said.contains("s1-PC1") && said.contains("net.ipv4.ip_forward=1"),
        "{said}"
    );
    assert!(!said.contains("/run/oxvs-lab"), "{said}");
    running.drops().unwrap();
    if name == "bridge" {
        assert!(running.openflow("s1").unwrap().is_none());
        assert!(running.port_number("s1", "PC1").is_err());
    } else {
        assert!(running.cpu() > 0.0);
        hello(&*running);
        let ports = ["PC1", "PC3"].map(|to| running.port_number("s1", to).unwrap());
        assert_ne!(ports[0], ports[1]);
        assert!(running.port_number("s1", "PC9").is_err());
    }
    drop(running);
    assert_eq!(contents(&bed), before, "{name} has left something behind");
}

#[test]
fn oxvs_routes_between_vlans() {
    routes("oxvs");
}

#[test]
fn oxvs_with_workers_that_spin_routes_between_vlans() {
    routes("oxvs-spin");
}

#[test]
fn oxvs_on_af_xdp_routes_between_vlans() {
    routes("oxvs-afxdp");
}

#[test]
fn the_kernels_bridge_routes_between_vlans() {
    routes("bridge");
}

#[test]
fn open_vswitch_on_packet_sockets_routes_between_vlans() {
    routes("ovs-userspace");
}

#[test]
fn open_vswitch_with_segmentation_offload_routes_between_vlans() {
    routes("ovs-tso");
}

#[test]
fn open_vswitch_on_af_xdp_routes_between_vlans() {
    routes("ovs-afxdp");
}

#[test]
fn open_vswitch_in_the_kernel_routes_between_vlans() {
    routes("ovs-kernel");
}

#[test]
fn oxvs_as_mininet_makes_it_routes_between_vlans() {
    routes("mininet");
}

#[test]
fn trunks_carry_vlans_or_it_is_said_that_they_cannot() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let topology = topology(TRUNKED);
    for name in ["oxvs", "bridge", "ovs-tso"] {
        let system = named(name).unwrap();
        if let Some(reason) = system.missing(&topology) {
            assert!(name != "oxvs" && reason.len() > 10, "{name}: {reason}");
            continue;
        }
        let bed = Bed::build(&topology).unwrap();
        let running = system.start(&topology, &bed).unwrap();
        ping(&bed, "PC1", "10.0.0.2");
        if name == "oxvs" {
            let said = running.configuration().join("\n");
            assert!(said.contains("oxvs vsctl add-port s1 s1-s2 trunks=10,20"), "{said}");
        }
    }
}

#[test]
fn hosts_behind_tunnels_are_reached_or_it_is_said_that_they_cannot_be() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let tunnel = |kind: &str, underlay: &str, ipsec: bool| {
        topology(&format!(
            "host = [{{ name = 'near', address = [{{ ip = '10.0.0.1', prefix = 24 }}] }},
                     {{ name = 'far', address = [{{ ip = '10.0.0.2', prefix = 24 }}],
                        tunnel = {{ kind = '{kind}', underlay = '{underlay}', number = 3, ipsec = {ipsec} }} }}]
             bridge = [{{ name = 's1' }}]
             link = [{{ a = {{ at = 'near' }}, b = {{ at = 's1' }} }}, {{ a = {{ at = 'far' }}, b = {{ at = 's1' }} }}]"
        ))
    };
    for kind in ["vxlan", "geneve", "gre"] {
        for name in ["oxvs", "bridge", "ovs-tso", "ovs-kernel"] {
            let mut bed: Option<Bed> = None;
            for (underlay, ipsec) in [("host", false), ("native", false), ("host", true)] {
                let topology = tunnel(kind, underlay, ipsec);
                // The host encrypts too, so that it needs another testbed.
                bed.take_if(|_| ipsec);
                let system = named(name).unwrap();
                if let Some(reason) = system.missing(&topology) {
                    assert!(reason.len() > 10, "{name}: {reason}");
                    assert!(name != "oxvs" || reason.contains("kernel"), "{name}: {reason}");
                    continue;
                }
                let bed = bed.get_or_insert_with(|| Bed::build(&topology).unwrap());
                let before = contents(bed);
                let running = system.start(&topology, bed).unwrap();
                testkit::eventually("the tunnel carries packets", || {
                    let mut command = bed.host("near").unwrap().command(&["ping", "-c1", "-W1", "10.0.0.2"]);
                    command.output().unwrap().status.success().then_some(())
                });
                transfer(bed, "near", "far", "10.0.0.2");
                transfer(bed, "far", "near", "10.0.0.1");
                let said = running.configuration().join("\n");
                assert!(said.contains("198.18.0.5") && said.contains("198.18.0.6/30"), "{said}");
                assert_eq!(said.contains("underlay2"), underlay == "native", "{said}");
                assert_eq!(said.contains("ip xfrm policy"), ipsec, "{said}");
                running.drops().unwrap();
                drop(running);
                assert_eq!(contents(bed), before, "{name} has left something behind");
                // The next switch has other MAC addresses.
                for host in ["near", "far"] {
                    bed::command::run(&mut bed.host(host).unwrap().command(&["ip", "neigh", "flush", "all"])).unwrap();
                }
            }
        }
    }
}

/// A client and a server with four more addresses.
fn tracked(stateful: &str, offload: bool) -> Topology {
    topology(&format!(
        "host = [{{ name = 'client', address = [{{ ip = '10.0.0.1', prefix = 24 }}, {{ ip = '10.0.0.101', prefix = 24 }}] }},
                 {{ name = 'server', address = [{{ ip = '10.0.0.2', prefix = 24 }}, {{ ip = '10.0.0.11', prefix = 24 }},
                    {{ ip = '10.0.0.12', prefix = 24 }}, {{ ip = '10.0.0.13', prefix = 24 }}, {{ ip = '10.0.0.14', prefix = 24 }}] }}]
         bridge = [{{ name = 's1', offload = {offload}, stateful = {{ from = 'client', {stateful} }} }}]
         link = [{{ a = {{ at = 'client' }}, b = {{ at = 's1' }} }}, {{ a = {{ at = 'server' }}, b = {{ at = 's1' }} }}]"
    ))
}

/// The addresses of both ends as the server sees them, of so many connections with an answer each;
/// none of one that could not be made within a second.
fn connections(bed: &Bed, from: &str, to: &str, address: &str, number: usize) -> Vec<Option<[String; 2]>> {
    let listener = bed
        .host(to)
        .unwrap()
        .enter(|| Ok(TcpListener::bind("0.0.0.0:7777")?))
        .unwrap();
    let address: SocketAddr = format!("{address}:7777").parse().unwrap();
    let connection = |_| {
        let second = Duration::from_secs(1);
        let connect = || Ok(TcpStream::connect_timeout(&address, second)?);
        let mut stream = bed.host(from).unwrap().enter(connect).ok()?;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (mut accepted, peer) = listener.accept().unwrap();
        accepted.write_all(b"!").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        Some([peer.ip(), accepted.local_addr().unwrap().ip()].map(|ip| ip.to_string()))
    };
    (0..number).map(connection).collect()
}

#[test]
fn connections_are_tracked_and_translated_or_it_is_said_that_they_cannot_be() {
    skip!(unless root, "ip", "tc", "ethtool");
    let balance =
        "kind = 'balance', address = '10.0.0.2', servers = ['10.0.0.11', '10.0.0.12', '10.0.0.13', '10.0.0.14']";
    for (name, offload) in [
        ("oxvs", true),
        ("oxvs", false),
        ("ovs-tso", true),
        ("ovs-kernel", true),
        ("bridge", true),
    ] {
        let mut bed: Option<Bed> = None;
        for stateful in ["kind = 'firewall'", "kind = 'snat', address = '10.0.0.101'", balance] {
            let topology = tracked(stateful, offload);
            let system = named(name).unwrap();
            if let Some(reason) = system.missing(&topology) {
                assert!(reason.len() > 10 && name != "oxvs", "{name}: {reason}");
                continue;
            }
            let bed = bed.get_or_insert_with(|| Bed::build(&topology).unwrap());
            let running = system.start(&topology, bed).unwrap();
            let seen = connections(bed, "client", "server", "10.0.0.2", 40);
            let seen: Vec<[String; 2]> = seen.into_iter().map(Option::unwrap).collect();
            let from = if stateful.contains("snat") {
                "10.0.0.101"
            } else {
                "10.0.0.1"
            };
            assert!(seen.iter().all(|[peer, _]| peer == from), "{name}: {seen:?}");
            let reached: std::collections::BTreeSet<&str> = seen.iter().map(|[_, own]| own.as_str()).collect();
            match stateful == balance {
                true => assert!(
                    reached.len() > 1 && !reached.contains("10.0.0.2"),
                    "{name}: {reached:?}"
                ),
                false => assert_eq!(reached.into_iter().collect::<Vec<_>>(), ["10.0.0.2"], "{name}"),
            }
            assert_eq!(
                connections(bed, "server", "client", "10.0.0.1", 1),
                [None],
                "{name}: {stateful}"
            );
            transfer(bed, "client", "server", "10.0.0.2");
            let said = running.configuration().join("\n");
            assert_eq!(said.contains("kernel-offload=false"), !offload, "{said}");
            drop(running);
            for host in ["client", "server"] {
                bed::command::run(&mut bed.host(host).unwrap().command(&["ip", "neigh", "flush", "all"])).unwrap();
            }
        }
    }
}

#[test]
fn hosts_of_a_cluster_reach_each_other_or_it_is_said_that_they_cannot() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let topology = topology(
        "host = [{ name = 'near', address = [{ ip = '10.0.0.1', prefix = 24 }] }, { name = 'beside', address = [{ ip = '10.0.0.2', prefix = 24 }] },
                 { name = 'far', address = [{ ip = '10.0.0.3', prefix = 24 }] }]
         bridge = [{ name = 'one', control = 'ovn' }, { name = 'two', control = 'ovn' }]
         link = [{ a = { at = 'near' }, b = { at = 'one' } }, { a = { at = 'beside' }, b = { at = 'one' } },
                 { a = { at = 'far' }, b = { at = 'two' } }, { a = { at = 'one' }, b = { at = 'two' } }]",
    );
    let mut bed: Option<Bed> = None;
    for name in ["oxvs", "ovs-tso", "ovs-kernel", "bridge"] {
        let system = named(name).unwrap();
        if let Some(reason) = system.missing(&topology) {
            assert!(reason.len() > 10, "{name}: {reason}");
            continue;
        }
        let bed = bed.get_or_insert_with(|| Bed::build(&topology).unwrap());
        let before = contents(bed);
        let mut running = system.start(&topology, bed).unwrap();
        for (from, to, address) in [
            ("near", "beside", "10.0.0.2"),
            ("near", "far", "10.0.0.3"),
            ("far", "near", "10.0.0.1"),
        ] {
            // A switch asks for the other end of a tunnel when it has a packet for it.
            testkit::eventually("the hosts reach each other", || {
                let mut command = bed.host(from).unwrap().command(&["ping", "-c1", "-W1", address]);
                command.output().unwrap().status.success().then_some(())
            });
            transfer(bed, from, to, address);
        }
        running.check().unwrap();
        running.drops().unwrap();
        let said = running.configuration().join("\n");
        for part in [
            "# chassis two\n",
            "iface-id=far",
            "ovn-encap-type=geneve",
            "ovn-northd ",
            "ovn-controller unix:",
        ] {
            assert!(said.contains(part), "{said}");
        }
        drop(running);
        assert_eq!(contents(bed), before, "{name} has left something behind");
    }
}

#[test]
fn what_is_dropped_is_told_by_cause_and_port() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let send = |bed: &Bed, from: &str, to: &str, packets: u32, payload: usize| {
        let send = || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            for _ in 0..packets {
                socket.send_to(&vec![0; payload], (to, 9))?;
            }
            Ok(())
        };
        bed.host(from).unwrap().enter(send).unwrap();
    };
    // The policer passes far less than is sent; the class sends a packet now and then.
    let topology = pair(
        "policing = { rate = 8, burst = 100 }, qos = { kind = 'htb', rate = 20000 }",
        "",
    );
    let told = |name: &str| {
        let system = named(name).unwrap();
        if system.missing(&topology).is_some() {
            return;
        }
        let bed = Bed::build(&topology).unwrap();
        let running = system.start(&topology, &bed).unwrap();
        ping(&bed, "PC1", "10.0.0.2");
        send(&bed, "PC2", "10.0.0.1", 100, 1400);
        send(&bed, "PC1", "10.0.0.2", 4000, 10);
        // The last ones may be in flight.
        testkit::eventually("the drops are counted", || {
            let losses = running.drops().unwrap();
            let counted = packets(&losses, "policer", "s1:PC2") >= 50 && packets(&losses, "queue", "s1:PC2") > 0;
            counted.then_some(())
        });
    };
    told("oxvs");
    told("bridge");
    told("ovs-kernel");
}

#[test]
fn a_switch_that_dies_is_told_with_what_it_said() {
    skip!(unless root, "ip", "tc", "ethtool");
    let topology = pair("", "");
    let bed = Bed::build(&topology).unwrap();
    let mut running = named("oxvs").unwrap().start(&topology, &bed).unwrap();
    running.check().unwrap();
    for pid in contents(&bed).1[0].split_whitespace() {
        bed::command::run_words(&["kill", "-KILL", pid]).unwrap();
    }
    let error = testkit::eventually("its end is told", || running.check().err());
    let error = format!("{error:#}");
    assert!(error.contains("oxvs has ended (signal: 9 (SIGKILL))"), "{error}");
    assert!(running.drops().is_err());
}

#[test]
fn a_start_that_fails_half_way_leaves_nothing() {
    skip!(unless root, "ip", "tc", "ethtool");
    let topology = topology(ROUTED);
    for name in ["oxvs", "bridge", "ovs-tso"] {
        let system = named(name).unwrap();
        if system.missing(&topology).is_some() {
            continue;
        }
        let bed = Bed::build(&topology).unwrap();
        // Blocks the second address's device.
        let device = ["ip", "link", "add", "vlan20", "type", "veth", "peer", "name", "other"];
        bed::command::run(&mut bed.command(&device)).unwrap();
        let before = contents(&bed);
        let error = system.start(&topology, &bed).err().unwrap();
        let error = format!("{error:#}");
        assert!(error.contains("vlan20"), "{name}: {error}");
        assert_eq!(contents(&bed), before, "{name} has left something behind");
    }
}

#[test]
fn a_bridge_connects_to_the_controller_that_it_is_given() {
    skip!(unless root, "ip", "tc", "ethtool");
    let topology = pair("", ", control = 'reactive'");
    let bridge = named("bridge").unwrap().missing(&topology).unwrap();
    assert!(bridge.contains("OpenFlow"), "{bridge}");
    for name in ["oxvs", "ovs-tso"] {
        let system = named(name).unwrap();
        if system.missing(&topology).is_some() {
            continue;
        }
        let bed = Bed::build(&topology).unwrap();
        let listener = bed::namespace::enter(bed.namespace(), || Ok(TcpListener::bind("127.0.0.1:0")?)).unwrap();
        let mut running = system.start(&topology, &bed).unwrap();
        running
            .set_controller("s1", Some(listener.local_addr().unwrap()))
            .unwrap();
        assert!(
            running
                .set_controller("s9", Some(listener.local_addr().unwrap()))
                .is_err()
        );
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(LONG)).unwrap();
        let mut header = [0; 8];
        stream.read_exact(&mut header).unwrap();
        assert_eq!(header[1], 0, "its first message is a HELLO");
    }
}

#[test]
fn hosts_have_classes_of_their_own_at_a_port() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let class =
        "class = [{ min = 6000000, hosts = ['PC2'] }, { min = 2000000, max = 5000000, priority = 1, hosts = ['PC1'] }]";
    let topology = pair(&format!("qos = {{ kind = 'htb', rate = 10000000, {class} }}"), "");
    for name in ["oxvs", "bridge", "ovs-kernel", "ovs-tso"] {
        let system = named(name).unwrap();
        if let Some(reason) = system.missing(&topology) {
            assert!(name != "oxvs" && reason.len() > 10, "{name}: {reason}");
            continue;
        }
        let bed = Bed::build(&topology).unwrap();
        let running = system.start(&topology, &bed).unwrap();
        ping(&bed, "PC1", "10.0.0.2");
        let said = running.configuration().join("\n");
        assert!(said.contains("10.0.0.1"), "{said}");
        if name == "oxvs" {
            let socket = bed.directory().join("oxvs");
            let mut show = std::process::Command::new(env!("CARGO_BIN_EXE_oxvs"));
            show.env("OVS_RUNDIR", socket).args(["appctl", "qos/show", "s1-PC2"]);
            let show = bed::command::run(&mut show).unwrap();
            let second = show.split("Queue 1:").nth(1).unwrap_or_else(|| panic!("{show}"));
            assert!(
                second.contains("max-rate: 5000000") && !second.contains("tx_packets: 0\n"),
                "{show}"
            );
        }
    }
}

#[test]
fn a_class_can_have_a_discipline_of_its_own() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    let topology = pair("qos = { kind = 'htb', rate = 10000000, leaf = 'fq_codel' }", "");
    for name in ["oxvs", "bridge", "ovs-tso"] {
        let system = named(name).unwrap();
        if let Some(reason) = system.missing(&topology) {
            assert!(name != "oxvs" && reason.len() > 10, "{name}: {reason}");
            continue;
        }
        let bed = Bed::build(&topology).unwrap();
        let running = system.start(&topology, &bed).unwrap();
        ping(&bed, "PC1", "10.0.0.2");
        let said = running.configuration().join("\n");
        assert!(said.contains("fq_codel"), "{said}");
    }
}

#[test]
fn two_cables_are_one_port_or_it_is_said_that_they_cannot() {
    skip!(unless root, "ip", "tc", "ethtool", "ping");
    for (mode, lacp) in [("active_backup", false), ("balance_slb", false), ("balance_tcp", true)] {
        let port = format!("port = {{ bond = {{ name = 'bond0', mode = '{mode}', lacp = {lacp} }} }}");
        let cable = format!("{{ a = {{ at = 's1', {port} }}, b = {{ at = 's2', {port} }} }}");
        let topology = topology(&format!(
            "host = [{{ name = 'PC1', address = [{{ ip = '10.0.0.1', prefix = 24 }}] }}, {{ name = 'PC2', address = [{{ ip = '10.0.0.2', prefix = 24 }}] }}]
             bridge = [{{ name = 's1' }}, {{ name = 's2' }}]
             link = [{{ a = {{ at = 'PC1' }}, b = {{ at = 's1' }} }}, {{ a = {{ at = 'PC2' }}, b = {{ at = 's2' }} }}, {cable}, {cable}]"
        ));
        for name in ["oxvs", "bridge", "ovs-tso"] {
            let system = named(name).unwrap();
            if let Some(reason) = system.missing(&topology) {
                assert!(reason.len() > 10, "{name}: {reason}");
                continue;
            }
            // Each end would receive broadcasts from a member that the other must not send them by.
            assert!(name == "bridge" || mode != "balance_slb", "{name}");
            let bed = Bed::build(&topology).unwrap();
            let running = system.start(&topology, &bed).unwrap();
            ping(&bed, "PC1", "10.0.0.2");
            let said = running.configuration().join("\n");
            assert!(said.contains("s1-bond0"), "{said}");
        }
    }
}
