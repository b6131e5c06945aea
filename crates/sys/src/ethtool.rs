//! Queries to device drivers (`SIOCETHTOOL`).

use crate::error::{Error, Result, check};
use crate::tap::interface_request;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A driver's names and versions, each empty if it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverInfo {
    /// The driver.
    pub driver: String,
    /// Its version.
    pub version: String,
    /// The firmware's version.
    pub firmware: String,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSettings {
    /// Mbit/s, where known.
    pub speed: Option<u32>,
    /// Full duplex, if it is known.
    pub full_duplex: Option<bool>,
}

const ETHTOOL_GSET: u32 = 0x1;
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GLINK: u32 = 0xa;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GFLAGS_UNKNOWN_SPEED: u32 = u32::MAX;

/// `struct ethtool_drvinfo`.
#[repr(C)]
struct DrvInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    eeprom: [u8; 32],
    _reserved: [u8; 12],
    _counts: [u32; 5],
}

/// `struct ethtool_cmd`.
#[repr(C)]
struct Cmd {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex: u8,
    port: u8,
    phy_address: u8,
    transceiver: u8,
    autoneg: u8,
    mdio_support: u8,
    max_tx_packets: u32,
    max_rx_packets: u32,
    speed_high: u16,
    mdix: u8,
    mdix_control: u8,
    lp_advertising: u32,
    _reserved: [u32; 2],
}

/// `struct ethtool_channels`: first the maximum numbers, then the present ones.
#[repr(C)]
struct Channels {
    command: u32,
    _most: [u32; 4],
    rx: u32,
    _tx: u32,
    _other: u32,
    combined: u32,
}

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Structures of integers for which all-zero bytes are a value. The first word is the command,
/// which says what the kernel reads and writes.
///
/// # Safety
/// The type has the layout of the command in its first word.
unsafe trait Request {
    fn command(&mut self) -> &mut u32;
}

// SAFETY: the layout is that of `ETHTOOL_GDRVINFO`, the only command it is used with.
unsafe impl Request for DrvInfo {
    fn command(&mut self) -> &mut u32 {
        &mut self.command
    }
}

// SAFETY: the layout is that of `ETHTOOL_GSET`, the only command it is used with.
unsafe impl Request for Cmd {
    fn command(&mut self) -> &mut u32 {
        &mut self.command
    }
}

// SAFETY: the layout is that of `ETHTOOL_GCHANNELS`, the only command it is used with.
unsafe impl Request for Channels {
    fn command(&mut self) -> &mut u32 {
        &mut self.command
    }
}

// SAFETY: the layout is that of `ETHTOOL_GLINK`, the only command it is used with.
unsafe impl Request for Value {
    fn command(&mut self) -> &mut u32 {
        &mut self.command
    }
}

/// Queries whether a device has a link. `socket` is any socket of the device's network namespace.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` if the driver does not support the query, `ENODEV` if the device does
/// not exist.
pub(crate) fn link(socket: BorrowedFd<'_>, name: &str) -> Result<bool> {
    let value: Value = request("ioctl(ETHTOOL_GLINK)", socket, name, ETHTOOL_GLINK)?;
    Ok(value.data != 0)
}

/// Queries the number of a device's receive queues. `socket` is any socket of the device's network
/// namespace.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` if the driver does not support the query, `ENODEV` if the device does
/// not exist.
pub fn receive_queues(socket: BorrowedFd<'_>, name: &str) -> Result<u32> {
    let channels: Channels = request("ioctl(ETHTOOL_GCHANNELS)", socket, name, ETHTOOL_GCHANNELS)?;
    Ok(channels.rx.saturating_add(channels.combined))
}

/// Queries a driver's name and versions. `socket` is any socket of the device's network namespace.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` if the driver does not support the query, `ENODEV` if the device does
/// not exist.
pub fn driver_info(socket: BorrowedFd<'_>, name: &str) -> Result<DriverInfo> {
    let info: DrvInfo = request("ioctl(ETHTOOL_GDRVINFO)", socket, name, ETHTOOL_GDRVINFO)?;
    Ok(DriverInfo {
        driver: text(&info.driver),
        version: text(&info.version),
        firmware: text(&info.firmware),
    })
}

/// Queries a link's speed and duplex. `socket` is any socket of the device's network namespace.
///
/// # Errors
/// The kernel's: `EOPNOTSUPP` if the driver does not support the query, `ENODEV` if the device does
/// not exist.
pub fn link_settings(socket: BorrowedFd<'_>, name: &str) -> Result<LinkSettings> {
    let settings: Cmd = request("ioctl(ETHTOOL_GSET)", socket, name, ETHTOOL_GSET)?;
    let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    let unknown = speed == 0 || speed == ETHTOOL_GFLAGS_UNKNOWN_SPEED || speed == u32::from(u16::MAX);
    Ok(LinkSettings {
        speed: (!unknown).then_some(speed),
        full_duplex: match settings.duplex {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
    })
}

fn request<T: Request>(call: &'static str, socket: BorrowedFd<'_>, name: &str, command: u32) -> Result<T> {
    let mut interface = interface_request(name).ok_or(Error {
        call,
        source: std::io::Error::from_raw_os_error(libc::ENODEV),
    })?;
    // SAFETY: all-zero bytes are a value of every `Request`.
    let mut request: T = unsafe { zeroed() };
    *request.command() = command;
    interface.ifr_ifru.ifru_data = (&raw mut request).cast();
    // SAFETY: the kernel reads the `ifreq`, and reads and writes the structure that it points to,
    // within the length of `T` (the promise of `Request`); both live through the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut interface) };
    check(call, result)?;
    Ok(request)
}

/// The text before the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
