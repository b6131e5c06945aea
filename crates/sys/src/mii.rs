//! The link of a device as its PHY says, through the MII management interface (IEEE 802.3 §22.2.4).

use crate::error::{Error, Result, check};
use crate::ethtool;
use crate::tap::interface_request;
use std::os::fd::{AsRawFd, BorrowedFd};

const SIOCGMIIPHY: u32 = 0x8947;
const SIOCGMIIREG: u32 = 0x8948;
/// The basic mode status register, and its bit for a link.
const STATUS: u16 = 1;
const LINK: u16 = 1 << 2;

/// `struct mii_ioctl_data`, in the place of an `ifreq`'s union.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    phy: u16,
    register: u16,
    _written: u16,
    read: u16,
}

const _: () = assert!(size_of::<Data>() <= size_of::<libc::__c_anonymous_ifr_ifru>());
const _: () = assert!(align_of::<Data>() <= align_of::<libc::__c_anonymous_ifr_ifru>());

/// Whether a device has a link: by its PHY, or by its driver if it has no PHY that it shows.
/// `socket` is any socket of the device's network namespace.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` if the driver answers neither question, `ENODEV` if the device does
/// not exist.
pub fn link(socket: BorrowedFd<'_>, name: &str) -> Result<bool> {
    match by_phy(socket, name) {
        Ok(link) => Ok(link),
        Err(_) => ethtool::link(socket, name),
    }
}

fn by_phy(socket: BorrowedFd<'_>, name: &str) -> Result<bool> {
    let phy = ask("ioctl(SIOCGMIIPHY)", socket, name, SIOCGMIIPHY, Data::default())?;
    let asked = Data {
        register: STATUS,
        ..phy
    };
    let answer = ask("ioctl(SIOCGMIIREG)", socket, name, SIOCGMIIREG, asked)?;
    Ok(answer.read & LINK != 0)
}

fn ask(call: &'static str, socket: BorrowedFd<'_>, name: &str, command: u32, data: Data) -> Result<Data> {
    let mut interface = interface_request(name).ok_or(Error {
        call,
        source: std::io::Error::from_raw_os_error(libc::ENODEV),
    })?;
    let place = (&raw mut interface.ifr_ifru).cast::<Data>();
    // SAFETY: `Data` is integers without padding, and the assertions above say that it fits the
    // union in size and alignment.
    unsafe { place.write(data) };
    // SAFETY: the kernel reads and writes one `ifreq`, which lives through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), command as _, &raw mut interface) };
    check(call, result)?;
    // SAFETY: as above; any bytes are a value of `Data`.
    Ok(unsafe { place.read() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    use std::os::fd::AsFd;

    #[test]
    fn the_loopback_has_a_link_and_no_phy_and_other_names_are_refused() {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        let no_phy = by_phy(socket.as_fd(), "lo").unwrap_err();
        assert!(no_phy.to_string().starts_with("ioctl(SIOCGMIIPHY)"), "{no_phy}");
        assert!(link(socket.as_fd(), "lo").unwrap());
        for name in ["oxvs-no-such", ""] {
            let error = link(socket.as_fd(), name).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}
