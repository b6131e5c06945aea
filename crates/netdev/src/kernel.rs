//! The control plane's side of all kernel devices, by netlink and ethtool.

use crate::claim::{self, Claim};
use crate::netlink::{self, Link, Netlink};
use crate::{Error, State};
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use wire::MacAddr;

/// A device of the kernel, by its number: a later device of the same name is another one.
pub(crate) struct KernelDevice {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    netlink: Mutex<Netlink>,
    /// Any socket will do for ethtool.
    ethtool: OwnedFd,
}

impl KernelDevice {
    /// Finds a device in the calling thread's network namespace.
    pub(crate) fn find(name: &str) -> Result<KernelDevice, Error> {
        check_name(name)?;
        let failed = |call| {
            move |source| Error::System {
                name: name.to_owned(),
                call,
                source,
            }
        };
        let mut netlink = Netlink::open().map_err(failed("socket(AF_NETLINK)"))?;
        let link = netlink::link_by_name(&mut netlink, name).map_err(|source| {
            if source.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) {
                Error::NoDevice(name.to_owned())
            } else {
                Error::System {
                    name: name.to_owned(),
                    call: "RTM_GETLINK",
                    source,
                }
            }
        })?;
        let ethtool = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| failed("socket(AF_INET)")(errno.into()))?;
        Ok(KernelDevice {
            name: name.to_owned(),
            ifindex: link.ifindex,
            netlink: Mutex::new(netlink),
            ethtool,
        })
    }

    pub(crate) fn link(&self) -> io::Result<Link> {
        netlink::link_by_index(&mut self.netlink.lock(), self.ifindex)
    }

    /// Claims the device for this process, and stores the claim in `known`. `None` if no claim is
    /// possible and the device is used without.
    ///
    /// # Errors
    /// `AddrInUse` where another switch or a device of the kernel has it, which the text names.
    pub(crate) fn claim(&self, known: &Mutex<Weak<Claim>>) -> io::Result<Option<Arc<Claim>>> {
        let link = self.link()?;
        if link.master != 0 {
            let master = netlink::link_by_index(&mut self.netlink.lock(), link.master)?;
            if let Some(owner) = netlink::owner(&master) {
                return Err(claim::taken(&owner));
            }
        }
        let claim = Claim::take(self.ifindex)?;
        if let Some(other) = claim::others_on(self.ifindex).first() {
            return Err(claim::taken(other));
        }
        *known.lock() = claim.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Ok(claim)
    }

    pub(crate) fn state(&self) -> io::Result<State> {
        let link = self.link()?;
        // Drivers without an answer are common (TAP, bridges).
        let settings = sys::ethtool::link_settings(self.ethtool.as_fd(), &link.name).unwrap_or_default();
        Ok(State {
            mac: link.mac,
            mtu: link.mtu,
            ifindex: link.ifindex,
            admin_up: link.up,
            carrier: link.carrier,
            link_resets: u64::from(link.carrier_changes),
            speed: settings.speed.map(|mbits| u64::from(mbits) * 1_000_000),
            full_duplex: settings.full_duplex,
        })
    }

    /// See [`crate::Netdev::carrier`].
    pub(crate) fn carrier(&self) -> Option<bool> {
        Some(self.link().ok()?.carrier)
    }

    /// See [`crate::Netdev::link_by_mii`].
    pub(crate) fn link_by_mii(&self) -> Option<bool> {
        sys::mii::link(self.ethtool.as_fd(), &self.name).ok()
    }

    pub(crate) fn set(&self, mtu: Option<u32>, mac: Option<MacAddr>, up: Option<bool>) -> io::Result<()> {
        netlink::set_link(&mut self.netlink.lock(), self.ifindex, mtu, mac, up)
    }

    /// The number of receive queues, if the driver reports it.
    pub(crate) fn receive_queues(&self) -> Option<u32> {
        let queues = sys::ethtool::receive_queues(self.ethtool.as_fd(), &self.name).ok();
        queues.filter(|queues| *queues > 0)
    }

    /// The NUMA node of the hardware; `None` if it has none, or the machine only one.
    pub(crate) fn numa_node(&self) -> Option<usize> {
        let path = format!("/sys/class/net/{}/device/numa_node", self.name);
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    pub(crate) fn status(&self) -> BTreeMap<String, String> {
        let info = sys::ethtool::driver_info(self.ethtool.as_fd(), &self.name).unwrap_or_default();
        [
            ("driver_name", info.driver),
            ("driver_version", info.version),
            ("firmware_version", info.firmware),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

/// Others that use a device of this process, or have asked for it since the last call.
pub(crate) fn contenders(device: &KernelDevice, claim: &Mutex<Weak<Claim>>) -> Vec<String> {
    let mut found = claim::others_on(device.ifindex);
    if let Some(claim) = claim.lock().upgrade() {
        found.extend(claim.askers());
    }
    found
}

/// Refuses names that the kernel refuses for devices.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let bad = name.is_empty()
        || name.len() > 15
        || name == "."
        || name == ".."
        || name
            .chars()
            .any(|c| c == '/' || c == ':' || c == '%' || c.is_whitespace() || c == '\0');
    if bad {
        Err(Error::BadName(name.to_owned()))
    } else {
        Ok(())
    }
}
