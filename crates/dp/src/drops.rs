//! Why a datapath dropped a packet.

/// A counted cause of a drop. Every packet that a datapath receives and does not send anywhere has
/// exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DropCause {
    /// Shorter than its headers say, or not Ethernet.
    Malformed,
    /// The translation is an empty action list, for the reasons below or because no port is left to
    /// send to.
    NoDestination,
    /// The VLAN is not carried by the port it came in on (IEEE 802.1Q §8.6.2 ingress filtering).
    VlanFiltered,
    /// A reserved multicast address (IEEE 802.1Q table 8-1) that the bridge does not forward.
    ReservedMulticast,
    /// It came back to the port of its source.
    Loop,
    /// A bridge with `fail_mode=secure` has no rule for it.
    NoRule,
    /// The port's budget of upcalls was spent, or the tables were being changed, and no more
    /// packets could wait; or its translation takes long, and the port or all ports together have
    /// asked for too many that do.
    UpcallBudget,
    /// The egress device did not take it: its queue was full.
    DeviceFull,
    /// The egress device refused it with an error.
    DeviceError,
    /// The egress port is gone or down.
    PortDown,
    /// Longer than the egress device can take, and not to be segmented.
    TooBig,
    /// A copy for a controller was more than its budget or its queue takes.
    ControllerBudget,
    /// A control protocol's packet was more than the budget takes, or nobody speaks the protocol.
    ProtocolBudget,
    /// A meter's band dropped it.
    Meter,
    /// It was recirculated too often.
    Recirculation,
    /// A policer found no tokens for it: of the port it came in by, or of the one it was to leave
    /// by.
    Policed,
    /// The queue of its egress port was full, or its flow's part of it.
    QueueFull,
    /// It had stood too long in the queue of its egress port (CoDel).
    QueueDelay,
    /// The egress port loses packets as it is configured to (netem).
    QueueLoss,
    /// Its queue was taken away, or the port with it, while it waited.
    QueueRemoved,
    /// Its translation reached a limit: depth (a loop of patch ports or of rules), lookups, work.
    TranslationLimit,
    /// To recirculate it needed a handle, and its bridge has as many in use as it may.
    HandleLimit,
}

impl DropCause {
    /// Every cause, in the order of their numbers.
    pub const ALL: [DropCause; 22] = [
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
    ];

    /// The name under which `coverage/show`, `dpctl/show -s` and `Interface.statistics` count it.
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
        }
    }
}
