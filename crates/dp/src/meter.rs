//! Meters (OpenFlow 1.3 §5.7): they measure a rate of packets and limit it.

use crate::DropCause;

/// The number of meters for rules; their numbers are less.
pub const MAX_METERS: u32 = 1 << 18;

/// The number of meters for storm control of ports; their numbers begin at [`MAX_METERS`].
pub const MAX_PORT_METERS: u32 = 1 << 20;

/// Most bands of one meter.
pub const MAX_BANDS: usize = 8;

/// A meter's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// The unit of its rates.
    pub unit: MeterUnit,
    /// If the rate exceeds that of several bands, the one with the highest rate acts.
    pub bands: Vec<Band>,
    /// What the datapath counts dropped packets under.
    pub cause: DropCause,
}

/// The unit of a meter's rates. A segment that a device will cut counts as the packets that the
/// device makes, with all their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Kilobits per second, 1 000 bits each, from the Ethernet header on without FCS.
    Kbps,
    /// Packets per second.
    Pktps,
}

/// One rate of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    /// The rate above which the band acts.
    pub rate: u32,
    /// The burst in kilobits or packets. 0 means one second at the rate.
    pub burst: u32,
    /// The band's effect.
    pub effect: BandEffect,
}

/// The effect of a band on packets that exceed its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandEffect {
    /// Drops them.
    Drop,
    /// Raises the drop precedence in the assured forwarding class (RFC 2597 §6) by this many
    /// levels, at most to the third. Packets of other classes stay as they are.
    DscpRemark(u8),
}

/// A meter's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Packets measured.
    pub packets: u64,
    /// Bytes measured.
    pub bytes: u64,
    /// The counters of each band.
    pub bands: Vec<BandStats>,
}

/// The packets that a band acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandStats {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}
