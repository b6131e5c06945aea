//! Connections as `dpctl/dump-conntrack` prints them.

use crate::connection::{Connection, Protocol};
use crate::tcp::{TcpState, WindowScale};
use crate::tuple::Tuple;
use std::fmt;

/// What a line has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// `-m`: also what the kernel knows and Open vSwitch's userspace datapath has as 0, and both
    /// sides of TCP.
    pub verbose: bool,
    /// `-s`: also the time until it times out.
    pub statistics: bool,
    /// With `-s`, also packets and bytes. Open vSwitch's userspace datapath counts none, its kernel
    /// datapath does.
    pub counters: bool,
}

/// A connection's line, without an end of line.
pub struct Line<'a>(&'a Connection, Style);

impl Connection {
    /// The connection's line in this style.
    pub fn line(&self, style: Style) -> Line<'_> {
        Line(self, style)
    }

    /// One state for both sides of a TCP connection, as the kernel has it; `None` of other
    /// protocols.
    pub fn tcp_state(&self) -> Option<TcpState> {
        match self.protocol {
            Protocol::Tcp { states, .. } => Some(of_both(states)),
            _ => None,
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(connection, style) = *self;
        protocol_name(f, &connection.original)?;
        let directions = [(",orig=(", &connection.original), (",reply=(", &connection.reply)];
        for (side, (name, tuple)) in directions.into_iter().enumerate() {
            f.write_str(name)?;
            tuple_text(f, tuple)?;
            let (packets, bytes) = (connection.packets[side], connection.bytes[side]);
            if style.statistics && style.counters && packets | bytes != 0 {
                write!(f, ",packets={packets},bytes={bytes}")?;
            }
            f.write_str(")")?;
        }
        if style.verbose {
            f.write_str(",id=0")?;
        }
        if connection.zone != 0 {
            write!(f, ",zone={}", connection.zone)?;
        }
        if style.verbose {
            f.write_str(",status=0")?;
        }
        if style.statistics {
            write!(f, ",timeout={}", connection.expires_in.as_secs())?;
        }
        if connection.mark != 0 {
            write!(f, ",mark={}", connection.mark)?;
        }
        if connection.label != 0 {
            write!(f, ",labels={:#x}", connection.label)?;
        }
        protocol_text(f, &connection.protocol, style.verbose)?;
        match connection.helper {
            None => Ok(()),
            Some(helper) => write!(f, ",helper={}", helper.name()),
        }
    }
}

/// The name of the protocol, or its number.
fn protocol_name(f: &mut fmt::Formatter<'_>, tuple: &Tuple) -> fmt::Result {
    let name = match tuple.protocol() {
        1 => "icmp",
        2 => "igmp",
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        58 => "icmpv6",
        132 => "sctp",
        136 => "udplite",
        number => return write!(f, "{number}"),
    };
    f.write_str(name)
}

fn tuple_text(f: &mut fmt::Formatter<'_>, tuple: &Tuple) -> fmt::Result {
    write!(f, "src={},dst={}", tuple.src(), tuple.dst())?;
    match tuple.is_icmp() {
        true => {
            let (kind, code) = tuple.icmp_type_code();
            write!(f, ",id={},type={kind},code={code}", tuple.src_port())
        }
        false => write!(f, ",sport={},dport={}", tuple.src_port(), tuple.dst_port()),
    }
}

fn protocol_text(f: &mut fmt::Formatter<'_>, protocol: &Protocol, verbose: bool) -> fmt::Result {
    match protocol {
        Protocol::Other => Ok(()),
        Protocol::Sctp { state, tags } => {
            write!(f, ",protoinfo=(state={}", state.name())?;
            if verbose {
                write!(f, ",vtag_orig={},vtag_reply={}", tags[0], tags[1])?;
            }
            f.write_str(")")
        }
        Protocol::Tcp { states, scales } if verbose => {
            let [original, reply] = states.map(TcpState::name);
            write!(f, ",protoinfo=(state_orig={original},state_reply={reply}")?;
            let shifts = scales.map(WindowScale::shift);
            if shifts != [0, 0] {
                write!(f, ",wscale_orig={},wscale_reply={}", shifts[0], shifts[1])?;
            }
            let [original, reply] = scales.map(flags);
            write!(f, ",flags_orig={original},flags_reply={reply})")
        }
        Protocol::Tcp { states, .. } => write!(f, ",protoinfo=(state={})", of_both(*states).name()),
    }
}

fn of_both(states: [TcpState; 2]) -> TcpState {
    match states[0].max(states[1]) {
        TcpState::FinWait2 => TcpState::TimeWait,
        state => state,
    }
}

fn flags(scale: WindowScale) -> &'static str {
    match scale {
        WindowScale::None => "0",
        WindowScale::Shift(_) => "WINDOW_SCALE",
        WindowScale::Unknown => "BE_LIBERAL",
    }
}
