//! Cables: their construction and their losses.
//!
//! A bare cable is a veth pair. One with a rate has a namespace of its own with a plain bridge
//! between the two ends and the kernel's token bucket (`tc-tbf(8)`) at the output of each
//! direction. One with a delay has a [program](super::delay) in the bridge's place, and a serial
//! one has the program in place of the bucket too.
//!
//! A token bucket adds the cable's overhead only to frames that it gets whole, not to those that it
//! makes from a 64 KB segment. So all four devices of such a cable have no offloads: every sender
//! segments and checksums before them.

use super::names;
use crate::topology::{End, Link, OVERHEAD, Topology};

/// Bytes of a VLAN's tag, which the kernel keeps apart from a frame and no queue counts.
const TAG: u64 = 4;

/// The longest frame: 1500 bytes of payload, Ethernet's header and a tag.
const FRAME: u64 = 1518;

/// How late the kernel's timer may be without the rate falling behind, in microseconds.
const LATENESS: u64 = 1000;

/// Offloads switched off at devices of a cable with a rate or a delay.
pub(crate) const OFFLOADS: &[&str] = &["tx", "tso", "gso", "gro"];

/// A cable, with the names that it has on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Cable {
    /// `PC1-s1`, for a reader.
    pub(crate) name: String,
    /// Its ends.
    pub(crate) a: Plug,
    pub(crate) b: Plug,
    /// Its own namespace, unless it is bare.
    pub(crate) namespace: Option<String>,
    pub(crate) rate: Option<Rate>,
    /// Microseconds.
    pub(crate) delay: u64,
    /// Frames take their time to pass.
    pub(crate) serial: bool,
    /// Of a cable to the other machine: makes the device at the wire.
    pub(crate) to_wire: Option<String>,
}

/// Where a cable ends.
#[derive(Clone, Debug)]
pub(crate) struct Plug {
    /// The host or the bridge.
    pub(crate) at: String,
    pub(crate) namespace: String,
    pub(crate) device: String,
    pub(crate) mac: [u8; 6],
    /// It is a virtual machine's, which has its device inside.
    pub(crate) is_guest: bool,
    /// It is at the other machine, and has no device here.
    pub(crate) is_far: bool,
    /// The device at the cable's side, in the cable's namespace.
    pub(crate) inner: String,
}

/// A shaper's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// bit/s.
    pub(crate) rate: u64,
    /// Bytes that each frame is counted longer than it is.
    pub(crate) overhead: u64,
    /// Bytes that may leave at once.
    burst: u64,
    /// Bytes that wait, counted with the overhead.
    pub(crate) queue: u64,
}

impl Rate {
    pub(crate) fn of(link: &Link, topology: &Topology) -> Option<Rate> {
        let rate = link.rate?;
        let tagged = is_tagged(&link.a, topology) || is_tagged(&link.b, topology);
        let overhead = OVERHEAD + if tagged { TAG } else { 0 };
        // Two frames at least: with one, the bucket is full while it waits for a late timer, which
        // lowers the rate.
        let burst = (2 * (FRAME + OVERHEAD)).max(rate / 8 * LATENESS / 1_000_000);
        Some(Rate {
            rate,
            overhead,
            burst,
            queue: link.queue,
        })
    }

    /// The queue at the way out of `device`, as `tc` wants it.
    pub(crate) fn command(self, device: &str) -> String {
        let Rate {
            rate,
            overhead,
            burst,
            queue,
        } = self;
        format!("qdisc add dev {device} root stab overhead {overhead} tbf rate {rate}bit burst {burst}b limit {queue}b")
    }
}

/// A device's number, other than that of the cable's side. Where the two happen to be the same, the
/// kernel takes the device for one without a lower one, and tells of a lost carrier up to a second
/// later.
fn index(mac: [u8; 6]) -> u32 {
    1000 + u32::from(u16::from_be_bytes([mac[4], mac[5]]))
}

/// Whether packets at an end are tagged: a bridge's trunk, or a host whose addresses are all in
/// VLANs.
fn is_tagged(end: &End, topology: &Topology) -> bool {
    let host = topology.hosts.iter().find(|host| host.name == end.at);
    let router = host.is_some_and(|host| !host.addresses.is_empty() && host.addresses.iter().all(|a| a.vlan.is_some()));
    router || !end.port.trunk.is_empty()
}

impl Cable {
    /// Commands of `ip` that make its devices, from whatever namespace.
    pub(crate) fn links(&self) -> Vec<String> {
        let pair = |one: String, other: String| {
            format!("link add {one} numtxqueues 1 numrxqueues 1 type veth peer {other} numtxqueues 1 numrxqueues 1")
        };
        let plugs = [&self.a, &self.b];
        match &self.namespace {
            None if plugs.iter().any(|plug| plug.is_guest || plug.is_far) => Vec::new(),
            None => vec![pair(self.a.outer(), self.b.outer())],
            Some(own) => plugs
                .iter()
                .filter(|plug| !plug.is_guest && !plug.is_far)
                .map(|plug| pair(plug.outer(), format!("name {} netns {own}", plug.inner)))
                .collect(),
        }
    }

    /// The name and the namespace of the device at the wire to the other machine: the near end's
    /// own, or in the cable's namespace the far end's.
    pub(crate) fn at_wire(&self) -> String {
        let (near, far) = if self.a.is_far {
            (&self.b, &self.a)
        } else {
            (&self.a, &self.b)
        };
        match &self.namespace {
            None => near.outer(),
            Some(own) => format!("name {} netns {own}", far.inner),
        }
    }

    /// Whether a program is between its ends, in the bridge's place.
    pub(crate) fn has_program(&self) -> bool {
        self.delay > 0 || self.serial
    }

    /// Commands of `ip` in its own namespace.
    pub(crate) fn inside(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let devices = [&self.a.inner, &self.b.inner];
        if !self.has_program() {
            lines.push("link add bridge type bridge stp_state 0 mcast_snooping 0 ageing_time 0".to_owned());
            for device in devices {
                lines.push(format!("link set {device} master bridge"));
                // All that a cable carries passes, frames for the bridge itself (IEEE 802.1D's
                // reserved addresses) too; but PAUSE, which no bridge of the kernel forwards.
                lines.push(format!(
                    "link set {device} type bridge_slave learning off flood on group_fwd_mask 0xfffd"
                ));
            }
            lines.push("link set bridge up".to_owned());
        }
        lines.extend(devices.map(|device| format!("link set {device} arp off up")));
        lines
    }

    /// Commands of `tc` in its own namespace.
    pub(crate) fn queues(&self) -> Vec<String> {
        let devices = [&self.a.inner, &self.b.inner];
        let rate = self.rate.filter(|_| !self.serial);
        rate.map(|rate| devices.map(|device| rate.command(device)).to_vec())
            .unwrap_or_default()
    }

    /// All of its devices: namespace and name.
    pub(crate) fn devices(&self) -> Vec<(&str, &str)> {
        let mut devices = Vec::new();
        for plug in [&self.a, &self.b] {
            if !plug.is_guest && !plug.is_far {
                devices.push((plug.namespace.as_str(), plug.device.as_str()));
            }
            if let Some(own) = &self.namespace {
                devices.push((own, &plug.inner));
            }
        }
        devices
    }

    /// The name of the direction that leaves through `inner`: `PC1-s1 towards s1`.
    pub(crate) fn direction(&self, device: &str) -> String {
        let to = if device == self.a.inner { &self.a } else { &self.b };
        format!("{} towards {}", self.name, to.at)
    }
}

impl Plug {
    /// Its device's number, name, address and namespace, as `ip link add` wants them.
    fn outer(&self) -> String {
        format!(
            "index {} name {} address {} netns {}",
            index(self.mac),
            self.device,
            mac(self.mac),
            self.namespace
        )
    }
}

/// An address as `ip` wants it.
pub(crate) fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The device at the cable's side of an end.
pub(crate) fn inner(at: &str) -> String {
    names::fitting(&format!("to-{at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(rate: &str, trunk: &str) -> Topology {
        let text = format!(
            "host = [{{ name = 'h', address = [] }}]\nbridge = [{{ name = 's' }}]\n\
             link = [{{ a = {{ at = 'h' }}, b = {{ at = 's', port = {{ trunk = {trunk} }} }}, rate = {rate} }}]"
        );
        toml::from_str(&text).unwrap()
    }

    fn rate(topology: &Topology) -> Rate {
        Rate::of(&topology.links[0], topology).unwrap()
    }

    #[test]
    fn a_slow_cable_lets_two_frames_go_at_once_and_a_fast_one_what_passes_in_a_millisecond() {
        assert_eq!(rate(&topology("10_000_000", "[]")).burst, 3084);
        assert_eq!(rate(&topology("1_000_000_000", "[]")).burst, 125_000);
    }

    #[test]
    fn a_program_that_keeps_the_rate_has_no_bucket_behind_it() {
        let topology = topology("10_000_000, serial = true", "[]");
        let plan = crate::bed::plan::Plan::of(&topology, "1-0").unwrap();
        assert!(plan.cables[0].has_program());
        assert_eq!(plan.cables[0].queues(), [""; 0]);
    }

    #[test]
    fn the_tag_of_a_trunks_frames_is_counted() {
        assert_eq!(rate(&topology("10_000_000", "[]")).overhead, 24);
        assert_eq!(rate(&topology("10_000_000", "[10, 20]")).overhead, 28);
    }
}
