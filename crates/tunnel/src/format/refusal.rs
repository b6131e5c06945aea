//! Why the outer headers of a packet are refused.

use std::fmt;

/// Why a packet cannot be decapsulated. Each has one [`Cause`] for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A header is cut short.
    Truncated,
    /// The outer header is neither IPv4 nor IPv6.
    IpVersion,
    /// A length in the outer IP header contradicts the bytes.
    IpLength,
    /// The checksum of the outer IPv4 header is wrong.
    IpChecksum,
    /// The outer source is no unicast address (RFC 1122 §3.2.1.3, RFC 4291 §2.7).
    Source,
    /// An outer fragment: fragments must be reassembled before.
    Fragment,
    /// Another protocol than the format's.
    Protocol,
    /// The length in the outer UDP header contradicts the bytes.
    UdpLength,
    /// The checksum of the outer UDP datagram is wrong.
    UdpChecksum,
    /// VXLAN flags that the port does not know (RFC 7348 §5: reserved).
    VxlanFlags,
    /// The reserved bits behind the VNI are not zero.
    VxlanReserved,
    /// VXLAN-GPE carries something that is not supported.
    VxlanNextProtocol,
    /// A VXLAN-GPE packet for operation and maintenance.
    VxlanOam,
    /// Another version of Geneve than 0.
    GeneveVersion,
    /// Options of Geneve that do not fill their space (RFC 8926 §3.5).
    GeneveOptions,
    /// A protocol type of Geneve that is no EtherType.
    GeneveProtocol,
    /// A critical option of Geneve that nobody knows (RFC 8926 §3.5).
    GeneveCritical,
    /// An option of Geneve whose length is not the one of its field.
    GeneveOptionLength,
    /// Flags or a version of GRE that are not supported.
    GreFlags,
    /// The GRE checksum is wrong.
    GreChecksum,
    /// A protocol type of GRE that is no EtherType.
    GreProtocol,
    /// GRE flags that ERSPAN does not have.
    ErspanFlags,
    /// The version in the ERSPAN header is unknown, or not that of its protocol type.
    ErspanVersion,
    /// An ERSPAN frame type other than Ethernet.
    ErspanFrameType,
    /// Another version of GTP than 1, or GTP'.
    GtpuVersion,
    /// A length in the GTP-U header contradicts the bytes.
    GtpuLength,
    /// No segment routing header.
    Srv6Missing,
    /// Segments are left: this is not the last one.
    Srv6SegmentsLeft,
    /// The segment routing header is longer than it should be, or shorter.
    Srv6Length,
    /// The segment routing header is followed by neither IPv4 nor IPv6.
    Srv6NextHeader,
    /// The inner packet is too short, or not what the header says.
    InnerPacket,
    /// The outer header says that a router had to drop a packet that did not support congestion
    /// marks (RFC 6040 §4.2).
    Ecn,
}

/// Groups of refusals that have a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The headers contradict themselves or the bytes.
    Malformed,
    /// A checksum is wrong.
    Checksum,
    /// A fragment of an outer packet.
    Fragment,
    /// The headers are well-formed and ask for something that the port does not support.
    Unsupported,
    /// A spoofed source.
    Source,
    /// Congestion marks that the inner packet cannot have.
    Ecn,
}

impl Refusal {
    /// The counter of this refusal.
    pub const fn cause(self) -> Cause {
        match self {
            Refusal::Truncated
            | Refusal::IpVersion
            | Refusal::IpLength
            | Refusal::UdpLength
            | Refusal::GeneveOptions
            | Refusal::GeneveOptionLength
            | Refusal::ErspanVersion
            | Refusal::GtpuLength
            | Refusal::Srv6Length
            | Refusal::InnerPacket => Cause::Malformed,
            Refusal::IpChecksum | Refusal::UdpChecksum | Refusal::GreChecksum => Cause::Checksum,
            Refusal::Fragment => Cause::Fragment,
            Refusal::Source => Cause::Source,
            Refusal::Ecn => Cause::Ecn,
            Refusal::Protocol
            | Refusal::VxlanFlags
            | Refusal::VxlanReserved
            | Refusal::VxlanNextProtocol
            | Refusal::VxlanOam
            | Refusal::GeneveVersion
            | Refusal::GeneveProtocol
            | Refusal::GeneveCritical
            | Refusal::GreFlags
            | Refusal::GreProtocol
            | Refusal::ErspanFlags
            | Refusal::ErspanFrameType
            | Refusal::GtpuVersion
            | Refusal::Srv6Missing
            | Refusal::Srv6SegmentsLeft
            | Refusal::Srv6NextHeader => Cause::Unsupported,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Truncated => "an outer header is cut short",
            Refusal::IpVersion => "the outer header is not IP",
            Refusal::IpLength => "the length of the outer IP header is wrong",
            Refusal::IpChecksum => "the checksum of the outer IPv4 header is wrong",
            Refusal::Source => "the outer source is no unicast address",
            Refusal::Fragment => "an outer fragment",
            Refusal::Protocol => "not the protocol of the tunnel",
            Refusal::UdpLength => "the length of the outer UDP header is wrong",
            Refusal::UdpChecksum => "the outer UDP checksum is wrong",
            Refusal::VxlanFlags => "unknown VXLAN flags",
            Refusal::VxlanReserved => "reserved bits of VXLAN are not zero",
            Refusal::VxlanNextProtocol => "unknown next protocol of VXLAN-GPE",
            Refusal::VxlanOam => "a VXLAN-GPE OAM packet",
            Refusal::GeneveVersion => "unknown Geneve version",
            Refusal::GeneveOptions => "malformed Geneve options",
            Refusal::GeneveProtocol => "unknown Geneve protocol type",
            Refusal::GeneveCritical => "an unknown critical Geneve option",
            Refusal::GeneveOptionLength => "a Geneve option of another length than its field",
            Refusal::GreFlags => "unknown GRE flags or version",
            Refusal::GreChecksum => "the GRE checksum is wrong",
            Refusal::GreProtocol => "unknown GRE protocol type",
            Refusal::ErspanFlags => "ERSPAN without a sequence number or with other GRE flags",
            Refusal::ErspanVersion => "unknown ERSPAN version",
            Refusal::ErspanFrameType => "an ERSPAN frame type other than Ethernet",
            Refusal::GtpuVersion => "unknown GTP version",
            Refusal::GtpuLength => "a length in the GTP-U header is wrong",
            Refusal::Srv6Missing => "no segment routing header",
            Refusal::Srv6SegmentsLeft => "not the last segment",
            Refusal::Srv6Length => "the length of the segment routing header is wrong",
            Refusal::Srv6NextHeader => "segment routing of something else than IP",
            Refusal::InnerPacket => "the inner packet is not what the header says",
            Refusal::Ecn => "congestion experienced, but the inner packet has no ECN",
        })
    }
}

impl std::error::Error for Refusal {}
