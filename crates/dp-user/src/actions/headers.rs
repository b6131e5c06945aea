//! Headers put before a packet's payload and taken off again.

use crate::layers::{Layers, Network};
use netdev::{Frame, FrameError, checksum};

/// Length of an MPLS label stack entry.
const LSE: usize = 4;

/// In the third byte of an entry: it is the last of the stack.
const BOTTOM: u8 = 1;

/// Length of both addresses.
const MACS: usize = 12;

/// Length of a backbone header: addresses, type, tag.
const BACKBONE: usize = MACS + 2 + 4;

/// The type of a service instance tag (IEEE 802.1Q table 9-1).
const I_TAG: u16 = 0x88e7;

/// Puts a label stack entry in. What is pending is completed first: no device can be told to do it
/// under a label.
pub(super) fn push_mpls(frame: &mut Frame, layers: &mut Layers, ethertype: u16, lse: u32) -> Result<(), FrameError> {
    let start = match layers.locate(frame.data()) {
        Layers {
            network: Network::Short | Network::Untyped,
            ..
        } => return Ok(()),
        layers => layers.start,
    };
    checksum::fill(frame).map_err(|_| FrameError::ChecksumPending)?;
    frame.insert(start, LSE)?.copy_from_slice(&lse.to_be_bytes());
    set_ethertype(frame, start, ethertype);
    layers.forget();
    Ok(())
}

/// Takes a label stack entry out.
pub(super) fn pop_mpls(frame: &mut Frame, layers: &mut Layers, ethertype: u16) -> Result<(), FrameError> {
    let &Layers { network, start, .. } = layers.locate(frame.data());
    if network == Network::Mpls {
        frame.remove(start, LSE)?;
        set_ethertype(frame, start, ethertype);
        layers.forget();
    }
    Ok(())
}

/// Copies the time to live of the header behind the outermost label to the label.
pub(super) fn copy_ttl_out(frame: &mut Frame, layers: &mut Layers) {
    if let Some((lse, next)) = next_header(frame.data(), layers) {
        frame.data_mut()[lse + LSE - 1] = frame.data()[next.ttl()];
    }
}

/// Copies the time to live of the outermost label to the header behind it.
pub(super) fn copy_ttl_in(frame: &mut Frame, layers: &mut Layers) {
    let Some((lse, next)) = next_header(frame.data(), layers) else {
        return;
    };
    let data = frame.data_mut();
    let (ttl, at) = (data[lse + LSE - 1], next.ttl());
    if let Next::Ipv4(ip) = next {
        let word = |data: &[u8], at: usize| u16::from_be_bytes([data[at], data[at + 1]]);
        let (old, sum) = (word(data, at), word(data, ip + 10));
        let new = u16::from_be_bytes([ttl, data[at + 1]]);
        data[ip + 10..ip + 12].copy_from_slice(&wire::checksum::update(sum, old, new).to_be_bytes());
    }
    data[at] = ttl;
}

/// A header with a time to live behind a label, by the offset at which it begins.
enum Next {
    Label(usize),
    Ipv4(usize),
    Ipv6(usize),
}

impl Next {
    /// Where its time to live is.
    fn ttl(&self) -> usize {
        match self {
            Next::Label(at) => at + LSE - 1,
            Next::Ipv4(at) => at + 8,
            Next::Ipv6(at) => at + 7,
        }
    }
}

/// Where the outermost label is, and the header behind it, if it is one with a time to live.
fn next_header(data: &[u8], layers: &mut Layers) -> Option<(usize, Next)> {
    let &Layers { network, start, .. } = layers.locate(data);
    if network != Network::Mpls {
        return None;
    }
    let at = start + LSE;
    let rest = data.get(at..)?;
    if data[start + 2] & BOTTOM == 0 {
        return (rest.len() >= LSE).then_some((start, Next::Label(at)));
    }
    match rest.first()? >> 4 {
        4 => {
            let header = rest.get(..usize::from(rest[0] & 0xf) * 4)?;
            let is_whole = header.len() >= 20 && wire::checksum::checksum(header) == 0;
            is_whole.then_some((start, Next::Ipv4(at)))
        }
        6 => {
            let fixed: &[u8; 40] = rest.first_chunk()?;
            let len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            (len <= rest.len() - fixed.len()).then_some((start, Next::Ipv6(at)))
        }
        _ => None,
    }
}

/// Sets the type of what begins at `start`.
fn set_ethertype(frame: &mut Frame, start: usize, ethertype: u16) {
    frame.data_mut()[start - 2..start].copy_from_slice(&ethertype.to_be_bytes());
}

/// Puts a backbone header before a packet. What is pending is completed first.
pub(super) fn push_pbb(frame: &mut Frame, layers: &mut Layers, tci: u32) -> Result<(), FrameError> {
    checksum::fill(frame).map_err(|_| FrameError::ChecksumPending)?;
    let header = frame.prepend(BACKBONE)?;
    header[MACS..MACS + 2].copy_from_slice(&I_TAG.to_be_bytes());
    header[MACS + 2..].copy_from_slice(&tci.to_be_bytes());
    let data = frame.data_mut();
    if data.len() < BACKBONE + MACS {
        return Err(FrameError::Short);
    }
    data.copy_within(BACKBONE..BACKBONE + MACS, 0);
    layers.forget();
    Ok(())
}

/// Takes the backbone header off.
pub(super) fn pop_pbb(frame: &mut Frame, layers: &mut Layers) -> Result<(), FrameError> {
    let &Layers { network, start, .. } = layers.locate(frame.data());
    // Behind the tag there are the addresses and the type of the packet.
    if network != Network::Pbb || frame.len() < start + 4 + MACS + 2 {
        return Ok(());
    }
    frame.data_mut().copy_within(start + 4..start + 4 + MACS, 0);
    frame.remove(start - 2, 2 + 4 + MACS)?;
    layers.forget();
    Ok(())
}
