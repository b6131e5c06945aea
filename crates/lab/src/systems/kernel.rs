//! Probes the kernel's features for switches, once, in an unnamed namespace that ends with the
//! probing process.

use crate::topology::{QosKind, TunnelKind, ipsec};
use anyhow::Result;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::OnceLock;

/// A part that a kernel may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Bridge,
    /// VLANs on a bridge's ports.
    VlanFiltering,
    /// Devices of a VLAN on another device.
    VlanDevices,
    Tap,
    /// Devices that are several others.
    Bonding,
    Qdisc(QosKind),
    /// An ingress policer after a classifier that matches everything.
    Police,
    /// The same behind the classifier that Open vSwitch uses.
    PoliceBasic,
    /// Open vSwitch's kernel datapath.
    Openvswitch,
    /// Devices that are the end of a tunnel.
    Tunnel(TunnelKind),
    /// Encryption by ESP with AES-GCM.
    Esp,
}

impl Part {
    /// Its name in Linux.
    fn module(self) -> &'static str {
        match self {
            Part::Bridge => "bridge",
            Part::VlanFiltering => "VLAN filtering in bridges",
            Part::VlanDevices => "8021q",
            Part::Tap => "tun",
            Part::Bonding => "bonding",
            Part::Qdisc(QosKind::Fifo) => "pfifo_fast",
            Part::Qdisc(QosKind::Sfq) => "sch_sfq",
            Part::Qdisc(QosKind::Codel) => "sch_codel",
            Part::Qdisc(QosKind::FqCodel) => "sch_fq_codel",
            Part::Qdisc(QosKind::Htb) => "sch_htb",
            Part::Qdisc(QosKind::Hfsc) => "sch_hfsc",
            Part::Police => "act_police",
            Part::PoliceBasic => "act_police with cls_basic",
            Part::Openvswitch => "openvswitch",
            Part::Tunnel(TunnelKind::Vxlan) => "vxlan",
            Part::Tunnel(TunnelKind::Geneve) => "geneve",
            Part::Tunnel(TunnelKind::Gre) => "ip_gre",
            Part::Esp => "esp4",
        }
    }
}

/// Why a switch that needs `part` cannot run on this kernel; none if it can.
pub(crate) fn lacks(part: Part) -> Option<String> {
    let found = match probed() {
        Ok(found) => found,
        Err(why) => return Some(why.clone()),
    };
    match part {
        Part::Police => police_classifier()
            .is_none()
            .then(|| reason(part, found.get("police matchall"))),
        Part::PoliceBasic => refusal(found, "police basic").map(|said| reason(part, Some(&Some(said)))),
        _ => refusal(found, part.module()).map(|said| reason(part, Some(&Some(said)))),
    }
}

/// The `tc` words for policing everything, with the first classifier that this kernel has.
pub(crate) fn police_classifier() -> Option<&'static str> {
    let found = probed().as_ref().ok()?;
    CLASSIFIERS
        .iter()
        .find(|(name, _)| refusal(found, &format!("police {name}")).is_none())
        .map(|(_, words)| *words)
}

/// Classifiers that match everything.
const CLASSIFIERS: [(&str, &str); 3] = [
    ("matchall", "matchall"),
    ("basic", "basic"),
    ("u32", "u32 match u32 0 0"),
];

type Found = BTreeMap<String, Option<String>>;

/// The error of a probed part, if any.
fn refusal(found: &Found, name: &str) -> Option<String> {
    found.get(name).cloned().unwrap_or_else(|| Some("not tried".to_owned()))
}

fn reason(part: Part, said: Option<&Option<String>>) -> String {
    let what = part.module();
    match said {
        Some(Some(said)) if !said.is_empty() => format!("this kernel has no {what} ({said})"),
        _ => format!("this kernel has no {what}"),
    }
}

fn probed() -> &'static Result<Found, String> {
    static FOUND: OnceLock<Result<Found, String>> = OnceLock::new();
    FOUND.get_or_init(|| {
        if !rustix::process::geteuid().is_root() {
            return Err("what the kernel has is only told to root".to_owned());
        }
        let mut command = Command::new("unshare");
        command.args(["-n", "sh", "-c", &script()]);
        crate::bed::command::run(&mut command)
            .map(|said| read(&said))
            .map_err(|error| format!("{error:#}"))
    })
}

/// Prints `NAME: ` with the part's error, or nothing if it is available.
fn script() -> String {
    let mut text = "export LC_ALL=C
        try() { name=$1; shift; said=$(\"$@\" 2>&1) && said= || said=$(echo $said); echo \"$name: $said\"; }
        ip link add v0 type veth peer name v1
        try bridge ip link add b0 type bridge
        try 'VLAN filtering in bridges' ip link set b0 type bridge vlan_filtering 1
        try 8021q ip link add link v0 name v0.2 type vlan id 2
        try bonding ip link add bn0 type bond
        try tun ip tuntap add t0 mode tap
        try openvswitch sh -c '[ -d /sys/module/openvswitch ] || modprobe -n -q openvswitch || { echo no such module; exit 1; }'\n"
        .to_owned();
    let (local, remote) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    text += &format!("try esp4 ip xfrm state add {}\n", ipsec::state(local, remote));
    for kind in [TunnelKind::Vxlan, TunnelKind::Geneve, TunnelKind::Gre] {
        let device = kind.device(1, local, remote, "v0");
        let module = Part::Tunnel(kind).module();
        text += &format!("try {module} ip link add tn0 type {device}\nip link del tn0 2>/dev/null\n");
    }
    let qdiscs = [
        QosKind::Fifo,
        QosKind::Sfq,
        QosKind::Codel,
        QosKind::FqCodel,
        QosKind::Htb,
        QosKind::Hfsc,
    ];
    for kind in qdiscs {
        let qdisc = super::bridge::qdisc(kind);
        text += &format!(
            "try {} tc qdisc replace dev v0 root {qdisc}\n",
            Part::Qdisc(kind).module()
        );
    }
    text += "tc qdisc add dev v0 ingress\n";
    for (name, words) in CLASSIFIERS {
        text += &format!(
            "try 'police {name}' tc filter add dev v0 parent ffff: protocol all prio 1 {words} police rate 1mbit burst 10k conform-exceed drop\n\
             tc filter del dev v0 parent ffff: prio 1 2>/dev/null\n"
        );
    }
    text + "true"
}

fn read(said: &str) -> Found {
    let lines = said
        .lines()
        .filter_map(|line| line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, ""))));
    lines
        .map(|(name, said)| (name.trim().to_owned(), against(said)))
        .collect()
}

/// The first thing that `ip` or `tc` says is why.
fn against(said: &str) -> Option<String> {
    let said = said.trim().trim_start_matches("Error: ");
    let said = said.split(". ").next().unwrap_or(said).trim_end_matches('.');
    let said = said
        .split(" We have an error")
        .next()
        .unwrap_or(said)
        .trim_end_matches('.');
    (!said.is_empty()).then(|| said.to_owned())
}

/// The packets that a device of the testbed queues.
const QUEUE_LENGTH: u32 = 1000;

/// Sets how many packets wait in plain queues that are made at a device from then on: the command
/// and its undo command.
pub(crate) fn queue_length(device: &str, packets: u32) -> (String, String) {
    let set = |packets| format!("ip link set {device} txqueuelen {packets}");
    (set(packets), set(QUEUE_LENGTH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_read_part_by_part() {
        let found = read(
            "bridge: \nsch_sfq: Error: Specified qdisc kind is unknown.\n8021q: Error: Unknown device type. We have\n",
        );
        assert_eq!(found["bridge"], None);
        assert_eq!(found["sch_sfq"].as_deref(), Some("Specified qdisc kind is unknown"));
        assert_eq!(found["8021q"].as_deref(), Some("Unknown device type"));
        assert_eq!(refusal(&found, "tun").as_deref(), Some("not tried"));
    }

    #[test]
    fn a_kernel_tells_of_every_part_whether_it_has_it() {
        testkit::skip!(unless root, "ip", "tc");
        let kinds = [
            QosKind::Fifo,
            QosKind::Sfq,
            QosKind::Codel,
            QosKind::FqCodel,
            QosKind::Htb,
            QosKind::Hfsc,
        ];
        let parts = [
            Part::Bridge,
            Part::VlanFiltering,
            Part::VlanDevices,
            Part::Tap,
            Part::Bonding,
            Part::Police,
            Part::PoliceBasic,
            Part::Openvswitch,
            Part::Tunnel(TunnelKind::Vxlan),
            Part::Tunnel(TunnelKind::Geneve),
            Part::Tunnel(TunnelKind::Gre),
            Part::Esp,
        ];
        for part in parts.into_iter().chain(kinds.map(Part::Qdisc)) {
            if let Some(reason) = lacks(part) {
                assert!(
                    reason.contains(part.module()) && !reason.contains("not tried"),
                    "{reason}"
                );
            }
        }
        assert_eq!(police_classifier().is_some(), lacks(Part::Police).is_none());
        // No test runs without it.
        assert_eq!(lacks(Part::Bridge), None);
    }
}
