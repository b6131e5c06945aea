//! `dump-flows` and `dump-aggregate`.

use super::Ctl;
use super::conn::Conn;
use super::names::Wanted;
use super::out::Out;
use super::sort::sort;
use crate::common::{Failure, print};
use openflow::model::{Body, FlowStats, FlowStatsRequest, StatsReply, StatsRequest};
use openflow::text::{Protocols, Style, flow_stats, parse_flow_stats_request, put_flow_stats};

impl Ctl {
    /// Parses the request, connects, and agrees on a format for the dump.
    fn prepare(&self, args: &[String]) -> Result<(Conn, FlowStatsRequest), Failure> {
        let target = &args[0];
        let (mut request, usable) = match args.get(1) {
            Some(text) => self.read_with_names(target, Wanted::Both, |names| parse_flow_stats_request(text, names))?,
            None => (FlowStatsRequest::default(), Protocols::ANY),
        };
        let mut conn = self.open(target)?;
        self.set_format_for_dump(&mut conn, usable)?;
        request.nxm = conn.codec().nxm;
        Ok((conn, request))
    }

    /// Dumps rules and calls a function for each.
    pub(crate) fn each_flow(
        &self,
        conn: &mut Conn,
        request: FlowStatsRequest,
        mut tell: impl FnMut(FlowStats) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let codec = conn.codec();
        conn.statistics(self, StatsRequest::Flow(request), |part| {
            match codec.decode(part).map(|m| m.body) {
                Ok(Body::StatsReply {
                    reply: StatsReply::Flow { flows, .. },
                    ..
                }) => flows.into_iter().try_for_each(&mut tell),
                Ok(Body::Error(_)) => {
                    print(&self.text(part, None))?;
                    Err(Failure::new(""))
                }
                Ok(_) => Err(Failure::new(format!("received bad reply: {}", self.text(part, None)))),
                Err(error) => Err(Failure::new(format!(
                    "OpenFlow packet receive failed (decode error: {error})"
                ))),
            }
        })
    }
}

pub(super) fn dump(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (mut conn, request) = ctl.prepare(args)?;
    let names = ctl.shown_names(&args[0])?;
    let options = &ctl.options;
    let plain = options.sort.is_empty() && names.is_none() && options.stats && !options.color;
    if plain {
        return ctl.print_statistics(&mut conn, &args[0], StatsRequest::Flow(request));
    }
    let style = Style {
        version: conn.version,
        names: names.as_ref(),
    };
    let mut out = Out::default();
    if options.sort.is_empty() {
        ctl.each_flow(&mut conn, request, |flow| {
            line(ctl, &mut out, flow, style);
            out.flow()
        })?;
        return out.flush();
    }
    let mut flows = Vec::new();
    ctl.each_flow(&mut conn, request, |flow| {
        flows.push(flow);
        Ok(())
    })?;
    sort(&mut flows, &options.sort);
    for flow in flows {
        line(ctl, &mut out, flow, style);
        out.flow()?;
    }
    out.flush()
}

fn line(ctl: &Ctl, out: &mut Out, flow: FlowStats, style: Style<'_>) {
    // Ages are printed only in the switch's order.
    let flow = FlowStats {
        idle_age: None,
        hard_age: None,
        ..flow
    };
    out.text.push(' ');
    match ctl.options.color {
        true => super::color::flow(&mut out.text, &flow_stats(&flow, ctl.options.stats, style)),
        false => put_flow_stats(&mut out.text, &flow, ctl.options.stats, style),
    }
    out.text.push('\n');
}

pub(super) fn aggregate(ctl: &Ctl, args: &[String]) -> Result<(), Failure> {
    let (mut conn, request) = ctl.prepare(args)?;
    ctl.print_statistics(&mut conn, &args[0], StatsRequest::Aggregate(request))
}
