//! Asking the filter about packets that no device has received.

use super::super::{BPF_PROG_TYPE_SCHED_CLS, bpf_mut, load};
use super::{FILTER, Ways};
use crate::error::Result;
use std::os::fd::{AsRawFd, OwnedFd};

/// A port's filter, to be asked about packets that no device has received.
pub struct Probe {
    program: OwnedFd,
}

/// The part of `union bpf_attr` for `BPF_PROG_TEST_RUN` that is used.
#[repr(C)]
struct TestAttr {
    program: u32,
    result: u32,
    len: u32,
    len_out: u32,
    data: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

impl Ways {
    /// For tests of the filter.
    ///
    /// # Errors
    /// The kernel's.
    pub fn probe(&self, port: u32) -> Result<Probe> {
        // Only a program for an ingress is run on the whole packet.
        let program = load(FILTER, BPF_PROG_TYPE_SCHED_CLS, 0, 0, &self.filter(port))?;
        Ok(Probe { program })
    }
}

impl Probe {
    /// Whether a packet without a tag goes a way, and is counted.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for a packet without an Ethernet header.
    pub fn takes(&self, packet: &[u8]) -> Result<bool> {
        const BPF_PROG_TEST_RUN: libc::c_int = 10;
        let mut attr = TestAttr {
            program: self.program.as_raw_fd().cast_unsigned(),
            result: 0,
            len: packet.len() as u32,
            len_out: 0,
            data: packet.as_ptr() as u64,
            data_out: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: the kernel reads the attributes and so many bytes of the packet, and writes into
        // the attributes alone, to which nothing else refers; all live through the call.
        unsafe { bpf_mut("bpf(BPF_PROG_TEST_RUN)", BPF_PROG_TEST_RUN, &mut attr) }?;
        Ok(attr.result == 0)
    }
}
