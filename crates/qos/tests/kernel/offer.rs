//! The packets offered to a discipline: with a time, a flow and a class, as frames that carry their
//! number.

use std::net::Ipv4Addr;

/// A packet to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Offer {
    /// Microseconds after the beginning.
    pub at: u64,
    /// Told by the UDP source port, [`FLOW_PORT`] higher.
    pub flow: u16,
    /// Told by the UDP destination port, [`CLASS_PORT`] higher.
    pub class: u16,
    /// Of the frame, at least 60.
    pub bytes: u16,
    /// Whether its transport can do ECN.
    pub ecn: bool,
}

pub(crate) const FLOW_PORT: u16 = 10_000;
pub(crate) const CLASS_PORT: u16 = 5_000;
/// In front of the UDP header: Ethernet and IPv4.
const UDP: usize = 34;
const NUMBER: usize = UDP + 8;

impl Offer {
    /// One of flow 0, class 0.
    pub(crate) fn new(at: u64, bytes: u16) -> Offer {
        Offer {
            at,
            flow: 0,
            class: 0,
            bytes,
            ecn: false,
        }
    }

    pub(crate) fn flow(self, flow: u16) -> Offer {
        Offer { flow, ..self }
    }

    pub(crate) fn class(self, class: u16) -> Offer {
        Offer { class, ..self }
    }

    /// Its frame, with its number.
    pub(crate) fn frame(&self, number: u32) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.bytes.into());
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        let ip = self.bytes - 14;
        frame.extend([0x45, u8::from(self.ecn) * 2]);
        frame.extend(ip.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(Ipv4Addr::new(10, 0, 0, 1).octets());
        frame.extend(Ipv4Addr::new(10, 0, 0, 2).octets());
        let checksum = testkit::checksum(&frame[14..UDP]);
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame.extend((FLOW_PORT + self.flow).to_be_bytes());
        frame.extend((CLASS_PORT + self.class).to_be_bytes());
        frame.extend((ip - 20).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(number.to_be_bytes());
        frame.resize(self.bytes.into(), 0);
        frame
    }
}

/// The number of a frame, and whether it was marked as having met congestion.
pub(crate) fn number(frame: &[u8]) -> Option<(u32, bool)> {
    let udp = frame.get(12..14)? == [8, 0] && *frame.get(23)? == 17;
    let number = frame.get(NUMBER..NUMBER + 4)?.try_into().ok()?;
    udp.then_some((u32::from_be_bytes(number), frame[15] & 3 == 3))
}

/// `count` at once.
pub(crate) fn burst(offer: Offer, count: usize) -> Vec<Offer> {
    vec![offer; count]
}

/// One like `offer` every `period` µs, from its time until `end`.
pub(crate) fn steady(offer: Offer, period: u64, end: u64) -> Vec<Offer> {
    (offer.at..end)
        .step_by(period as usize)
        .map(|at| Offer { at, ..offer })
        .collect()
}

/// Several series in the order of time.
pub(crate) fn together(series: impl IntoIterator<Item = Vec<Offer>>) -> Vec<Offer> {
    let mut all: Vec<Offer> = series.into_iter().flatten().collect();
    all.sort_by_key(|offer| offer.at);
    all
}
