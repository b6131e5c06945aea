//! Why a datapath dropped a packet.

/// A counted cause of a drop. Every packet that a datapath receives and does not send anywhere
/// counts under exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropCause {
    /// Shorter than its headers say, or not Ethernet.
    Malformed,
    /// The translation is an empty action list, for one of the reasons below or because no port is
    /// left to send to.
    NoDestination,
    /// The VLAN is not carried by the port it came in on (IEEE 802.1Q §8.6.2 ingress filtering).
    VlanFiltered,
    /// A reserved multicast address (IEEE 802.1Q table 8-1) that the bridge does not forward.
    ReservedMulticast,
    /// It came back to the port of its source.
    Loop,
    /// A bridge with `fail_mode=secure` has no rule for it.
    NoRule,
    /// The port's budget of upcalls was spent; or the tables were locked for a change and the queue
    /// of waiting packets was full; or its translation takes long, and the port or all ports
    /// together wait for too many of these.
    UpcallBudget,
    /// The egress device did not accept it: its queue was full.
    DeviceFull,
    /// The egress device refused it with an error.
    DeviceError,
    /// The egress port is gone or down.
    PortDown,
    /// Longer than the egress device can take, and not to be segmented.
    TooBig,
    /// The budget or the queue for copies to controllers was full.
    ControllerBudget,
    /// The budget for packets of control protocols was spent, or the switch does not speak the
    /// protocol.
    ProtocolBudget,
    /// A meter's band dropped it.
    Meter,
    /// It was recirculated too often.
    Recirculation,
    /// A policer had no tokens for it: at its ingress port or its egress port.
    Policed,
    /// The queue of its egress port was full, or its flow's part of the queue.
    QueueFull,
    /// It had waited too long in the queue of its egress port (CoDel).
    QueueDelay,
    /// The egress port is configured to lose packets (netem).
    QueueLoss,
    /// Its queue or its port was removed while it waited.
    QueueRemoved,
    /// Its translation reached a limit: depth (a loop of patch ports or of rules), lookups, work.
    TranslationLimit,
    /// Recirculation needed a handle, and its bridge was at its limit.
    HandleLimit,
    /// It came in on the output port of a mirror, which takes no part in switching.
    MirrorOutput,
    /// The budget or the queue for samples was full: a sample for collectors was lost, not the
    /// packet.
    SampleBudget,
    /// A port that does not forward: its spanning tree blocks it.
    Blocked,
    /// A host behind the port must not send it: DHCP snooping, ARP inspection.
    PortSecurity,
    /// Its source is one too many at its port, or sticky at another port; or such a source has shut
    /// its port.
    MacLimit,
    /// Broadcast, multicast or unknown unicast beyond the limit of its ingress port.
    StormControl,
    /// A tunnel's outer headers contradict themselves or the bytes.
    TunnelMalformed,
    /// A checksum in a tunnel's outer headers is wrong.
    TunnelChecksum,
    /// A fragment of a packet with a tunnel's outer headers.
    TunnelFragment,
    /// A tunnel's outer headers ask for what its port does not support.
    TunnelUnsupported,
    /// The outer source is no unicast address.
    TunnelSource,
    /// Congestion marks of the outer header that the inner one cannot have (RFC 6040 §4.2).
    TunnelEcn,
    /// It came through a tunnel that no port is configured for.
    NoTunnel,
    /// No route leads to the other end of its tunnel, or the options of the tunnel do not allow the
    /// packet.
    TunnelRoute,
    /// The next hop to the other end of its tunnel has not answered yet.
    TunnelNeighbour,
    /// With outer headers it is longer than the path to the other end of its tunnel takes. Its
    /// sender gets an ICMP error if there is one for the packet.
    TunnelTooBig,
    /// Its tunnel has IPsec, and it came without, or would leave without.
    TunnelNotEncrypted,
    /// A policy of the host refused it: of IPsec, or of the firewall.
    HostPolicy,
    /// A fragment of a packet to track: it contradicts another one, or its datagram did not become
    /// whole.
    Fragment,
    /// Its type is one that an action or a port does not take.
    PacketType,
}

impl DropCause {
    /// Every cause, in the order of their numbers.
    pub const ALL: [DropCause; 42] = [
        DropCause::Malformed,
        DropCause::NoDestination,
        DropCause::VlanFiltered,
        DropCause::ReservedMulticast,
        DropCause::Loop,
        DropCause::NoRule,
        DropCause::UpcallBudget,
        DropCause::DeviceFull,
        DropCause::DeviceError,
        DropCause::PortDown,
        DropCause::TooBig,
        DropCause::ControllerBudget,
        DropCause::ProtocolBudget,
        DropCause::Meter,
        DropCause::Recirculation,
        DropCause::Policed,
        DropCause::QueueFull,
        DropCause::QueueDelay,
        DropCause::QueueLoss,
        DropCause::QueueRemoved,
        DropCause::TranslationLimit,
        DropCause::HandleLimit,
        DropCause::MirrorOutput,
        DropCause::SampleBudget,
        DropCause::Blocked,
        DropCause::PortSecurity,
        DropCause::MacLimit,
        DropCause::StormControl,
        DropCause::TunnelMalformed,
        DropCause::TunnelChecksum,
        DropCause::TunnelFragment,
        DropCause::TunnelUnsupported,
        DropCause::TunnelSource,
        DropCause::TunnelEcn,
        DropCause::NoTunnel,
        DropCause::TunnelRoute,
        DropCause::TunnelNeighbour,
        DropCause::TunnelTooBig,
        DropCause::TunnelNotEncrypted,
        DropCause::HostPolicy,
        DropCause::Fragment,
        DropCause::PacketType,
    ];

    /// The name in `coverage/show`, `dpctl/show -s` and `Interface.statistics`.
    pub const fn name(self) -> &'static str {
        match self {
            DropCause::Malformed => "drop_malformed",
            DropCause::NoDestination => "drop_no_destination",
            DropCause::VlanFiltered => "drop_vlan_filtered",
            DropCause::ReservedMulticast => "drop_reserved_multicast",
            DropCause::Loop => "drop_loop",
            DropCause::NoRule => "drop_no_rule",
            DropCause::UpcallBudget => "drop_upcall_budget",
            DropCause::DeviceFull => "drop_device_full",
            DropCause::DeviceError => "drop_device_error",
            DropCause::PortDown => "drop_port_down",
            DropCause::TooBig => "drop_too_big",
            DropCause::ControllerBudget => "drop_controller_budget",
            DropCause::ProtocolBudget => "drop_protocol_budget",
            DropCause::Meter => "drop_meter",
            DropCause::Recirculation => "drop_recirculation",
            DropCause::Policed => "drop_policed",
            DropCause::QueueFull => "drop_queue_full",
            DropCause::QueueDelay => "drop_queue_delay",
            DropCause::QueueLoss => "drop_queue_loss",
            DropCause::QueueRemoved => "drop_queue_removed",
            DropCause::TranslationLimit => "drop_translation_limit",
            DropCause::HandleLimit => "drop_handle_limit",
            DropCause::MirrorOutput => "drop_mirror_output",
            DropCause::SampleBudget => "drop_sample_budget",
            DropCause::Blocked => "drop_blocked",
            DropCause::PortSecurity => "drop_port_security",
            DropCause::MacLimit => "drop_mac_limit",
            DropCause::StormControl => "drop_storm_control",
            DropCause::TunnelMalformed => "drop_tunnel_malformed",
            DropCause::TunnelChecksum => "drop_tunnel_checksum",
            DropCause::TunnelFragment => "drop_tunnel_fragment",
            DropCause::TunnelUnsupported => "drop_tunnel_unsupported",
            DropCause::TunnelSource => "drop_tunnel_source",
            DropCause::TunnelEcn => "drop_tunnel_ecn",
            DropCause::NoTunnel => "drop_no_tunnel",
            DropCause::TunnelRoute => "drop_tunnel_route",
            DropCause::TunnelNeighbour => "drop_tunnel_neighbour",
            DropCause::TunnelTooBig => "drop_tunnel_too_big",
            DropCause::TunnelNotEncrypted => "drop_tunnel_not_encrypted",
            DropCause::HostPolicy => "drop_host_policy",
            DropCause::Fragment => "drop_fragment",
            DropCause::PacketType => "drop_packet_type",
        }
    }
}
