//! Notifications about links.

use crate::netlink::{self, Link, Netlink, RTM_DELLINK, RTM_NEWLINK};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use wire::MacAddr;

/// All network devices of the calling thread's network namespace.
///
/// # Errors
/// The kernel's.
pub fn list_links() -> io::Result<Vec<Link>> {
    netlink::dump_links(&mut Netlink::open()?)
}

/// Reports new, changed and removed devices in the network namespace of the thread that opened it.
///
/// If the kernel drops notifications, the differences between the known and the existing devices
/// become events.
pub struct LinkMonitor {
    events: Netlink,
    /// For queries in the same namespace after lost notifications.
    requests: Netlink,
    known: BTreeMap<u32, Link>,
    buffer: Vec<u8>,
}

/// A device that has come, changed, or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// The kernel's number.
    pub ifindex: u32,
    /// The name.
    pub name: String,
    /// The administrative state is up.
    pub up: bool,
    /// Whether there is a link.
    pub carrier: bool,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Its address.
    pub mac: MacAddr,
    /// The device that uses it exclusively, such as `bridge br-lan`; empty for none.
    pub owner: String,
    /// The device was deleted or moved to another namespace; the other fields are the last known
    /// ones.
    pub deleted: bool,
}

/// `RTMGRP_LINK`.
const GROUP_LINK: u32 = 1;

impl LinkMonitor {
    /// Starts to watch. Existing devices cause no events; see [`links`](LinkMonitor::links).
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> io::Result<LinkMonitor> {
        // In this order no change is missed; a change reported twice causes one event.
        let events = Netlink::subscribe(GROUP_LINK)?;
        let mut requests = Netlink::open()?;
        let known = dump(&mut requests)?;
        Ok(LinkMonitor {
            events,
            requests,
            known,
            buffer: vec![0; 32 * 1024],
        })
    }

    /// Readable when there may be events.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// The devices that exist, as of the last [`next`](LinkMonitor::next).
    pub fn links(&self) -> impl Iterator<Item = &Link> {
        self.known.values()
    }

    /// The events since the last call, oldest first; empty if there are none. Never waits.
    #[expect(
        clippy::should_implement_trait,
        reason = "it gives all events that there are, and goes on after none"
    )]
    pub fn next(&mut self) -> Vec<LinkEvent> {
        let mut events = Vec::new();
        loop {
            match self.events.receive(&mut self.buffer) {
                Ok(0) => return events,
                Ok(n) => {
                    for part in netlink::parse(&self.buffer[..n]) {
                        match (part.kind, netlink::parse_link(part.payload)) {
                            (RTM_NEWLINK, Some(link)) => note(&mut self.known, link, &mut events),
                            (RTM_DELLINK, Some(link)) => forget(&mut self.known, link.ifindex, &mut events),
                            _ => {}
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return events,
                Err(_) => {
                    // The kernel dropped notifications (ENOBUFS): compare with the present links.
                    // If the dump fails too, the next notification tries again.
                    let Ok(now) = dump(&mut self.requests) else {
                        return events;
                    };
                    resync(&mut self.known, now, &mut events);
                }
            }
        }
    }
}

/// Tells when routes, rules, addresses or devices have changed in the network namespace of the
/// thread that opened it.
pub struct RouteMonitor {
    events: Netlink,
}

/// `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV4_RULE` and the same of IPv6, whose last
/// one is group 19.
const GROUPS_ROUTE: u32 = 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;

impl RouteMonitor {
    /// Starts to watch.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> io::Result<RouteMonitor> {
        let events = Netlink::subscribe(GROUP_LINK | GROUPS_ROUTE)?;
        Ok(RouteMonitor { events })
    }

    /// Readable when there may be changes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Whether anything has changed since the last call. Never waits.
    pub fn has_changed(&mut self) -> bool {
        let mut changed = false;
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match self.events.receive(&mut buffer) {
                Ok(1..) => changed = true,
                // The kernel dropped notifications: something has changed.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => changed = true,
                Ok(0) | Err(_) => return changed,
            }
        }
    }
}

fn dump(netlink: &mut Netlink) -> io::Result<BTreeMap<u32, Link>> {
    Ok(netlink::dump_links(netlink)?
        .into_iter()
        .map(|link| (link.ifindex, link))
        .collect())
}

fn note(known: &mut BTreeMap<u32, Link>, link: Link, events: &mut Vec<LinkEvent>) {
    if known.get(&link.ifindex) != Some(&link) {
        let owner = known.get(&link.master).and_then(netlink::owner);
        events.push(LinkEvent {
            owner: owner.unwrap_or_default(),
            ..event(&link, false)
        });
        known.insert(link.ifindex, link);
    }
}

fn forget(known: &mut BTreeMap<u32, Link>, ifindex: u32, events: &mut Vec<LinkEvent>) {
    if let Some(link) = known.remove(&ifindex) {
        events.push(event(&link, true));
    }
}

fn resync(known: &mut BTreeMap<u32, Link>, now: BTreeMap<u32, Link>, events: &mut Vec<LinkEvent>) {
    let gone: Vec<u32> = known
        .keys()
        .filter(|ifindex| !now.contains_key(ifindex))
        .copied()
        .collect();
    for ifindex in gone {
        forget(known, ifindex, events);
    }
    for link in now.into_values() {
        note(known, link, events);
    }
}

fn event(link: &Link, deleted: bool) -> LinkEvent {
    LinkEvent {
        ifindex: link.ifindex,
        name: link.name.clone(),
        up: link.up && !deleted,
        carrier: link.carrier && !deleted,
        mtu: link.mtu,
        mac: link.mac,
        owner: String::new(),
        deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(ifindex: u32, name: &str, up: bool) -> Link {
        Link {
            ifindex,
            name: name.to_owned(),
            up,
            ..Link::default()
        }
    }

    #[test]
    fn a_resync_tells_exactly_the_difference() {
        let all = |links: &[Link]| {
            links
                .iter()
                .map(|link| (link.ifindex, link.clone()))
                .collect::<BTreeMap<_, _>>()
        };
        let mut known = all(&[link(1, "lo", true), link(2, "gone", true), link(3, "same", true)]);
        let now = all(&[link(1, "lo", false), link(3, "same", true), link(4, "new", false)]);
        let mut events = Vec::new();
        resync(&mut known, now.clone(), &mut events);
        let told: Vec<_> = events
            .iter()
            .map(|event| (event.name.as_str(), event.up, event.deleted))
            .collect();
        assert_eq!(
            told,
            [("gone", false, true), ("lo", false, false), ("new", false, false)]
        );
        assert_eq!(known, now);
    }

    #[test]
    fn the_loopback_device_is_listed() {
        let links = list_links().unwrap();
        assert!(links.iter().any(|link| link.name == "lo" && link.ifindex != 0));
    }
}
