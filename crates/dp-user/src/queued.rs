//! A frame as a scheduler sees it.

use crate::flow_look::FlowSecret;
use crate::layers::Layers;
use crate::rewrite::{self, set_field};
use dp::{DropCause, SetField};
use flow::Field;
use netdev::{Frame, Gso, gso};
use qos::{Cause, Packet, Priority};

/// A frame in a queue.
pub(crate) struct Queued {
    pub(crate) frame: Frame,
    hash: u64,
    bytes: u32,
    segments: u32,
    priority: Priority,
}

impl Queued {
    pub(crate) fn new(frame: Frame, secret: &FlowSecret) -> Queued {
        let look = secret.look(frame.data());
        let (segments, bytes) = wire_size(&frame);
        // A queue set by an action selects the class, as `skb->priority` does.
        let priority = match frame.meta.priority {
            0 => look.priority,
            queue => Priority::new((queue & 15) as u8),
        };
        Queued {
            frame,
            hash: look.hash,
            bytes,
            segments,
            priority,
        }
    }
}

/// Number of packets a frame becomes on the wire, and their bytes in all, each with its headers.
pub(crate) fn wire_size(frame: &Frame) -> (u32, u32) {
    if frame.offload.gso == Gso::None {
        return (1, frame.len() as u32);
    }
    let segments = gso::segment_count(frame);
    let headers = (segments - 1).saturating_mul(gso::header_len(frame));
    let bytes = frame.len().saturating_add(headers);
    (segments as u32, bytes.min(1 << 20) as u32)
}

/// Passes a frame to `each`, or the packets of a large segment of more than `above` bytes. Returns
/// `false`, and drops the frame, if its headers are malformed.
pub(crate) fn cut(frame: Frame, above: Option<u64>, scratch: &mut Vec<Frame>, mut each: impl FnMut(Frame)) -> bool {
    let small = |frame: &Frame| above.is_none_or(|above| u64::from(wire_size(frame).1) <= above);
    if frame.offload.gso == Gso::None || small(&frame) {
        each(frame);
        return true;
    }
    let good = gso::segment_into(frame, scratch).is_ok();
    scratch.drain(..).for_each(each);
    good
}

/// The name under which a scheduler's drops are counted.
pub(crate) fn drop_cause(cause: Cause) -> DropCause {
    match cause {
        Cause::Full | Cause::FlowFull | Cause::Memory => DropCause::QueueFull,
        Cause::Sojourn => DropCause::QueueDelay,
        Cause::Policed => DropCause::Policed,
        Cause::Loss => DropCause::QueueLoss,
    }
}

impl Packet for Queued {
    #[inline]
    fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline]
    fn segments(&self) -> u32 {
        self.segments
    }

    #[inline]
    fn flow_hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn queue(&self) -> u32 {
        self.frame.meta.priority
    }

    #[inline]
    fn priority(&self) -> Priority {
        self.priority
    }

    fn mark_ecn(&mut self) -> bool {
        let mut layers = Layers::UNKNOWN;
        match rewrite::tos(&self.frame, &mut layers).map(|tos| tos & 3) {
            // Not an IP packet, or not of a transport that understands it.
            None | Some(0) => return false,
            Some(3) => return true,
            Some(_) => {}
        }
        let Some(mark) = SetField::new(Field::IpTos, 3, 3) else {
            return false;
        };
        set_field(&mut self.frame, &mut layers, &mark);
        true
    }

    #[inline]
    fn memory(&self) -> u32 {
        self.frame.memory() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdev::{Csum, Offload};
    use wire::checksum::checksum;

    fn ip(v6: bool, tos: u8) -> Frame {
        let mut packet = vec![0; 100];
        if v6 {
            packet[12..14].copy_from_slice(&[0x86, 0xdd]);
            packet[14..22].copy_from_slice(&[0x60 | tos >> 4, tos << 4, 1, 2, 0, 46, 17, 64]);
        } else {
            packet[12..14].copy_from_slice(&[8, 0]);
            packet[14..24].copy_from_slice(&[0x45, tos, 0, 86, 0, 1, 0, 0, 64, 17]);
            packet[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let sum = checksum(&packet[14..34]);
            packet[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        Frame::from_slice(&packet)
    }

    #[test]
    fn congestion_is_marked_where_the_transport_understands_it_and_the_checksum_stays_right() {
        for v6 in [false, true] {
            for (tos, marked) in [(0xb8, None), (0xb9, Some(0xbb)), (0x02, Some(0x03)), (0xff, Some(0xff))] {
                let mut queued = Queued::new(ip(v6, tos), &FlowSecret::default());
                assert_eq!(queued.mark_ecn(), marked.is_some());
                let mut layers = Layers::UNKNOWN;
                let now = rewrite::tos(&queued.frame, &mut layers);
                assert_eq!(now, Some(marked.unwrap_or(tos)));
                let data = queued.frame.data();
                assert!(v6 || checksum(&data[14..34]) == 0, "{data:x?}");
                assert!(!v6 || data[15] & 0xf == 0 && data[16..18] == [1, 2]);
            }
        }
        let mut other = Queued::new(Frame::from_slice(&[0; 60]), &FlowSecret::default());
        assert!(!other.mark_ecn());
    }

    fn segment(payload: usize) -> Frame {
        let mut packet = vec![0; 54 + payload];
        packet[12..14].copy_from_slice(&[8, 0]);
        packet[14] = 0x45;
        packet[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
        packet[23] = 6;
        packet[46] = 0x50;
        let mut frame = Frame::from_slice(&packet);
        frame.meta.priority = 5;
        frame.offload = Offload {
            csum: Csum::Partial { start: 34, offset: 16 },
            gso: Gso::Tcp4,
            gso_size: 1_000,
            hdr_len: 54,
            ecn: false,
            ..Offload::default()
        };
        frame
    }

    #[test]
    fn a_large_segment_counts_the_headers_of_each_packet_and_is_cut_where_it_would_hold_the_link() {
        let queued = Queued::new(segment(9_500), &FlowSecret::default());
        assert_eq!((queued.segments(), queued.bytes()), (10, 9_500 + 10 * 54));
        assert_eq!((queued.queue(), queued.priority()), (5, Priority::new(5)));
        let mut scratch = Vec::new();
        let mut cut_above = |frame, above| {
            let mut lengths = Vec::new();
            assert!(cut(frame, above, &mut scratch, |frame| {
                assert_eq!(frame.meta.priority, 5);
                lengths.push(frame.len());
            }));
            lengths
        };
        assert_eq!(cut_above(segment(9_500), None), [9_554]);
        assert_eq!(cut_above(segment(9_500), Some(10_040)), [9_554]);
        let packets = cut_above(segment(9_500), Some(10_039));
        assert_eq!(packets, [&[1_054; 9][..], &[554]].concat());
        let mut broken = segment(9_500);
        broken.offload.gso = Gso::Tcp6;
        assert!(!cut(broken, Some(1), &mut scratch, |_| panic!("it has no packets")));
    }
}
