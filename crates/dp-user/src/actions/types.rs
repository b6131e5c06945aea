//! Packets of other types than Ethernet.
//!
//! The frame of such a packet begins with an Ethernet header that is no part of the packet: its
//! addresses are zero, and its type is the packet's. So all that walks over headers finds those of
//! the packet, and only what shows the packet to others leaves the header out.

use super::{ETHERNET, tunnels};
use crate::layers::Layers;
use dp::Action;
use netdev::{Csum, Frame, FrameError, Offload, checksum};
use wire::nsh::{Nsh, protocol};
use wire::{EtherType, MacAddr};

/// Length of an MPLS label stack entry.
const LSE: usize = 4;

/// Runs an action that changes the type of a packet which is no segment.
pub(super) fn change(action: &Action, frame: &mut Frame, layers: &mut Layers) -> Result<(), FrameError> {
    layers.forget();
    if frame.len() < ETHERNET {
        return Err(FrameError::Short);
    }
    match action {
        Action::PushEth { src, dst } if is_bare(frame) => {
            set_addresses(frame, *src, *dst);
            frame.meta.set_packet_type(0);
        }
        Action::PopEth if !is_bare(frame) => {
            set_addresses(frame, MacAddr::from_u64(0), MacAddr::from_u64(0));
            become_bare(frame);
        }
        Action::PushNsh(push) => {
            let header = push.header();
            let at = make_room(frame, header.header_len())?;
            let room = frame.data_mut().get_mut(at..at + header.header_len());
            room.and_then(|room| header.write(room)).ok_or(FrameError::Short)?;
            set_type(frame, EtherType::NSH.0);
        }
        Action::PopNsh => return pop_nsh(frame),
        Action::AddMpls { ethertype, lse } => {
            let at = make_room(frame, LSE)?;
            frame.data_mut()[at..at + LSE].copy_from_slice(&lse.to_be_bytes());
            set_type(frame, *ethertype);
        }
        _ => {}
    }
    Ok(())
}

/// Gives a packet of another type the type that its header has got.
pub(super) fn follow(frame: &mut Frame) {
    if is_bare(frame) {
        become_bare(frame);
    }
}

/// As [`follow`]; what was popped may have covered an Ethernet packet.
pub(super) fn uncover(frame: &mut Frame) -> Result<(), FrameError> {
    if !is_bare(frame) {
        return Ok(());
    }
    follow(frame);
    match frame.meta.packet_type() == EtherType::BRIDGED.packet_type() {
        true => unwrap(frame, ETHERNET),
        false => Ok(()),
    }
}

fn is_bare(frame: &Frame) -> bool {
    frame.meta.packet_type() != 0
}

/// Takes the header that belongs to no packet, and what is behind it up to an Ethernet packet, off.
fn unwrap(frame: &mut Frame, len: usize) -> Result<(), FrameError> {
    if frame.len() < len + ETHERNET {
        return Err(FrameError::Short);
    }
    complete(frame)?;
    frame.advance(len)?;
    frame.meta.set_packet_type(0);
    Ok(())
}

fn pop_nsh(frame: &mut Frame) -> Result<(), FrameError> {
    if !is_bare(frame) || frame.data()[12..ETHERNET] != EtherType::NSH.0.to_be_bytes() {
        return Err(FrameError::Short);
    }
    let header = Nsh::parse(&frame.data()[ETHERNET..]).ok_or(FrameError::Short)?;
    let len = header.header_len();
    let kind = match header.protocol {
        protocol::IPV4 => EtherType::IPV4,
        protocol::IPV6 => EtherType::IPV6,
        protocol::NSH => EtherType::NSH,
        protocol::ETHERNET => return unwrap(frame, ETHERNET + len),
        _ => return Err(FrameError::Short),
    };
    complete(frame)?;
    frame.remove(ETHERNET, len)?;
    set_type(frame, kind.0);
    Ok(())
}

/// Makes room for a header before the packet, behind the Ethernet header that is no part of it.
/// Returns where.
fn make_room(frame: &mut Frame, len: usize) -> Result<usize, FrameError> {
    complete(frame)?;
    let bare = is_bare(frame);
    let more = if bare { len } else { ETHERNET + len };
    if frame.prepend(more).is_err() {
        tunnels::make_room(frame, more);
    }
    match bare {
        true => frame.data_mut().copy_within(more..more + ETHERNET, 0),
        false => frame.data_mut()[..ETHERNET].fill(0),
    }
    Ok(ETHERNET)
}

/// No device can be told to do what is pending under a header that it does not know.
fn complete(frame: &mut Frame) -> Result<(), FrameError> {
    if matches!(frame.offload.csum, Csum::Partial { .. }) {
        checksum::fill(frame).map_err(|_| FrameError::ChecksumPending)?;
    }
    frame.offload = Offload::default();
    Ok(())
}

fn set_addresses(frame: &mut Frame, src: MacAddr, dst: MacAddr) {
    let addresses = u128::from(dst.to_u64()) << 48 | u128::from(src.to_u64());
    frame.data_mut()[..12].copy_from_slice(&addresses.to_be_bytes()[4..]);
}

fn set_type(frame: &mut Frame, kind: u16) {
    frame.data_mut()[12..ETHERNET].copy_from_slice(&kind.to_be_bytes());
    become_bare(frame);
}

/// Makes the packet one of the type that its Ethernet header has.
fn become_bare(frame: &mut Frame) {
    let kind = u16::from_be_bytes([frame.data()[12], frame.data()[13]]);
    frame.meta.set_packet_type(EtherType(kind).packet_type());
}

#[cfg(test)]
mod tests;
