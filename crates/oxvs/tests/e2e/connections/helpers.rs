//! FTP and TFTP through a firewall that lets in nothing but what control connections announce, with
//! translated addresses of clients or of servers. The client is curl.

use super::{Lab, NEIGHBOURS};
use crate::fixture::stand_in;
use testkit::{Daemon, Sandbox, skip};

/// The translated address of the client, or that of the service.
const OUTER: [&str; 2] = ["10.9.0.80", "fc09::80"];

/// A client inside and a server outside; `source`: the client's address is translated, else the
/// server's.
fn lab(source: bool) -> Lab {
    let lab = Lab::new(&NEIGHBOURS);
    let (inside, outside) = (lab.inside.mac_of("eth0"), lab.outside.mac_of("eth0"));
    for outer in OUTER {
        let (host, mac) = if source {
            (&lab.outside, &inside)
        } else {
            (&lab.inside, &outside)
        };
        host.ip(&format!("neigh replace {outer} lladdr {mac} dev eth0"));
    }
    for (family, own, outer) in [("ip", "10.9.0.2", OUTER[0]), ("ipv6", "fc09::2", OUTER[1])] {
        lab.rule(&format!("priority=5,{family},actions=ct(zone=1,nat,table=1)"));
        let nat = if source {
            format!("src={outer}")
        } else {
            format!("dst={own}")
        };
        let six = if family == "ip" { "" } else { "6" };
        for (packets, helper) in [
            (format!("tcp{six},tp_dst=21"), "ftp"),
            (format!("udp{six},tp_dst=69"), "tftp"),
        ] {
            lab.rule(&format!(
                "table=1,in_port=1,ct_state=+trk+new-rel,{packets},actions=ct(commit,zone=1,alg={helper},nat({nat})),2"
            ));
        }
        for (from, to) in [(1, 2), (2, 1)] {
            lab.rule(&format!(
                "table=1,in_port={from},ct_state=+trk+est-inv,{family},actions={to}"
            ));
            lab.rule(&format!(
                "table=1,in_port={from},ct_state=+trk+new+rel,{family},actions=ct(commit,zone=1,nat),{to}"
            ));
        }
    }
    lab
}

/// Options of curl for the ways in which a data connection comes about. Open vSwitch knows PORT and
/// PASV over IPv4, and EPRT and EPSV over IPv6.
fn ways(v6: bool) -> Vec<&'static [&'static str]> {
    let all: &[&[&str]] = match (v6, stand_in()) {
        (false, true) => &[&["--disable-epsv"], &["-P", "-", "--disable-eprt"]],
        (false, false) => &[&["--disable-epsv"], &["-P", "-", "--disable-eprt"], &[], &["-P", "-"]],
        (true, _) => &[&[], &["-P", "-"]],
    };
    all.to_vec()
}

#[test]
fn files_come_by_ftp_and_tftp_whosever_address_is_translated() {
    skip!(unless root, "ip", "ethtool", "curl", "python3", "ovs-vsctl", "ovs-ofctl");
    for source in [true, false] {
        let lab = lab(source);
        let sandbox = Sandbox::new();
        let mut command = lab.outside.prefix();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/connections/files.py");
        command.extend(["python3", script].map(str::to_owned));
        let mut server = Daemon::start("files", &command, &sandbox);
        server.wait_until(|| sandbox.read("files.out").contains("ready"));
        for v6 in [false, true] {
            let own = ["10.9.0.1", "fc09::1"][usize::from(v6)];
            let outer = OUTER[usize::from(v6)];
            // Whom the client asks, and whom the server sees.
            let (asked, seen) = if source {
                (["10.9.0.2", "[fc09::2]"][usize::from(v6)].to_owned(), outer)
            } else {
                (if v6 { format!("[{outer}]") } else { outer.to_owned() }, own)
            };
            let get = |url: &str, more: &[&str]| {
                let words = ["curl", "-sS", "-g", "-m", "8", "--no-ftp-skip-pasv-ip", url];
                let done = lab.inside.try_run(&[&words[..], more].concat(), &[]);
                assert_eq!(done.stdout, seen, "{url} {more:?}: {}", done.stderr);
            };
            for way in ways(v6) {
                get(&format!("ftp://{asked}/file"), way);
            }
            get(&format!("tftp://{asked}/file"), &[]);
        }
        let shown = lab.ovs_appctl(&["dpctl/dump-conntrack", "zone=1"]);
        assert!(shown.contains("helper=ftp") || stand_in(), "{shown}");
    }
}
