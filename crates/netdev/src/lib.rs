//! Network devices.
//!
//! A [`Netdev`] is a device as the control plane sees it; a worker opens its [`Rx`] and [`Tx`] and
//! moves batches of [`Frame`]s, packets in pooled buffers that carry their [`Offload`]s with them.
//!
//! Invariants
//! - Nothing here waits: receiving returns the packets that are there; sending drops and counts the
//!   packets that the device does not take.
//! - A receive queue returns a packet as it was on the wire, VLAN tags included. A pending checksum
//!   or segmentation is in the frame's `offload` and refers to offsets in the frame's data,
//!   whatever tags are pushed or popped.
//! - If a device does not support a frame's offloads ([`Gso`]), software completes the frame; it is
//!   never sent incomplete.

mod afxdp;
pub mod checksum;
mod claim;
mod device;
mod dummy;
mod frame;
pub mod gso;
mod host_tunnel;
pub mod ipsec;
mod isolation;
mod kernel;
mod memory;
mod monitor;
mod netlink;
mod offload;
mod pcap;
mod pool;
pub mod programs;
mod spec;
mod system;
mod tap;
mod vnet;

pub use afxdp::{Afxdp, AfxdpConfig, XdpMode};
pub use device::{DeviceDrops, IngressPrograms, Kept, Kind, Netdev, Rx, State, Tx, TxReport};
pub use dummy::{Dummy, DummyKind};
pub use frame::{Frame, FrameError};
pub use host_tunnel::{HostTunnel, HostTunnelConfig, OnTooBig, path_mtu};
pub use isolation::{Isolation, LeftDevice, forget_left, has_left, remove_leftovers, take_over};
pub use memory::Memory;
pub use monitor::{LinkEvent, LinkMonitor, RouteMonitor, list_links};
pub use netlink::{KernelRoute, KernelRule, Link, address_of, addresses_of, routes, rules};
pub use offload::{Csum, Gso, Offload};
pub use spec::{Error, Spec, may_pass, open};
pub use system::System;
pub use tap::Tap;
