//! The state machine of TCP (RFC 9293), with the window checks of G. van Rooij, "Real Stateful TCP
//! Packet Filtering in IP Filter" (2001), which BSD's packet filter and Open vSwitch use too.
//!
//! The tracker sees some packets that the receiver does not see, and the reverse. So it never knows
//! a side's window; it knows bounds:
//! - A side never sends beyond what its peer has acknowledged plus the peer's window
//!   ([`Side::high`]).
//! - A side never sends again more than one window behind what it has sent ([`Side::low`]).
//! - An acknowledgment is near what the peer has sent.
//!
//! A side's numbers only grow, and its state only advances until the connection is over. Therefore
//! two workers may advance one connection at the same time without a lock: [`update`] computes the
//! new words from the old ones, writes them with compare-and-exchange, and starts again if another
//! worker was first. A packet that is processed twice has the effect of a retransmission.

use crate::bypass::{BYPASSED, Numbers};
use crate::timeout::Timeout;
use std::sync::atomic::{AtomicU64, Ordering};

/// TCP flags.
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;

/// The largest shift of a window (RFC 7323 §2.3).
pub(crate) const MAX_SHIFT: u8 = 14;
/// How far an acknowledgment may be from what was seen: the largest unscaled window and a packet.
const SKEW: i32 = 0xffff + 1500;
/// Attempts to write a new state while other workers change it too.
const ATTEMPTS: usize = 8;

/// What the machine reads of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// Bytes of data.
    pub(crate) len: u32,
    /// Shift of the window scale option, of a SYN only.
    pub(crate) shift: Option<u8>,
}

/// What a side has done. The names are those of Open vSwitch's dumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TcpState {
    /// It has sent nothing.
    #[default]
    Closed = 0,
    /// It has sent.
    SynSent = 2,
    /// Its peer has acknowledged that.
    Established = 4,
    /// It has sent FIN.
    Closing = 7,
    /// Its peer has acknowledged its FIN.
    FinWait2 = 9,
    /// One of the two has sent RST.
    TimeWait = 10,
}

impl TcpState {
    fn from_bits(bits: u8) -> TcpState {
        match bits & 0xf {
            0 | 1 => TcpState::Closed,
            2 | 3 => TcpState::SynSent,
            4..=6 => TcpState::Established,
            7 | 8 => TcpState::Closing,
            9 => TcpState::FinWait2,
            _ => TcpState::TimeWait,
        }
    }

    /// The name in a dump.
    pub const fn name(self) -> &'static str {
        match self {
            TcpState::Closed => "CLOSED",
            TcpState::SynSent => "SYN_SENT",
            TcpState::Established => "ESTABLISHED",
            TcpState::Closing => "CLOSING",
            TcpState::FinWait2 => "FIN_WAIT_2",
            TcpState::TimeWait => "TIME_WAIT",
        }
    }
}

/// What is known of a side's window scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowScale {
    /// It does not scale, or has not said so yet.
    #[default]
    None,
    /// Its SYN had this shift.
    Shift(u8),
    /// Its SYN was not seen.
    Unknown,
}

impl WindowScale {
    /// The shift; 0 where it is not known.
    pub const fn shift(self) -> u8 {
        match self {
            WindowScale::Shift(shift) => shift,
            _ => 0,
        }
    }
}

/// One side of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Side {
    /// The sequence number behind the last one that it sent.
    pub(crate) low: u32,
    /// The sequence number up to which its peer lets it send.
    pub(crate) high: u32,
    /// Its largest window, unscaled.
    pub(crate) window: u16,
    pub(crate) scale: WindowScale,
    pub(crate) state: TcpState,
}

/// Both sides, that of the original direction first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) sides: [Side; 2],
    /// Both sides have acknowledged each other: the connection is not half-open any more.
    pub(crate) assured: bool,
    /// Packets may pass by: see [`crate::bypass`].
    pub(crate) bypassed: bool,
}

/// What a packet is to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It belongs to the connection, which now has this timeout.
    Valid(Timeout),
    /// It belongs to the connection, whose timeout stays.
    Tolerated,
    /// It belongs to a connection without an answer.
    New(Timeout),
    /// The connection is over, and the packet begins another one with the same tuple.
    Reborn,
    /// It does not belong to the connection.
    Invalid,
}

/// In the stage word: both sides have answered; never evicted.
pub(crate) const ASSURED: u64 = 1 << 28;

/// Whether these flags can be in one packet (RFC 9293 §3.10.7).
pub(crate) fn are_legal(flags: u8) -> bool {
    let has = |bits| flags & bits != 0;
    match has(SYN) {
        true => !has(RST | FIN) && (has(ACK) || !has(PSH | URG)),
        false => has(ACK) || has(RST) && !has(FIN | PSH | URG),
    }
}

/// The state after a connection's first packet; `None` if no connection begins with such a packet.
/// `pickup`: it may be one from the middle.
pub(crate) fn begin(segment: &Segment, pickup: bool) -> Option<(Tcp, Timeout)> {
    let has = |bit| segment.flags & bit != 0;
    if !are_legal(segment.flags) || has(SYN) && has(ACK) || !has(SYN) && !pickup {
        return None;
    }
    let scale = match (has(SYN), segment.shift) {
        (true, Some(shift)) => WindowScale::Shift(shift.min(MAX_SHIFT)),
        (true, None) => WindowScale::None,
        (false, _) => WindowScale::Unknown,
    };
    let beyond = segment.len + 1 + u32::from(has(SYN)) + u32::from(has(FIN));
    let first = Side {
        low: segment.seq,
        high: segment.seq.wrapping_add(beyond),
        // The window of a SYN is not scaled: the others are compared with what is shifted later.
        window: unscale(segment.window.max(1), scale.shift()),
        scale,
        state: TcpState::SynSent,
    };
    let second = Side {
        high: 1,
        window: 1,
        scale: if has(SYN) {
            WindowScale::None
        } else {
            WindowScale::Unknown
        },
        ..Side::default()
    };
    let tcp = Tcp {
        sides: [first, second],
        assured: false,
        bypassed: false,
    };
    Some((tcp, Timeout::TcpSynSent))
}

/// Advances a connection in memory. `check`: the numbers decide whether a packet belongs to it.
#[inline]
pub(crate) fn update(
    sides: &[AtomicU64; 2],
    stage: &AtomicU64,
    segment: &Segment,
    reply: bool,
    check: bool,
) -> Verdict {
    let mut verdict = Verdict::Invalid;
    for _ in 0..ATTEMPTS {
        // The stage first: with an older stage and newer numbers, the stage cannot be written.
        let old_stage = stage.load(Ordering::Acquire);
        let old = [sides[0].load(Ordering::Acquire), sides[1].load(Ordering::Acquire)];
        let mut tcp = Tcp::unpack(old, old_stage);
        verdict = tcp.advance(segment, reply, check);
        let (new, new_stage) = tcp.pack();
        let written = (0..2).all(|n| exchange(&sides[n], old[n], new[n])) && exchange(stage, old_stage, new_stage);
        if written {
            break;
        }
    }
    verdict
}

/// Gives a connection in memory the numbers of packets that passed by: the later ones of both, or
/// where they cannot be compared those of the packets. False if other workers changed it each time.
pub(crate) fn catch_up(sides: &[AtomicU64; 2], stage: &AtomicU64, passed: [Numbers; 2], far: [bool; 2]) -> bool {
    for _ in 0..ATTEMPTS {
        let old_stage = stage.load(Ordering::Acquire);
        let old = [sides[0].load(Ordering::Acquire), sides[1].load(Ordering::Acquire)];
        let mut tcp = Tcp::unpack(old, old_stage);
        for (side, (passed, far)) in tcp.sides.iter_mut().zip(passed.into_iter().zip(far)) {
            let own = Numbers {
                low: side.low,
                high: side.high,
                window: side.window,
            };
            let Numbers { low, high, window } = if far { passed } else { own.later(passed) };
            (side.low, side.high, side.window) = (low, high, window);
        }
        let (new, new_stage) = tcp.pack();
        if (0..2).all(|n| exchange(&sides[n], old[n], new[n])) && exchange(stage, old_stage, new_stage) {
            return true;
        }
    }
    false
}

#[inline]
fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
    old == new
        || word
            .compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
}

impl Tcp {
    /// The words of an entry.
    #[inline]
    pub(crate) fn pack(&self) -> ([u64; 2], u64) {
        let stage = self.sides[0].pack() | self.sides[1].pack() << 32;
        let assured = if self.assured { ASSURED } else { 0 };
        let bypassed = if self.bypassed { BYPASSED } else { 0 };
        let numbers = |side: &Side| u64::from(side.low) << 32 | u64::from(side.high);
        (
            [numbers(&self.sides[0]), numbers(&self.sides[1])],
            stage | assured | bypassed,
        )
    }

    #[inline]
    pub(crate) fn unpack(sides: [u64; 2], stage: u64) -> Tcp {
        Tcp {
            sides: [Side::unpack(sides[0], stage), Side::unpack(sides[1], stage >> 32)],
            assured: stage & ASSURED != 0,
            bypassed: stage & BYPASSED != 0,
        }
    }

    /// One packet.
    pub(crate) fn advance(&mut self, segment: &Segment, reply: bool, check: bool) -> Verdict {
        let (mut src, mut dst) = match reply {
            false => (self.sides[0], self.sides[1]),
            true => (self.sides[1], self.sides[0]),
        };
        let verdict = step(&mut src, &mut dst, segment, check);
        let both = src.state >= TcpState::Established && dst.state >= TcpState::Established;
        self.assured |= both && segment.flags & RST == 0 && verdict != Verdict::Invalid;
        self.sides = if reply { [dst, src] } else { [src, dst] };
        verdict
    }
}

impl Side {
    #[inline]
    fn pack(&self) -> u64 {
        let scale = match self.scale {
            WindowScale::None => 0,
            WindowScale::Shift(shift) => 0x80 | shift & 0xf,
            WindowScale::Unknown => 0x40,
        };
        u64::from(self.window) | u64::from(scale) << 16 | (self.state as u64) << 24
    }

    #[inline]
    fn unpack(numbers: u64, stage: u64) -> Side {
        let scale = (stage >> 16) as u8;
        Side {
            low: (numbers >> 32) as u32,
            high: numbers as u32,
            window: stage as u16,
            scale: match scale & 0xc0 {
                0 => WindowScale::None,
                0x40 => WindowScale::Unknown,
                _ => WindowScale::Shift(scale & 0xf),
            },
            state: TcpState::from_bits((stage >> 24) as u8),
        }
    }
}

/// A packet from `src` to `dst`.
fn step(src: &mut Side, dst: &mut Side, segment: &Segment, check: bool) -> Verdict {
    let has = |bit| segment.flags & bit != 0;
    if !are_legal(segment.flags) {
        return Verdict::Invalid;
    }
    if has(SYN) && !has(ACK) {
        if src.state >= TcpState::FinWait2 && dst.state >= TcpState::FinWait2 {
            return Verdict::Reborn;
        }
        if src.state <= TcpState::SynSent {
            src.state = TcpState::SynSent;
            return Verdict::New(Timeout::TcpSynSent);
        }
    }
    let (mut src_shift, mut dst_shift) = match (src.scale, dst.scale) {
        (WindowScale::Shift(a), WindowScale::Shift(b)) if !has(SYN) => (a, b),
        (WindowScale::Unknown, WindowScale::Unknown) if !has(SYN) => (MAX_SHIFT, MAX_SHIFT),
        _ => (0, 0),
    };
    let mut window = segment.window;
    let mut check_skew = true;
    let mut seq = segment.seq;
    let mut end = seq
        .wrapping_add(segment.len)
        .wrapping_add(u32::from(has(SYN)) + u32::from(has(FIN)));

    if src.state < TcpState::SynSent {
        // Its first packet: its numbers begin here.
        if has(SYN)
            && let WindowScale::Shift(shift) = dst.scale
        {
            match segment.shift {
                Some(own) => {
                    let own = own.min(MAX_SHIFT);
                    src.scale = WindowScale::Shift(own);
                    (src_shift, dst_shift) = (own, shift);
                    window = unscale(window, own);
                }
                None => {
                    // Neither side scales if one does not: the other's window was divided in vain.
                    dst.window = u16::try_from(u32::from(dst.window) << shift).unwrap_or(u16::MAX);
                    dst.scale = WindowScale::None;
                }
            }
        }
        src.low = seq;
        src.state = TcpState::SynSent;
        let high = end.wrapping_add(scaled(dst.window, dst_shift).max(1));
        if src.high == 1 || !before(high, src.high) {
            src.high = high;
            // An acknowledgment cannot be compared with anything yet.
            check_skew = false;
        }
        src.window = src.window.max(window);
    }

    // No acknowledgment, or the zero of stacks that answer a SYN's timeout.
    let ack = match has(ACK) && !(segment.ack == 0 && has(RST)) {
        true => segment.ack,
        false => dst.low,
    };
    if seq == end {
        // Without data the numbers say nothing about windows.
        (seq, end) = (src.low, src.low);
    }
    let skew = if check_skew {
        dst.low.wrapping_sub(ack) as i32
    } else {
        0
    };
    let within = !before(src.high, end)
        && !before(seq, src.low.wrapping_sub(scaled(dst.window, dst_shift)))
        && skew >= -SKEW
        && skew <= SKEW << src_shift
        // A reset has the next number, or one beside it (RFC 5961 §3.2).
        && (!has(RST) || segment.seq.wrapping_sub(src.low).wrapping_add(1) <= 2);

    if within || !check {
        note_numbers(src, dst, (ack, end), window, src_shift);
        if has(FIN) && src.state < TcpState::Closing {
            src.state = TcpState::Closing;
        }
        if has(ACK) {
            dst.state = match dst.state {
                TcpState::SynSent => TcpState::Established,
                TcpState::Closing => TcpState::FinWait2,
                other => other,
            };
        }
        if has(RST) {
            (src.state, dst.state) = (TcpState::TimeWait, TcpState::TimeWait);
        }
        return Verdict::Valid(timeout(src.state, dst.state));
    }

    // Simultaneous opens, connections from the middle, and what comes shortly after the end. The
    // timeout stays, so that a flood of such packets does not keep a connection.
    let loose = (dst.state < TcpState::SynSent || dst.state >= TcpState::FinWait2 || src.state >= TcpState::FinWait2)
        && !before(src.high.wrapping_add(SKEW as u32), end)
        && !before(seq, src.low.wrapping_sub(SKEW as u32));
    if !loose {
        return Verdict::Invalid;
    }
    note_numbers(src, dst, (ack, end), window, src_shift);
    if has(FIN) && src.state < TcpState::Closing {
        src.state = TcpState::Closing;
    }
    if has(RST) {
        (src.state, dst.state) = (TcpState::TimeWait, TcpState::TimeWait);
    }
    Verdict::Tolerated
}

/// Windows and numbers after a packet that belongs to the connection.
fn note_numbers(src: &mut Side, dst: &mut Side, (ack, end): (u32, u32), window: u16, shift: u8) {
    src.window = src.window.max(window);
    if before(src.low, end) {
        src.low = end;
    }
    let window = scaled(window, shift);
    if !before(ack.wrapping_add(window), dst.high) {
        dst.high = ack.wrapping_add(window.max(1));
    }
}

fn timeout(src: TcpState, dst: TcpState) -> Timeout {
    let (least, most) = (src.min(dst), src.max(dst));
    if least >= TcpState::FinWait2 {
        Timeout::TcpClose
    } else if least >= TcpState::Closing {
        Timeout::TcpTimeWait
    } else if least < TcpState::Established {
        Timeout::TcpSynRecv
    } else if most >= TcpState::Closing {
        Timeout::TcpFinWait
    } else {
        Timeout::TcpEstablished
    }
}

/// Whether `a` is before `b` in sequence space.
pub(crate) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

fn scaled(window: u16, shift: u8) -> u32 {
    u32::from(window) << shift
}

/// The window divided by the scale, rounded up.
fn unscale(window: u16, shift: u8) -> u16 {
    u32::from(window).div_ceil(1 << shift) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment(flags: u8, seq: u32, ack: u32, len: u32) -> Segment {
        Segment {
            seq,
            ack,
            flags,
            window: 1000,
            len,
            shift: None,
        }
    }

    /// A connection after SYN, SYN+ACK, ACK, with the numbers 100 and 500.
    fn established() -> Tcp {
        let (mut tcp, _) = begin(&segment(SYN, 99, 0, 0), false).unwrap();
        tcp.advance(&segment(SYN | ACK, 499, 100, 0), true, true);
        let verdict = tcp.advance(&segment(ACK, 100, 500, 0), false, true);
        assert_eq!(verdict, Verdict::Valid(Timeout::TcpEstablished));
        assert!(tcp.assured);
        tcp
    }

    #[test]
    fn a_handshake_establishes_and_two_fins_close() {
        let (mut tcp, timeout) = begin(&segment(SYN, 99, 0, 0), false).unwrap();
        assert_eq!(timeout, Timeout::TcpSynSent);
        assert_eq!(
            tcp.advance(&segment(SYN, 99, 0, 0), false, true),
            Verdict::New(Timeout::TcpSynSent)
        );
        let syn_ack = tcp.advance(&segment(SYN | ACK, 499, 100, 0), true, true);
        assert_eq!(syn_ack, Verdict::Valid(Timeout::TcpSynRecv));
        assert!(!tcp.assured);

        let mut tcp = established();
        assert_eq!(
            tcp.advance(&segment(FIN | ACK, 100, 500, 0), false, true),
            Verdict::Valid(Timeout::TcpFinWait)
        );
        assert_eq!(
            tcp.advance(&segment(FIN | ACK, 500, 101, 0), true, true),
            Verdict::Valid(Timeout::TcpTimeWait)
        );
        assert_eq!(
            tcp.advance(&segment(ACK, 101, 501, 0), false, true),
            Verdict::Valid(Timeout::TcpClose)
        );
        assert_eq!(tcp.advance(&segment(SYN, 9999, 0, 0), false, true), Verdict::Reborn);
    }

    #[test]
    fn data_beyond_the_window_is_invalid_unless_numbers_are_not_checked() {
        let mut tcp = established();
        let beyond = segment(ACK, 100 + 1100, 500, 10);
        assert_eq!(tcp.advance(&beyond, false, true), Verdict::Invalid);
        let far = segment(ACK, 100, 500 + 200_000, 10);
        assert_eq!(tcp.advance(&far, false, true), Verdict::Invalid);
        assert_eq!(
            tcp.advance(&beyond, false, false),
            Verdict::Valid(Timeout::TcpEstablished)
        );
    }

    #[test]
    fn a_reset_out_of_place_does_not_end_a_connection() {
        for (seq, ends) in [
            (110, true),
            (111, true),
            (109, true),
            (112, false),
            (108, false),
            (600, false),
        ] {
            let mut tcp = established();
            tcp.advance(&segment(ACK, 100, 500, 10), false, true);
            let verdict = tcp.advance(&segment(RST, seq, 0, 0), false, true);
            assert_eq!(verdict == Verdict::Valid(Timeout::TcpClose), ends, "{seq}");
            assert_eq!(tcp.sides[0].state == TcpState::TimeWait, ends);
        }
    }

    #[test]
    fn windows_scale_if_both_syns_say_so() {
        let syn = |flags, seq, ack, shift| Segment {
            shift,
            ..segment(flags, seq, ack, 0)
        };
        for (shift, fits) in [(Some(7), true), (None, false)] {
            let (mut tcp, _) = begin(&syn(SYN, 99, 0, Some(7)), false).unwrap();
            tcp.advance(&syn(SYN | ACK, 499, 100, shift), true, true);
            tcp.advance(&segment(ACK, 100, 500, 0), false, true);
            // The client's window is 1000, shifted by 7 or not.
            let data = tcp.advance(&segment(ACK, 500, 100, 100_000), true, true);
            assert_eq!(data != Verdict::Invalid, fits);
        }
    }

    #[test]
    fn connections_begin_in_the_middle_only_by_policy_and_never_with_syn_and_ack() {
        assert!(begin(&segment(ACK, 5, 6, 10), true).is_some());
        assert!(begin(&segment(ACK, 5, 6, 10), false).is_none());
        assert!(begin(&segment(SYN | ACK, 5, 6, 0), true).is_none());
        assert!(begin(&segment(SYN | FIN, 5, 6, 0), true).is_none());
        assert!(begin(&segment(0, 5, 6, 0), true).is_none());
        let (mut tcp, _) = begin(&segment(ACK, 5, 6, 10), true).unwrap();
        tcp.advance(&segment(ACK, 6, 15, 0), true, true);
        let verdict = tcp.advance(&segment(ACK, 15, 6, 0), false, true);
        assert_eq!(verdict, Verdict::Valid(Timeout::TcpEstablished));
    }

    proptest! {
        #[test]
        fn words_carry_the_state(steps in proptest::collection::vec(any::<(u32, u32, u8, u16, u16, Option<u8>, bool, bool)>(), 1..20)) {
            let mut tcp: Option<Tcp> = None;
            for (seq, ack, flags, window, len, shift, reply, check) in steps {
                // Numbers near each other, so that many packets belong to the connection.
                let segment = Segment { seq: seq % 5000, ack: ack % 5000, flags, window, len: u32::from(len % 2000), shift };
                let Some(known) = &mut tcp else {
                    tcp = begin(&segment, true).map(|(tcp, _)| tcp);
                    continue;
                };
                let (sides, stage) = known.pack();
                let (sides, stage) = (sides.map(AtomicU64::new), AtomicU64::new(stage));
                let verdict = update(&sides, &stage, &segment, reply, check);
                prop_assert_eq!(verdict, known.advance(&segment, reply, check));
                prop_assert_eq!(Tcp::unpack(sides.map(AtomicU64::into_inner), stage.into_inner()), *known);
            }
        }
    }
}
