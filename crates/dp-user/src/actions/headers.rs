//! Headers put before a packet's payload and taken off again.

use crate::layers::{Layers, Network};
use netdev::{Frame, FrameError, checksum};

/// Length of an MPLS label stack entry.
const LSE: usize = 4;

/// Length of both addresses.
const MACS: usize = 12;

/// Length of a backbone header: addresses, type, tag.
const BACKBONE: usize = MACS + 2 + 4;

/// The type of a service instance tag (IEEE 802.1Q table 9-1).
const I_TAG: u16 = 0x88e7;

/// Puts a label stack entry in. What is pending is completed first: no device can be told to do it under a label.
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
