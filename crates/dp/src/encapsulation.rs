//! Outer headers of tunnels in actions and in packets' metadata.

use crate::DropCause;
use flow::{PortNo, Tunnel, TunnelDetails};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use tunnel::format::{Cause, Decapsulated, Details, Encapsulation, Erspan, Inner, Kind, Refusal, geneve};
use wire::{EtherType, MacAddr};

/// Length of an Ethernet header.
const ETHERNET: usize = 14;

/// The outer headers that [`Action::TunnelPush`](crate::Action::TunnelPush) puts before packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TunnelPush {
    /// The tunnel's datapath port.
    pub port: PortNo,
    /// The port that the packet then comes in on: the one of the underlay's bridge that has the
    /// outer source address.
    pub underlay: PortNo,
    /// The encapsulation.
    pub kind: Kind,
    /// The headers, with an Ethernet header.
    pub headers: Encapsulation,
    /// The tunnel's sequence numbers, if its packets have them.
    pub sequence: Option<Sequence>,
    /// How long its packets may be; `None` if only an IP packet sets a limit.
    pub limit: Option<PathLimit>,
}

/// The longest packets that get to the other end of a tunnel in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PathLimit {
    /// In bytes from the outer IP header on.
    pub mtu: u16,
    /// Longer packets are fragmented (`df_default=false`).
    pub fragments: bool,
    /// The key of packets that the tunnel receives: an ICMP error to the sender of an inner packet
    /// comes with it, as if the other end had sent it.
    pub id: Option<u64>,
    /// Whether the sender gets an error: not about a mirror's copy.
    pub answers: bool,
}

/// The sequence numbers of a tunnel, for all workers. Two are equal if they are the same.
#[derive(Clone, Debug, Default)]
pub struct Sequence(Arc<AtomicU32>);

impl Sequence {
    /// The next number.
    pub fn next(&self) -> u32 {
        self.0.fetch_add(1, Relaxed)
    }
}

impl PartialEq for Sequence {
    fn eq(&self, other: &Sequence) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Sequence {}

impl Hash for Sequence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Why a packet is dropped whose outer headers were refused.
pub const fn cause_of_refusal(refusal: Refusal) -> DropCause {
    match refusal.cause() {
        Cause::Malformed => DropCause::TunnelMalformed,
        Cause::Checksum => DropCause::TunnelChecksum,
        Cause::Fragment => DropCause::TunnelFragment,
        Cause::Unsupported => DropCause::TunnelUnsupported,
        Cause::Source => DropCause::TunnelSource,
        Cause::Ecn => DropCause::TunnelEcn,
    }
}

/// The metadata of a packet with these outer headers. All packets of a datapath need the same
/// secret.
pub fn tunnel_of(outer: &Decapsulated<'_>, secret: &impl BuildHasher) -> Tunnel {
    let mut tunnel = Tunnel::BLANK;
    write_tunnel(&mut tunnel, outer, secret);
    tunnel
}

/// The same, written to a place that had the metadata of another packet.
#[inline]
pub fn write_tunnel(tunnel: &mut Tunnel, outer: &Decapsulated<'_>, secret: &impl BuildHasher) {
    tunnel.details = match outer.details {
        Details::None | Details::Geneve(_) => TunnelDetails::None,
        Details::Gbp(gbp) => TunnelDetails::Gbp {
            id: gbp.id,
            flags: gbp.flags,
        },
        Details::Erspan(Erspan::V1 { index }) => TunnelDetails::ErspanV1 { index },
        Details::Erspan(Erspan::V2(v2)) => TunnelDetails::ErspanV2 {
            egress: v2.egress,
            hwid: v2.hwid,
        },
        Details::Gtpu(gtpu) => TunnelDetails::Gtpu {
            flags: gtpu.flags,
            message: gtpu.message,
        },
    };
    match outer.details {
        // A packet has no more than fit.
        Details::Geneve(options) => _ = tunnel.options.replace(options.bytes(), secret),
        _ => tunnel.options.clear(),
    }
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    tunnel.id = outer.id.unwrap_or(0);
    (tunnel.src, tunnel.dst) = (outer.src, outer.dst);
    (tunnel.tp_src, tunnel.tp_dst) = (outer.tp_src, outer.tp_dst);
    (tunnel.tos, tunnel.ttl) = (outer.tos, outer.ttl);
    tunnel.flags = flag(outer.csum, Tunnel::CSUM)
        | flag(outer.id.is_some(), Tunnel::KEY)
        | flag(outer.oam, Tunnel::OAM)
        | flag(matches!(outer.inner, Inner::Packet(_)), Tunnel::NO_ETHERNET);
}

/// Prints as Open vSwitch prints the action: `tnl_push(tnl_port(4789),header(size=50,type=4,eth(…),
/// ipv4(…),udp(…),vxlan(…)),out_port(100))`.
impl fmt::Display for TunnelPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.headers.bytes();
        write!(f, "tnl_push(tnl_port({}),header(size={},", self.port, bytes.len())?;
        let is_v6 = bytes.get(12..14) == Some(&EtherType::IPV6.0.to_be_bytes());
        write!(f, "type={},", self.number(is_v6))?;
        self.headers(f, bytes, is_v6).unwrap_or(Ok(()))?;
        write!(f, "),out_port({}))", self.underlay)
    }
}

impl TunnelPush {
    /// Open vSwitch's number of the encapsulation.
    fn number(&self, is_v6: bool) -> u8 {
        match self.kind {
            Kind::Gre if is_v6 => 109,
            Kind::Gre => 3,
            Kind::Vxlan => 4,
            Kind::Geneve => 5,
            Kind::Erspan if is_v6 => 108,
            Kind::Erspan => 107,
            Kind::Gtpu => 110,
            Kind::Bareudp => 111,
            Kind::Srv6 => 112,
        }
    }

    /// `None` if the headers are shorter than their kind: nothing more is printed.
    fn headers(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8], is_v6: bool) -> Option<fmt::Result> {
        let mac = |at: usize| Some(MacAddr(*bytes.get(at..)?.first_chunk()?));
        let (dst, src) = (mac(0)?, mac(6)?);
        let kind = be16(bytes, 12)?;
        let ip = bytes.get(ETHERNET..)?;
        let rest = if is_v6 { ip.get(40..)? } else { ip.get(20..)? };
        let print = |f: &mut fmt::Formatter<'_>| -> fmt::Result {
            write!(f, "eth(dst={dst},src={src},dl_type=0x{kind:04x}),")?;
            if is_v6 {
                let address = |at: usize| {
                    ip[at..]
                        .first_chunk()
                        .map_or(Ipv6Addr::UNSPECIFIED, |b: &[u8; 16]| (*b).into())
                };
                let first = u32::from_be_bytes([ip[0], ip[1], ip[2], ip[3]]);
                write!(f, "ipv6(src={},dst={},", address(8), address(24))?;
                write!(f, "label={},proto={},", first & 0xf_ffff, ip[6])?;
                write!(f, "tclass=0x{:x},hlimit={}),", first >> 20 & 0xff, ip[7])
            } else {
                let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
                write!(f, "ipv4(src={},dst={},", address(12), address(16))?;
                let frag = u16::from_be_bytes([ip[6], ip[7]]);
                write!(f, "proto={},tos={},ttl={},frag=0x{frag:x}),", ip[9], hex(ip[1]), ip[8])
            }
        };
        if let Err(error) = print(f) {
            return Some(Err(error));
        }
        self.body(f, rest)
    }

    fn body(&self, f: &mut fmt::Formatter<'_>, rest: &[u8]) -> Option<fmt::Result> {
        let udp = |f: &mut fmt::Formatter<'_>| -> Option<fmt::Result> {
            let (dst, csum) = (be16(rest, 2)?, u8::from(self.headers.has_checksum()));
            // Open vSwitch has a mark here where a checksum is to be filled in.
            let csum = if csum == 0 { "0x0" } else { "0xffff" };
            Some(write!(f, "udp(src=0,dst={dst},csum={csum})"))
        };
        Some(match self.kind {
            Kind::Vxlan => {
                let (flags, vni) = (be32(rest, 8)?, be32(rest, 12)? >> 8);
                udp(f)?.and_then(|()| write!(f, ",vxlan(flags=0x{flags:x},vni=0x{vni:x})"))
            }
            Kind::Geneve => {
                let (flags, vni) = (*rest.get(9)?, be32(rest, 12)? >> 8);
                let options = rest.get(16..)?;
                udp(f)?.and_then(|()| {
                    f.write_str(",geneve(")?;
                    f.write_str(if flags & 0x80 != 0 { "oam," } else { "" })?;
                    f.write_str(if flags & 0x40 != 0 { "crit," } else { "" })?;
                    write!(f, "vni=0x{vni:x}")?;
                    write_options(f, options)?;
                    f.write_str(")")
                })
            }
            Kind::Bareudp => udp(f)?,
            Kind::Gtpu => {
                let (flags, kind, teid) = (*rest.get(8)?, *rest.get(9)?, be32(rest, 12)?);
                udp(f)?.and_then(|()| write!(f, ",gtpu(flags=0x{flags:x},msgtype={kind},teid=0x{teid:x})"))
            }
            Kind::Gre => {
                let (flags, proto) = (be16(rest, 0)?, be16(rest, 2)?);
                let has = |bit: u16| flags & bit != 0;
                let key = if has(0x2000) {
                    be32(rest, if has(0x8000) { 8 } else { 4 })
                } else {
                    None
                };
                write!(f, "gre((flags=0x{flags:x},proto=0x{proto:x})").and_then(|()| {
                    f.write_str(if has(0x8000) { ",csum=0x0" } else { "" })?;
                    if let Some(key) = key {
                        write!(f, ",key=0x{key:x}")?;
                    }
                    f.write_str(if has(0x1000) { ",seq=0x0)" } else { ")" })
                })
            }
            Kind::Erspan => {
                let word = be16(rest, 8)?;
                let session = be16(rest, 10)? & 0x3ff;
                let index = be32(rest, 12)?;
                if word >> 12 == 1 {
                    write!(f, "erspan(ver=1,sid=0x{session:x},idx=0x{:x})", index & 0xf_ffff)
                } else {
                    let last = be16(rest, 18)?;
                    let (dir, hwid) = (last >> 3 & 1, last >> 4 & 0x3f);
                    write!(f, "erspan(ver=2,sid=0x{session:x},dir={dir},hwid=0x{hwid:x})")
                }
            }
            Kind::Srv6 => {
                let left = *rest.get(3)?;
                let segments = rest.get(8..)?.as_chunks::<16>().0;
                write!(f, "srv6(segments_left={left},segs(").and_then(|()| {
                    for (n, segment) in segments.iter().rev().enumerate() {
                        let comma = if n == 0 { "" } else { "," };
                        write!(f, "{comma}{}", Ipv6Addr::from(*segment))?;
                    }
                    f.write_str("))")
                })
            }
        })
    }
}

fn write_options(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut text = String::new();
    options(&mut text, bytes);
    write!(f, ",options({text})")
}

/// Options as `{class=0x102,type=0x80,len=4,0x10002}`.
fn options(text: &mut String, bytes: &[u8]) {
    for option in geneve::Options::new(bytes).unwrap_or(geneve::Options::NONE).iter() {
        let digits: String = option.data.iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = digits.trim_start_matches('0');
        let prefix = if digits.is_empty() { "0" } else { "0x" };
        let len = option.data.len();
        text.push_str(&format!(
            "{{class=0x{:x},type=0x{:x},len={len},{prefix}{digits}}}",
            option.class, option.kind
        ));
    }
}

/// Hexadecimal as Open vSwitch prints it.
fn hex(value: u8) -> String {
    if value == 0 {
        String::from("0")
    } else {
        format!("0x{value:x}")
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
