//! Meters (OpenFlow 1.3 §5.7): what measures the rate of packets and does something about too many.

/// Meters have numbers less than this.
pub const MAX_METERS: u32 = 1 << 18;

/// Most bands of one meter.
pub const MAX_BANDS: usize = 8;

/// What a meter measures and does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// What rates count.
    pub unit: MeterUnit,
    /// Where the rate exceeds that of several, the one of the highest rate acts.
    pub bands: Vec<Band>,
}

/// What the rates of a meter count. Of a segment that a device is to cut, the packets that it makes
/// count, and the bytes of all of them.
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
    /// The rate from which on the band acts.
    pub rate: u32,
    /// How much may come at once after a pause: kilobits or packets. 0 for what comes in a second
    /// at the rate.
    pub burst: u32,
    /// What it does.
    pub effect: BandEffect,
}

/// What a band does with packets that exceed its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandEffect {
    /// Drops them.
    Drop,
    /// Raises the drop precedence of their assured forwarding class (RFC 2597 §6) by so many
    /// levels, at most to the third. Packets of other classes stay as they are.
    DscpRemark(u8),
}

/// What a meter has measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Packets measured.
    pub packets: u64,
    /// Bytes measured.
    pub bytes: u64,
    /// By band, what it acted on.
    pub bands: Vec<BandStats>,
}

/// What a band acted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BandStats {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}
