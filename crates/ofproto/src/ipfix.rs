//! Statistics of IPFIX (NXST_IPFIX_BRIDGE and NXST_IPFIX_FLOW).

use crate::agent::Core;
use crate::conn::Conn;
use crate::env::Env;
use openflow::OfError;
use openflow::model::{Body, StatsReply};

/// Sets of collectors in a part of a reply.
const SETS: usize = 512;

impl Core {
    /// Answers with the statistics of the bridge's exporter, or of each set of collectors.
    pub(crate) fn ipfix(&self, conn: &mut Conn, xid: u32, sets: bool, env: &impl Env) -> Result<(), OfError> {
        let all = env.ipfix(&self.config.bridge, sets);
        let first = all.first().ok_or(OfError::NxStNotConfigured)?;
        if !sets {
            let reply = StatsReply::IpfixBridge(*first);
            conn.send(xid, Body::StatsReply { more: false, reply });
            return Ok(());
        }
        let mut parts = all.chunks(SETS).peekable();
        while let Some(part) = parts.next() {
            let more = parts.peek().is_some();
            let reply = StatsReply::IpfixFlow(part.to_vec());
            conn.send(xid, Body::StatsReply { more, reply });
        }
        Ok(())
    }
}
