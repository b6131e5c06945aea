//! The wire to a second machine: a device on each of the two carries the cables between hosts here
//! and bridges there.
//!
//! Each such cable is a pair of devices, one on each machine, that tag its frames on the wire with
//! the cable's number: VLAN devices, or VXLAN devices where no VLAN passes between the machines or
//! a kernel has none.

use super::build::has_8021q;
use super::command::run_words;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// The tag of the first cable.
const FIRST: usize = 100;

/// The last VLAN (IEEE 802.1Q).
const LAST: usize = 4094;

/// The MTU of hosts and ports, whatever the wire's.
const MTU: u64 = 1500;

/// UDP port of VXLAN (RFC 7348).
const PORT: u16 = 4789;

/// How long the kernel may take to remove a device of an earlier testbed after its namespace.
const REMOVAL: Duration = Duration::from_secs(5);

/// What tells a wire's cables apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Tag {
    /// VLAN tags (IEEE 802.1Q): 4 bytes more in each frame
    #[default]
    Vlan,
    /// VXLAN (RFC 7348), which passes routers: 50 bytes more in each frame
    Vxlan,
}

impl Tag {
    /// For a reader.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Tag::Vlan => "a VLAN tag (4 bytes)",
            Tag::Vxlan => "a VXLAN header (50 bytes)",
        }
    }

    /// Bytes of its headers that count in the wire's MTU.
    fn overhead(self) -> u64 {
        match self {
            Tag::Vlan => 0,
            Tag::Vxlan => 50,
        }
    }
}

/// Which part of a testbed a machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The hosts, the cables between them, and what rates and delays their cables to bridges have.
    Hosts,
    /// The bridges and the cables between them.
    Switch,
}

/// This machine's end of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wire {
    device: String,
    tag: Tag,
    /// This end's address and the other's, of VXLAN.
    addresses: Option<(Ipv4Addr, Ipv4Addr)>,
}

impl Wire {
    /// Checks this end of a wire. Returns its address, of VXLAN.
    ///
    /// # Errors
    /// There is no such device, or it cannot carry the frames.
    pub(crate) fn check(device: &str, tag: Tag) -> Result<Option<Ipv4Addr>> {
        ensure!(
            is_name(device),
            "'{device}' is no name of a network device: at most 15 letters without '/' and blanks"
        );
        if tag == Tag::Vlan && !has_8021q() {
            bail!("this kernel has no 8021q (VLAN devices); --tag vxlan does without");
        }
        let said = run_words(&["ip", "-j", "addr", "show", "dev", device])
            .with_context(|| format!("the wire's device {device}; 'ip link' lists the devices"))?;
        state(device, tag, &said)
    }

    /// A wire; `addresses`: this end's and the other's, which VXLAN needs.
    pub(crate) fn new(device: &str, tag: Tag, addresses: (Option<Ipv4Addr>, Option<Ipv4Addr>)) -> Wire {
        let (here, there) = addresses;
        Wire {
            device: device.to_owned(),
            tag,
            addresses: here.zip(there),
        }
    }

    /// The words of `ip` that make the device of a cable; `words`: its name and namespace.
    pub(crate) fn link(&self, cable: usize, words: &str) -> Result<String> {
        let (tag, wire) = (FIRST + cable, &self.device);
        ensure!(
            tag <= LAST,
            "a wire carries at most {} cables: VLANs end with {LAST}",
            LAST - FIRST + 1
        );
        match self.tag {
            Tag::Vlan => Ok(format!("link add link {wire} {words} mtu {MTU} type vlan id {tag}")),
            Tag::Vxlan => {
                let (here, there) = self.addresses.context("VXLAN needs the addresses of both ends")?;
                Ok(format!(
                    "link add {words} mtu {MTU} type vxlan id {tag} local {here} remote {there} dev {wire} dstport {PORT} nolearning"
                ))
            }
        }
    }
}

/// Makes a cable's device. One of an earlier testbed with the same tag may be about to go.
pub(crate) fn make(line: &str) -> Result<()> {
    let words: Vec<&str> = ["ip"].into_iter().chain(line.split_whitespace()).collect();
    let end = Instant::now() + REMOVAL;
    loop {
        match run_words(&words) {
            Err(error) if Instant::now() < end && is_taken(&error) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) if is_taken(&error) => {
                return Err(error).context(
                    "the wire has a cable of that tag; end the run that uses it, or 'oxvs lab clean' on both machines",
                );
            }
            Err(error) => return Err(error).context("a cable on the wire"),
            Ok(_) => return Ok(()),
        }
    }
}

/// Whether a device with that tag is there already (EEXIST).
fn is_taken(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("exists")
}

/// Whether Linux takes it for the name of a device.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 15
        && !name.starts_with('-')
        && !name.contains(|c: char| c == '/' || c.is_whitespace())
        && name != "."
        && name != ".."
}

/// Reads what `ip -j addr` says of a wire's device.
fn state(device: &str, tag: Tag, said: &str) -> Result<Option<Ipv4Addr>> {
    let all: Value = serde_json::from_str(said).with_context(|| format!("ip -j addr show dev {device}"))?;
    let empty = Vec::new();
    let found = all.as_array().unwrap_or(&empty).iter();
    let one = { found }
        .find(|one| one["ifname"] == device)
        .with_context(|| format!("there is no device {device}; 'ip link' lists the devices"))?;
    let up = one["flags"]
        .as_array()
        .is_some_and(|flags| flags.iter().any(|flag| flag == "UP"));
    ensure!(
        up,
        "the wire's device {device} is down; 'ip link set {device} up' sets it up"
    );
    let (mtu, needed) = (one["mtu"].as_u64().unwrap_or(0), MTU + tag.overhead());
    ensure!(
        mtu >= needed,
        "the wire's device {device} has an MTU of {mtu}, and the cables need {needed}; 'ip link set {device} mtu {needed}' on both machines sets it"
    );
    if tag == Tag::Vlan {
        return Ok(None);
    }
    let addresses = one["addr_info"].as_array().unwrap_or(&empty).iter();
    let mut found = addresses.filter_map(|address| address["local"].as_str()?.parse().ok());
    found.next().map(Some).ok_or_else(|| {
        anyhow!(
            "the wire's device {device} has no IPv4 address, which VXLAN needs; 'ip addr add … dev {device}' adds one"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cables_device_has_its_number_as_tag() {
        let wire = Wire::new("eth1", Tag::Vlan, (None, None));
        assert_eq!(
            wire.link(2, "name s1-PC1 netns n").unwrap(),
            "link add link eth1 name s1-PC1 netns n mtu 1500 type vlan id 102"
        );
        assert!(wire.link(3995, "").unwrap_err().to_string().contains("at most 3995"));
        let [here, there] = [1, 2].map(|last| Some(Ipv4Addr::new(192, 0, 2, last)));
        assert_eq!(
            Wire::new("eth1", Tag::Vxlan, (here, there))
                .link(0, "name x netns n")
                .unwrap(),
            "link add name x netns n mtu 1500 type vxlan id 100 local 192.0.2.1 remote 192.0.2.2 dev eth1 dstport 4789 nolearning"
        );
        assert!(Wire::new("eth1", Tag::Vxlan, (here, None)).link(0, "").is_err());
    }

    #[test]
    fn a_device_that_cannot_be_a_wire_is_refused_with_the_remedy() {
        let said = |flags: &str, mtu: u32, address: &str| {
            format!(r#"[{{"ifname":"e","flags":[{flags}],"mtu":{mtu},"addr_info":[{address}]}}]"#)
        };
        let refused = |said: &str| state("e", Tag::Vxlan, said).unwrap_err().to_string();
        assert!(refused(&said("", 1500, "")).contains("'ip link set e up'"));
        assert!(refused(&said(r#""UP""#, 1500, "")).contains("mtu 1550"));
        assert!(refused(&said(r#""UP""#, 1550, "")).contains("'ip addr add"));
        assert!(refused("[{}]").contains("there is no device e"));
        assert!(refused("garbage").contains("ip -j addr"));
        let good = said(r#""UP""#, 9000, r#"{"local":"fe80::1"},{"local":"192.0.2.1"}"#);
        assert_eq!(
            state("e", Tag::Vxlan, &good).unwrap(),
            Some(Ipv4Addr::new(192, 0, 2, 1))
        );
        assert_eq!(state("e", Tag::Vlan, &good).unwrap(), None);
        for name in ["", "..", "-e", "a b", "a/b", "sixteen-letters-"] {
            assert!(!is_name(name), "{name}");
            assert!(Wire::check(name, Tag::Vxlan).is_err());
        }
    }
}
