//! Tunnels between our switch and Open vSwitch, on devices of memory: what one end sends, the other
//! one receives.

use crate::fixture::start;
use testkit::pcap::Tail;
use testkit::{Devices, Options, Packet, Sandbox, Vswitch, eventually, mac, to_hex, tshark};

mod chosen;
mod hostile;
mod kinds;
mod nested;
mod options;
mod service_headers;

/// The addresses of the underlay at both ends.
const V4: [&str; 2] = ["1.1.2.88", "1.1.2.92"];
const V6: [&str; 2] = ["2001:cafe::88", "2001:cafe::92"];
/// The Ethernet addresses of the underlay's bridges.
const BRIDGES: [&str; 2] = ["aa:55:aa:55:00:00", "aa:55:aa:55:00:01"];

/// A switch with the underlay's bridge `under`, whose cable is at `p1`, and the bridge `br0` with a
/// host at `p9`.
struct End {
    switch: Vswitch,
    /// What has left by `p1` and by `p9`.
    sent: Tail,
    delivered: Tail,
}

impl End {
    fn new(switch: Vswitch, place: usize) -> End {
        let [cable, host] = ["p1", "p9"].map(|port| switch.sandbox.path(&format!("{port}.tx")));
        switch.vsctl(&format!(
            "add-br under -- set bridge under datapath_type=dummy other_config:hwaddr={} \
             -- add-port under p1 -- set interface p1 type=dummy options:tx_pcap={} \
             -- add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure \
             -- add-port br0 p9 -- set interface p9 type=dummy ofport_request=99 options:tx_pcap={}",
            BRIDGES[place],
            cable.display(),
            host.display(),
        ));
        let end = End {
            switch,
            sent: Tail::new(cable),
            delivered: Tail::new(host),
        };
        let other = 1 - place;
        for command in [
            format!("netdev-dummy/ip4addr under {}/24", V4[place]),
            format!("netdev-dummy/ip6addr under {}/64", V6[place]),
            format!("ovs/route/add {}/24 under", V4[other]),
            format!("ovs/route/add {}/64 under", V6[other]),
            format!("tnl/neigh/set under {} {}", V4[other], BRIDGES[other]),
            format!("tnl/neigh/set under {} {}", V6[other], BRIDGES[other]),
        ] {
            end.appctl(&command);
        }
        end
    }

    fn appctl(&self, command: &str) -> String {
        self.switch.appctl(&command.split(' ').collect::<Vec<_>>())
    }

    fn rule(&self, bridge: &str, rule: &str) {
        let added = self
            .switch
            .tool("ovs-ofctl", &["-O", "OpenFlow15", "add-flow", bridge, rule]);
        added.expect_ok();
    }

    fn receive(&self, port: &str, frame: &[u8]) {
        self.switch.appctl(&["netdev-dummy/receive", port, &to_hex(frame)]);
    }

    /// How often a packet was dropped for a cause.
    fn drops(&self, cause: &str) -> u64 {
        let counted = self.switch.try_appctl(&["coverage/read-counter", cause]);
        counted.stdout.trim().parse().unwrap_or(0)
    }
}

fn options() -> Options {
    Options {
        devices: Devices::System,
        args: ["--enable-dummy", "--disable-system", "--disable-system-route"]
            .map(str::to_owned)
            .into(),
        ..Options::default()
    }
}

/// The two ends of tunnels.
struct Wired {
    ends: [End; 2],
}

impl Wired {
    /// Our switch, and Open vSwitch.
    fn beside() -> Wired {
        let ends = [start(options()), Vswitch::debian(options())];
        Wired::of(ends)
    }

    /// Two of our switches.
    fn alone() -> Wired {
        Wired::of([start(options()), start(options())])
    }

    fn of([one, other]: [Vswitch; 2]) -> Wired {
        Wired {
            ends: [End::new(one, 0), End::new(other, 1)],
        }
    }

    /// Adds a tunnel to the other end at both: `t1` with the port number 1 and so on.
    fn tunnel(&self, number: u8, options: &str, remotes: [&str; 2]) {
        for (end, place) in self.ends.iter().zip([0, 1]) {
            end.switch.vsctl(&format!(
                "add-port br0 t{number} -- set interface t{number} ofport_request={number} \
                 options:remote_ip={} {options}",
                remotes[1 - place]
            ));
            let error = end.switch.get("interface", &format!("t{number}"), "error");
            assert_eq!(error, "[]", "{options}");
        }
    }

    fn rules(&self, rules: &str) {
        for end in &self.ends {
            rules.lines().for_each(|rule| end.rule("br0", rule));
        }
    }

    /// Packets that a host sends at one end; each crosses the cable so many times, and as many come
    /// to the hosts at the ends. Returns those of the cable and those that came to the hosts.
    fn carry(&mut self, from: usize, frames: &[Vec<u8>], crossings: usize) -> (Vec<Vec<u8>>, [Vec<Vec<u8>>; 2]) {
        for frame in frames {
            self.ends[from].receive("p9", frame);
        }
        let (mut outer, mut inner) = (Vec::new(), [Vec::new(), Vec::new()]);
        let what = format!("{} packets have crossed, from {from}", frames.len());
        eventually(&what, || {
            for place in [0, 1] {
                let sent = self.ends[place].sent.take();
                sent.iter().for_each(|frame| self.ends[1 - place].receive("p1", frame));
                outer.extend(sent);
                inner[place].extend(self.ends[place].delivered.take());
            }
            let came = inner[0].len() + inner[1].len();
            (outer.len() >= crossings * frames.len() && came >= frames.len()).then_some(())
        });
        (outer, inner)
    }
}

/// A host's frame to 10.0.0.`to`; the same at both ends.
fn inner(to: u8) -> Vec<u8> {
    let packet = Packet::new(mac(1), mac(2)).ipv4([10, 0, 0, 1].into(), [10, 0, 0, to].into());
    packet.udp(1000, 2000, &[7; 40]).bytes()
}

/// The same over IPv6, to fd00::`to`.
fn inner6(to: u8) -> Vec<u8> {
    let address = |last: u8| (0xfd << 120 | u128::from(last)).into();
    let packet = Packet::new(mac(1), mac(2)).ipv6(address(1), address(to));
    packet.udp(1000, 2000, &[7; 40]).bytes()
}

/// What tshark says of frames: nothing malformed, no wrong checksum, no error. Returns the fields
/// of each.
fn decoded(frames: &[Vec<u8>], options: &[&str], fields: &[&str]) -> Vec<String> {
    let sandbox = Sandbox::new();
    let path = sandbox.path("frames");
    std::fs::write(&path, testkit::pcap::of_ethernet(frames)).unwrap();
    let mut words = vec!["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"];
    words.extend(options);
    let complaints = ["-Y", "_ws.malformed || _ws.expert.severity >= 0x600000", "-V"];
    let complaints = tshark(&path, &[&words[..], &complaints].concat());
    assert!(complaints.is_empty(), "{complaints}");
    words.extend(["-T", "fields", "-E", "separator=|"]);
    words.extend(fields.iter().flat_map(|field| ["-e", *field]));
    tshark(&path, &words).lines().map(str::to_owned).collect()
}
