//! Links: the kernel's data about devices.

use super::message::{NLM_F_DUMP, read_i32, read_u32};
use super::{Attributes, Message, Netlink, RTM_NEWLINK};
use std::io;
use wire::MacAddr;

const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_CARRIER_CHANGES: u16 = 35;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VRF_TABLE: u16 = 1;

/// Leaves the counters out of replies.
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;

/// The kind of a VRF's device.
const VRF: &str = "vrf";

const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 1 << 6;
const IFF_LOWER_UP: u32 = 1 << 16;
/// The operational state says that there is a link, and so does the device now: the state follows
/// up to a second later.
const HAS_LINK: u32 = IFF_RUNNING | IFF_LOWER_UP;

/// Length of `struct ifinfomsg`.
const FIXED: usize = 16;

/// A network device of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number.
    pub ifindex: u32,
    /// The name.
    pub name: String,
    /// The driver's kind of a virtual device (`veth`, `tun`, `bridge`); empty for hardware.
    pub kind: String,
    /// The administrative state is up.
    pub up: bool,
    /// Whether there is a link.
    pub carrier: bool,
    /// Largest packet in bytes, without the link's header.
    pub mtu: u32,
    /// Its address; zero if it is not an Ethernet device.
    pub mac: MacAddr,
    /// Number of carrier changes.
    pub carrier_changes: u32,
    /// The number of the device that it is a part of: a bridge, a bond, a VRF, Open vSwitch's
    /// kernel module; 0 for none.
    pub master: u32,
    /// The table of routes of a VRF.
    pub vrf_table: Option<u32>,
}

/// Parses an `RTM_NEWLINK` or `RTM_DELLINK`; `None` if it is not about a link, such as a bridge's
/// port.
pub(crate) fn parse_link(payload: &[u8]) -> Option<Link> {
    const AF_UNSPEC: u8 = 0;
    if *payload.first()? != AF_UNSPEC {
        return None;
    }
    let flags = read_u32(payload, 8)?;
    let attributes = Attributes::after(payload, FIXED);
    let mac = attributes.get(IFLA_ADDRESS).and_then(|bytes| bytes.try_into().ok());
    let info = attributes.get(IFLA_LINKINFO).map(|bytes| Attributes::after(bytes, 0));
    let kind = info.and_then(|info| info.text(IFLA_INFO_KIND)).unwrap_or_default();
    let vrf_table = || {
        let data = info.filter(|_| kind == VRF)?.get(IFLA_INFO_DATA)?;
        Attributes::after(data, 0).u32(IFLA_VRF_TABLE)
    };
    Some(Link {
        ifindex: read_i32(payload, 4)?.cast_unsigned(),
        name: attributes.text(IFLA_IFNAME)?.to_owned(),
        kind: kind.to_owned(),
        up: flags & IFF_UP != 0,
        carrier: flags & HAS_LINK == HAS_LINK,
        mtu: attributes.u32(IFLA_MTU).unwrap_or_default(),
        mac: MacAddr(mac.unwrap_or_default()),
        carrier_changes: attributes.u32(IFLA_CARRIER_CHANGES).unwrap_or_default(),
        master: attributes.u32(IFLA_MASTER).unwrap_or_default(),
        vrf_table: vrf_table(),
    })
}

/// The master of a link if it uses the device exclusively: `bridge br-lan`. A VRF does not.
pub(crate) fn owner(master: &Link) -> Option<String> {
    (master.kind != VRF).then(|| format!("{} {}", master.kind, master.name).trim().to_owned())
}

/// All links.
pub(crate) fn dump_links(netlink: &mut Netlink) -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    netlink.exchange(get(0, NLM_F_DUMP), |kind, payload| {
        if kind == RTM_NEWLINK {
            links.extend(parse_link(payload));
        }
    })?;
    Ok(links)
}

/// One link; `ENODEV` if it does not exist.
pub(crate) fn link_by_index(netlink: &mut Netlink, ifindex: u32) -> io::Result<Link> {
    one(netlink, get(ifindex, 0))
}

/// One link; `ENODEV` if it does not exist.
pub(crate) fn link_by_name(netlink: &mut Netlink, name: &str) -> io::Result<Link> {
    one(netlink, get(0, 0).text(IFLA_IFNAME, name))
}

/// Changes a link; `None` leaves an attribute as it is.
pub(crate) fn set_link(
    netlink: &mut Netlink,
    ifindex: u32,
    mtu: Option<u32>,
    mac: Option<MacAddr>,
    up: Option<bool>,
) -> io::Result<()> {
    let flags = if up == Some(true) { IFF_UP } else { 0 };
    let change = if up.is_some() { IFF_UP } else { 0 };
    let mut message = Message::new(RTM_SETLINK, 0, &fixed(ifindex, flags, change));
    if let Some(mtu) = mtu {
        message = message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    }
    if let Some(mac) = mac {
        message = message.attribute(IFLA_ADDRESS, &mac.0);
    }
    netlink.request(message)
}

fn one(netlink: &mut Netlink, message: Message) -> io::Result<Link> {
    let mut link = None;
    netlink.exchange(message.acknowledged(), |kind, payload| {
        if kind == RTM_NEWLINK {
            link = parse_link(payload);
        }
    })?;
    link.ok_or_else(|| rustix::io::Errno::NODEV.into())
}

fn get(ifindex: u32, flags: u16) -> Message {
    Message::new(RTM_GETLINK, flags, &fixed(ifindex, 0, 0))
        .attribute(IFLA_EXT_MASK, &RTEXT_FILTER_SKIP_STATS.to_ne_bytes())
}

/// `struct ifinfomsg`.
fn fixed(ifindex: u32, flags: u32, change: u32) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    bytes[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}
