//! What happens to tables of the kernel's firewall (`linux/netfilter/nf_tables.h`).

use super::{Message, Netlink};
use rustix::net::netlink;
use std::io;

/// `NFT_MSG_GETTABLE` of the subsystem `NFNL_SUBSYS_NFTABLES`.
const GET_TABLE: u16 = 10 << 8 | 1;
/// `NFT_MSG_DELTABLE` of the subsystem `NFNL_SUBSYS_NFTABLES`.
const DELETE_TABLE: u16 = 10 << 8 | 2;
/// The bit of the group `NFNLGRP_NFTABLES`.
const GROUP: u32 = 1 << 6;
/// `struct nfgenmsg` with the family `NFPROTO_INET`.
const OF_INET: [u8; 4] = [1, 0, 0, 0];
const NFTA_TABLE_NAME: u16 = 1;

/// A socket that hears of changes.
pub(crate) fn subscribe() -> io::Result<Netlink> {
    Netlink::subscribe_of(Some(netlink::NETFILTER), GROUP)
}

/// Whether there is a table of that name, of the family `inet`. No where the kernel does not say.
pub(crate) fn exists(table: &str) -> bool {
    let ask = Message::new(GET_TABLE, 0, &OF_INET).text(NFTA_TABLE_NAME, table);
    let asked = Netlink::open_of(Some(netlink::NETFILTER)).and_then(|mut socket| socket.request(ask));
    asked.is_ok()
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
