//! Traffic control on a device's ingress: the `clsact` qdisc and BPF filters in it (`tc-bpf(8)`).

use super::message::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, read_u32};
use super::{Attributes, Message, Netlink};
use crate::programs::DROP;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;

const TC_H_CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

/// Every protocol.
const ETH_P_ALL: u16 = 3;

/// Length of `struct tcmsg`.
const FIXED: usize = 20;
/// The handle of our filter within its priority, which identifies it: "oxvs".
const HANDLE: u32 = 0x6f78_7673;

/// A filter of ours on a device's ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Priority and protocol, as the kernel packs them.
    info: u32,
}

/// Gives the device a `clsact` qdisc, unless it has one or an `ingress` qdisc. Returns whether it
/// was made.
pub(crate) fn ensure_clsact(netlink: &mut Netlink, ifindex: u32) -> io::Result<bool> {
    let fixed = fixed(ifindex, CLSACT_HANDLE, TC_H_CLSACT, 0);
    let message = Message::new(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &fixed).text(TCA_KIND, "clsact");
    match netlink.request(message) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the `clsact` qdisc if it has no filter.
pub(crate) fn remove_empty_clsact(netlink: &mut Netlink, ifindex: u32) -> io::Result<()> {
    let mut filters = 0;
    for parent in [INGRESS, EGRESS] {
        dump_filters(netlink, ifindex, parent, |_, _| filters += 1)?;
    }
    if filters > 0 {
        return Ok(());
    }
    let fixed = fixed(ifindex, CLSACT_HANDLE, TC_H_CLSACT, 0);
    netlink.request(Message::new(RTM_DELQDISC, 0, &fixed).text(TCA_KIND, "clsact"))
}

/// Adds a program as a filter that comes before all others and whose verdict is final.
pub(crate) fn add_filter(netlink: &mut Netlink, ifindex: u32, program: BorrowedFd<'_>) -> io::Result<Filter> {
    // Without a priority the kernel chooses one before those in use.
    let info = u32::from(ETH_P_ALL.to_be());
    netlink.request(new_filter(ifindex, info, NLM_F_CREATE | NLM_F_EXCL, program))?;
    find_filter(netlink, ifindex)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Replaces a filter's program.
pub(crate) fn replace_filter(
    netlink: &mut Netlink,
    ifindex: u32,
    filter: Filter,
    program: BorrowedFd<'_>,
) -> io::Result<()> {
    netlink.request(new_filter(ifindex, filter.info, 0, program))
}

fn new_filter(ifindex: u32, info: u32, flags: u16, program: BorrowedFd<'_>) -> Message {
    let fd = program.as_raw_fd().cast_unsigned();
    Message::new(RTM_NEWTFILTER, flags, &fixed(ifindex, HANDLE, INGRESS, info))
        .text(TCA_KIND, "bpf")
        .nest(TCA_OPTIONS, |options| {
            options
                .attribute(TCA_BPF_FD, &fd.to_ne_bytes())
                .text(TCA_BPF_NAME, DROP)
                .attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes())
        })
}

/// The filter of ours that is there, as after a process that was killed.
pub(crate) fn find_filter(netlink: &mut Netlink, ifindex: u32) -> io::Result<Option<Filter>> {
    let mut found = None;
    dump_filters(netlink, ifindex, INGRESS, |handle, info| {
        if handle == HANDLE {
            found = Some(Filter { info });
        }
    })?;
    Ok(found)
}

/// Removes our filter.
pub(crate) fn remove_filter(netlink: &mut Netlink, ifindex: u32, filter: Filter) -> io::Result<()> {
    let fixed = fixed(ifindex, HANDLE, INGRESS, filter.info);
    netlink.request(Message::new(RTM_DELTFILTER, 0, &fixed).text(TCA_KIND, "bpf"))
}

/// Hands each BPF filter's handle and information word to `each`; other kinds with handle 0.
fn dump_filters(netlink: &mut Netlink, ifindex: u32, parent: u32, mut each: impl FnMut(u32, u32)) -> io::Result<()> {
    let message = Message::new(RTM_GETTFILTER, NLM_F_DUMP, &fixed(ifindex, 0, parent, 0));
    netlink.exchange(message, |kind, payload| {
        if kind != RTM_NEWTFILTER {
            return;
        }
        let (Some(handle), Some(info)) = (read_u32(payload, 8), read_u32(payload, 16)) else {
            return;
        };
        let bpf = Attributes::after(payload, FIXED).text(TCA_KIND) == Some("bpf");
        each(if bpf { handle } else { 0 }, info);
    })
}

/// `struct tcmsg`.
fn fixed(ifindex: u32, handle: u32, parent: u32, info: u32) -> [u8; FIXED] {
    let mut bytes = [0; FIXED];
    bytes[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
    bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
    bytes[16..20].copy_from_slice(&info.to_ne_bytes());
    bytes
}
