//! `show`, `dump-desc` and fragment modes.

use super::Ctl;
use super::conn::Conn;
use super::notices::warn;
use super::out::Out;
use crate::common::{Failure, print};
use openflow::Version;
use openflow::model::{Body, Config, Port, StatsRequest};
use openflow::text::print::{message, message_to};

impl Ctl {
    /// A message as text.
    pub(crate) fn text(&self, data: &[u8], names: Option<&openflow::text::Names>) -> String {
        warn(data);
        message(data, names, self.options.verbosity.saturating_add(1))
    }

    /// Sends a statistics request and prints all parts of the reply.
    pub(crate) fn print_statistics(&self, conn: &mut Conn, target: &str, request: StatsRequest) -> Result<(), Failure> {
        let body = Body::StatsRequest { more: false, request };
        let request = conn.encode(self.xid(), body);
        self.print_multipart(conn, target, &request)
    }

    /// As [`Ctl::print_statistics`], for an encoded request.
    pub(crate) fn print_multipart(&self, conn: &mut Conn, target: &str, request: &[u8]) -> Result<(), Failure> {
        let names = self.shown_names(target)?;
        let mut out = Out::default();
        let verbosity = self.options.verbosity.saturating_add(1);
        conn.multipart(request, |part| {
            message_to(&mut out.text, part, names.as_ref(), verbosity);
            out.flow()
        })?;
        out.flush()
    }

    /// Sends a request and prints the reply.
    pub(crate) fn print_answer(&self, conn: &mut Conn, target: &str, request: Body) -> Result<(), Failure> {
        let request = conn.encode(self.xid(), request);
        let reply = conn.transact(&request)?;
        print(&self.text(&reply, self.shown_names(target)?.as_ref()))
    }

    /// Connects, sends a statistics request and prints the reply.
    pub(crate) fn dump(&self, target: &str, request: StatsRequest) -> Result<(), Failure> {
        let mut conn = self.open(target)?;
        self.print_statistics(&mut conn, target, request)
    }

    /// Sends a request that is answered only on failure; then prints the error and fails.
    pub(crate) fn carry_out(&self, conn: &mut Conn, target: &str, request: &[u8]) -> Result<(), Failure> {
        match conn.transact_noreply(self, request)? {
            None => Ok(()),
            Some(error) => self.refused(target, &error),
        }
    }

    /// Prints the error of a refused change.
    pub(crate) fn refused(&self, target: &str, error: &[u8]) -> Result<(), Failure> {
        let names = self.shown_names(target)?;
        warn(error);
        eprint!(
            "{}",
            message(error, names.as_ref(), self.options.verbosity.saturating_add(2))
        );
        Err(Failure::new(""))
    }
}

pub(super) fn show(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let target = &args[0];
    let mut conn = ctl.open(target)?;
    let request = conn.encode(ctl.xid(), Body::FeaturesRequest);
    let reply = conn.transact(&request)?;
    print(&ctl.text(&reply, None))?;
    if conn.version >= Version::V13 {
        ctl.print_statistics(&mut conn, target, StatsRequest::PortDesc(Port::ANY))?;
    }
    drop(conn);
    let mut conn = ctl.open(target)?;
    ctl.print_answer(&mut conn, target, Body::GetConfigRequest)
}

pub(super) fn desc(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    ctl.dump(&args[0], StatsRequest::Desc)
}

/// The fragment modes by number.
const FRAGMENTS: [&str; 4] = ["normal", "drop", "reassemble", "nx-match"];

impl Ctl {
    pub(crate) fn switch_config(&self, conn: &mut Conn) -> Result<Config, Failure> {
        let request = conn.encode(self.xid(), Body::GetConfigRequest);
        let reply = conn.transact(&request)?;
        match conn.codec().decode(&reply).map(|m| m.body) {
            Ok(Body::GetConfigReply(config)) => Ok(config),
            _ => Err(Failure::new(format!("{}: bad reply to config request", conn.name))),
        }
    }

    pub(crate) fn set_switch_config(&self, conn: &mut Conn, target: &str, config: Config) -> Result<(), Failure> {
        let request = conn.encode(self.xid(), Body::SetConfig(config));
        self.carry_out(conn, target, &request)
    }
}

pub(super) fn get_frags(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let mut conn = ctl.open(&args[0])?;
    let config = ctl.switch_config(&mut conn)?;
    print(&format!("{}\n", FRAGMENTS[usize::from(config.flags & 3)]))
}

pub(super) fn set_frags(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (target, mode) = (&args[0], &args[1]);
    let unknown = || Failure::new(format!("{mode}: unknown fragment handling mode"));
    let wanted = FRAGMENTS.iter().position(|name| name == mode).ok_or_else(unknown)? as u16;
    let mut conn = ctl.open(target)?;
    let mut config = ctl.switch_config(&mut conn)?;
    if config.flags & 3 == wanted {
        return Ok(());
    }
    config.flags = config.flags & !3 | wanted;
    ctl.set_switch_config(&mut conn, target, config)?;
    if ctl.switch_config(&mut conn)?.flags & 3 == wanted {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{target}: setting fragment handling mode failed (this switch probably doesn't support mode \"{mode}\")"
    )))
}
