//! Flow formats: the message formats in which flows are sent.

use super::Ctl;
use super::conn::Conn;
use crate::common::Failure;
use mgmt::vconn::is_error;
use openflow::Version;
use openflow::model::Body;
use openflow::text::Protocols;

/// Formats for dumps, the best first.
const FOR_DUMPS: [Protocols; 7] = [
    Protocols::OF15,
    Protocols::OF14,
    Protocols::OF13,
    Protocols::OF12,
    Protocols::OF11,
    Protocols::NXM,
    Protocols::OF10,
];

impl Ctl {
    fn none_usable(&self, usable: Protocols) -> Failure {
        let allowed = self.options.protocols;
        Failure::new(match (usable & allowed).is_empty() {
            true => format!("none of the usable flow formats ({usable}) is among the allowed flow formats ({allowed})"),
            false => format!("switch does not support any of the usable flow formats ({usable})"),
        })
    }

    /// Connects to a switch and agrees on one of the `usable` formats for changes.
    pub(crate) fn open_for_change(&self, target: &str, usable: Protocols) -> Result<Conn, Failure> {
        let both = usable & self.options.protocols;
        if both.is_empty() {
            return Err(self.none_usable(usable));
        }
        let mut conn = self.open(target)?;
        if both.has(conn.protocol) {
            return Ok(conn);
        }
        for protocol in both.iter() {
            if self.set_format(&mut conn, protocol)? {
                return Ok(conn);
            }
        }
        Err(self.none_usable(usable))
    }

    /// Checks that one of the `usable` formats may be used, without agreeing on one.
    pub(crate) fn check_formats(&self, usable: Protocols) -> Result<(), Failure> {
        match (usable & self.options.protocols).is_empty() {
            true => Err(self.none_usable(usable)),
            false => Ok(()),
        }
    }

    /// Agrees on the best of the `usable` formats for a dump.
    pub(crate) fn set_format_for_dump(&self, conn: &mut Conn, usable: Protocols) -> Result<(), Failure> {
        let both = usable & self.options.protocols;
        for protocol in FOR_DUMPS.into_iter().filter(|p| both.has(*p)) {
            if self.set_format(conn, protocol)? {
                return Ok(());
            }
        }
        Err(self.none_usable(usable))
    }

    /// Tries to set a format; true if the switch accepts it.
    fn set_format(&self, conn: &mut Conn, wanted: Protocols) -> Result<bool, Failure> {
        if wanted.version() != Some(conn.version) {
            return Ok(false);
        }
        if conn.version != Version::V10 {
            return Ok(true);
        }
        let is_in = |protocol: Protocols, set: Protocols| !(protocol & set).is_empty();
        let tables = Protocols::OF10_TABLE | Protocols::NXM_TABLE;
        let (nxm, table) = (is_in(wanted, Protocols::NXM_ANY), is_in(wanted, tables));
        if is_in(conn.protocol, Protocols::NXM_ANY) != nxm {
            let request = conn.encode(self.xid(), Body::SetFlowFormat { nxm });
            if conn.transact_noreply(self, &request)?.is_some_and(|r| is_error(&r)) {
                return Ok(false);
            }
            conn.protocol = match (nxm, is_in(conn.protocol, tables)) {
                (false, false) => Protocols::OF10,
                (false, true) => Protocols::OF10_TABLE,
                (true, false) => Protocols::NXM,
                (true, true) => Protocols::NXM_TABLE,
            };
        }
        if is_in(conn.protocol, tables) != table {
            let request = conn.encode(self.xid(), Body::FlowModTableId(table));
            if conn.transact_noreply(self, &request)?.is_some_and(|r| is_error(&r)) {
                return Ok(false);
            }
            conn.protocol = wanted;
        }
        Ok(true)
    }
}
