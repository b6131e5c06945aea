//! What happens to tables of the kernel's firewall (`linux/netfilter/nf_tables.h`).

use super::Netlink;
use rustix::net::netlink;
use std::io;

/// `NFT_MSG_DELTABLE` of the subsystem `NFNL_SUBSYS_NFTABLES`.
const DELETE_TABLE: u16 = 10 << 8 | 2;
/// The bit of the group `NFNLGRP_NFTABLES`.
const GROUP: u32 = 1 << 6;

/// A socket that hears of changes.
pub(crate) fn subscribe() -> io::Result<Netlink> {
    Netlink::subscribe_of(Some(netlink::NETFILTER), GROUP)
}

/// Whether a notification says that a table of that name has been deleted.
pub(crate) fn deletes(kind: u16, content: &[u8], table: &str) -> bool {
    // Names end with a zero.
    let name = content.windows(table.len() + 1);
    kind == DELETE_TABLE
        && name
            .into_iter()
            .any(|part| part.strip_suffix(&[0]) == Some(table.as_bytes()))
}
