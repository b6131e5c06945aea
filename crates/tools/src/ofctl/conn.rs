//! Connections to switches: the socket that a name means, the version and flow format in use, and
//! requests with their replies.

use super::{Ctl, target};
use crate::common::Failure;
use mgmt::vconn::{Stream, Vconn, is_error, xid_of};
use mgmt::{os_text, paths};
use openflow::model::{Body, Message, StatsRequest};
use openflow::text::Protocols;
use openflow::{Codec, Version};
use std::io::{self, ErrorKind};

/// The socket to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The switch's management socket.
    Management,
    /// Its snoop socket: the messages between switch and controllers.
    Snoop,
}

/// A connection with a negotiated version.
#[derive(Debug)]
pub(crate) struct Conn {
    /// The peer's name, as `unix:FILE`.
    pub(crate) name: String,
    pub(crate) version: Version,
    /// The flow format in force.
    pub(crate) protocol: Protocols,
    pub(crate) vconn: Vconn,
}

impl Ctl {
    /// Connects to a switch's management socket.
    pub(crate) fn open(&self, target: &str) -> Result<Conn, Failure> {
        self.open_for(target, Target::Management)
    }

    /// The stream to a target, which is a connection method, a socket, a bridge or `TYPE@BRIDGE`,
    /// and its name.
    fn reach(&self, target: &str, suffix: &str) -> Result<(String, Stream), Failure> {
        if target.contains(':') {
            let connected = target::connect(target, &self.options.tls);
            let failed = |e: io::Error| Failure::new(format!("connecting to {target} ({})", os_text(&e)));
            return Ok((target.to_owned(), connected.map_err(failed)?));
        }
        let bridge = target.split_once('@').map_or(target, |(_, bridge)| bridge);
        let socket = |name: &str| paths::rundir().join(format!("{name}.{suffix}")).display().to_string();
        for path in [target.to_owned(), socket(target), socket(bridge)] {
            match target::unix(&paths::in_rundir(&path)) {
                Ok(stream) => return Ok((format!("unix:{path}"), stream)),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(Failure::new(format!("{path}: failed to open socket ({})", os_text(&e)))),
            }
        }
        Err(Failure::new(format!("{target} is not a bridge or a socket")))
    }

    /// Connects to a switch.
    pub(crate) fn open_for(&self, target: &str, what: Target) -> Result<Conn, Failure> {
        let suffix = match what {
            Target::Management => "mgmt",
            Target::Snoop => "snoop",
        };
        let (name, stream) = self.reach(target, suffix)?;
        let mut conn = Conn {
            name: name.clone(),
            version: Version::V10,
            protocol: Protocols::NONE,
            vconn: Vconn::new(stream),
        };
        let agreed = conn.vconn.agree(&name, self.xid(), self.options.versions);
        let failed = |e: io::Error| Failure::new(format!("{target}: failed to connect to socket ({})", reason(&e)));
        conn.version = agreed.map_err(failed)?;
        conn.protocol = Protocols::of(conn.version).iter().next().unwrap_or_default();
        Ok(conn)
    }
}

impl Conn {
    /// The codec of the version and flow format in use.
    pub(crate) fn codec(&self) -> Codec {
        let either = |set: Protocols| !(self.protocol & set).is_empty();
        Codec {
            nxm: either(Protocols::NXM_ANY),
            table_id: either(Protocols::OF10_TABLE | Protocols::NXM_TABLE),
            ..Codec::new(self.version)
        }
    }

    /// A message's bytes.
    pub(crate) fn encode(&self, xid: u32, body: Body) -> Vec<u8> {
        self.codec().encode(&Message { xid, body })
    }

    /// The failure for an I/O error.
    pub(crate) fn talking(&self, e: io::Error) -> Failure {
        Failure::new(format!("talking to {} ({})", self.name, reason(&e)))
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn transact(&mut self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        let wanted = xid_of(request);
        let vconn = &mut self.vconn;
        let replied = vconn
            .send(request)
            .and_then(|()| vconn.await_reply(|message| (xid_of(message) == wanted).then(|| message.to_vec())));
        replied.map_err(|e| self.talking(e))
    }

    /// Sends a request that is answered only on failure, then waits for a barrier. Returns the
    /// error.
    pub(crate) fn transact_noreply(&mut self, ctl: &Ctl, request: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let barrier = ctl.xid();
        let mut bytes = request.to_vec();
        bytes.extend(self.encode(barrier, Body::BarrierRequest));
        let wanted = xid_of(request);
        let mut error = None;
        let done = self.vconn.send(&bytes).and_then(|()| {
            self.vconn.await_reply(|message| match xid_of(message) {
                xid if xid == barrier => Some(()),
                xid if xid == wanted => {
                    error.get_or_insert_with(|| message.to_vec());
                    None
                }
                _ => None,
            })
        });
        done.map(|()| error).map_err(|e| self.talking(e))
    }

    /// Sends a statistics request and passes each part of the reply to `heard`; the last part may
    /// be an error.
    pub(crate) fn statistics(
        &mut self,
        ctl: &Ctl,
        request: StatsRequest,
        heard: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let body = Body::StatsRequest { more: false, request };
        let request = self.encode(ctl.xid(), body);
        self.multipart(&request, heard)
    }

    /// As [`Conn::statistics`], for an encoded request.
    pub(crate) fn multipart(
        &mut self,
        request: &[u8],
        mut heard: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let wanted = xid_of(request);
        let failed = |e: io::Error| Failure::new(format!("OpenFlow packet receive failed ({})", reason(&e)));
        self.vconn.send(request).map_err(|e| self.talking(e))?;
        let replied = self.vconn.await_reply(|message| {
            if xid_of(message) != wanted {
                return None;
            }
            if let Err(failure) = heard(message) {
                return Some(Err(failure));
            }
            let more = message.get(11).is_some_and(|flags| flags & 1 != 0);
            (is_error(message) || !more).then_some(Ok(()))
        });
        replied.map_err(failed)?
    }
}

/// The system's text of an error; the end of the stream counts as one.
pub(crate) fn reason(e: &io::Error) -> String {
    match e.kind() {
        ErrorKind::UnexpectedEof => "End of file".into(),
        _ => os_text(e),
    }
}
