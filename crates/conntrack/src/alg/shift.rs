//! Lines that are replaced by others, and what that does to the numbers of TCP behind them.

use crate::checksum::{self, Checksum};
use crate::packet::Parsed;
use crate::tcp::{ACK, Segment, before};

/// Replacements that are kept, in case the segment with them comes again. Older ones were
/// acknowledged: a side waits for the answer to an announcement.
const KEPT: usize = 8;

/// What the receiver of a direction gets in place of what was sent. Sequence numbers are the
/// sender's own ones.
#[derive(Debug, Default)]
pub(super) struct Shift {
    /// The difference of the numbers before the first replacement that is kept.
    base: u32,
    /// In their order.
    edits: Vec<Edit>,
}

/// A replacement.
#[derive(Debug)]
pub(super) struct Edit {
    /// Where the text begins that is replaced, and its length.
    pub(super) seq: u32,
    pub(super) len: u32,
    pub(super) text: Vec<u8>,
}

impl Edit {
    fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }

    fn growth(&self) -> u32 {
        (self.text.len() as u32).wrapping_sub(self.len)
    }
}

impl Shift {
    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Adds a replacement behind the others.
    pub(super) fn add(&mut self, edit: Edit) {
        if self.edits.len() >= KEPT {
            self.base = self.base.wrapping_add(self.edits.remove(0).growth());
        }
        self.edits.push(edit);
    }

    /// The receiver's number for one of the sender.
    fn there(&self, seq: u32) -> u32 {
        let passed = self.edits.iter().take_while(|edit| !before(seq, edit.end()));
        passed.fold(seq.wrapping_add(self.base), |seq, edit| seq.wrapping_add(edit.growth()))
    }

    /// The sender's number for one of the receiver. Within a replacement it is that of its
    /// beginning: nothing of it has arrived until all has.
    pub(super) fn back(&self, seq: u32) -> u32 {
        let mut shift = self.base;
        for edit in &self.edits {
            let begin = edit.seq.wrapping_add(shift);
            if !before(begin, seq) {
                break;
            }
            if before(seq, begin.wrapping_add(edit.text.len() as u32)) {
                return edit.seq;
            }
            shift = shift.wrapping_add(edit.growth());
        }
        seq.wrapping_sub(shift)
    }

    /// A segment's data with the replacements; `None` if it has a part of what is replaced only.
    fn replaced(&self, seq: u32, data: &[u8]) -> Option<Vec<u8>> {
        if data.is_empty() {
            return Some(Vec::new());
        }
        let end = seq.wrapping_add(data.len() as u32);
        let mut new = Vec::with_capacity(data.len() + 32);
        let mut at = 0;
        for edit in &self.edits {
            if !before(edit.seq, end) || !before(seq, edit.end()) {
                continue;
            }
            let begins = edit.seq.wrapping_sub(seq) as usize;
            new.extend_from_slice(data.get(at..begins)?);
            new.extend_from_slice(&edit.text);
            at = begins + edit.len as usize;
        }
        new.extend_from_slice(data.get(at..)?);
        Some(new)
    }
}

/// A packet of a control connection as its receiver gets it: with lines and numbers replaced. `own`
/// is that of its direction, `other` of the one that it acknowledges. `None` if it has a part of a
/// replaced text only, or is too long then.
pub(super) fn rewrite(
    data: &[u8],
    parsed: &Parsed,
    sum: Checksum,
    segment: &Segment,
    (own, other): (&Shift, &Shift),
) -> Option<Vec<u8>> {
    let payload = parsed.end.checked_sub(segment.len as usize)?;
    let mut new = data.get(..payload)?.to_vec();
    new.extend(own.replaced(segment.seq, data.get(payload..parsed.end)?)?);
    let v6 = parsed.tuple.is_ipv6();
    let header = new.get_mut(parsed.l4..payload)?;
    header[4..8].copy_from_slice(&own.there(segment.seq).to_be_bytes());
    if segment.flags & ACK != 0 {
        let ack = [header[8], header[9], header[10], header[11]];
        header[8..12].copy_from_slice(&other.back(u32::from_be_bytes(ack)).to_be_bytes());
        selective(header.get_mut(20..)?, other);
    }
    let len = u16::try_from(new.len() - if v6 { 40 } else { 0 }).ok()?;
    let at = if v6 { 4 } else { 2 };
    new.get_mut(at..at + 2)?.copy_from_slice(&len.to_be_bytes());
    if !v6 {
        checksum::write_header(&mut new, parsed.l4);
    }
    checksum::write_tcp(&mut new, v6, parsed.l4, sum);
    Some(new)
}

/// The edges of blocks that are acknowledged selectively (RFC 2018 §3).
fn selective(mut options: &mut [u8], other: &Shift) {
    loop {
        options = match options {
            [] | [0, ..] => return,
            [1, rest @ ..] => rest,
            [kind, len @ 2..=255, ..] => {
                let (is_blocks, len) = (*kind == 5, usize::from(*len));
                let Some((option, rest)) = options.split_at_mut_checked(len) else {
                    return;
                };
                if is_blocks {
                    for edge in option[2..].chunks_exact_mut(4) {
                        let number = u32::from_be_bytes([edge[0], edge[1], edge[2], edge[3]]);
                        edge.copy_from_slice(&other.back(number).to_be_bytes());
                    }
                }
                rest
            }
            _ => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is replaced: the receiver gets the new text whole, however it is cut outside of
        /// the replaced parts, and its acknowledgments come back.
        #[test]
        fn numbers_go_there_and_back(
            start in any::<u32>(), parts in proptest::collection::vec((0u32..20, 1u32..20, 1usize..30), 1..12),
        ) {
            let mut shift = Shift::default();
            let (mut sent, mut got) = (start, start);
            for (gap, len, text) in parts {
                for _ in 0..=gap {
                    prop_assert_eq!((shift.there(sent), shift.back(got)), (got, sent));
                    (sent, got) = (sent.wrapping_add(1), got.wrapping_add(1));
                }
                shift.add(Edit { seq: sent, len, text: vec![b'x'; text] });
                let data = vec![b'.'; len as usize + 2];
                let new = shift.replaced(sent.wrapping_sub(1), &data).unwrap();
                prop_assert_eq!(new.len(), text + 2);
                prop_assert!(len == 1 || shift.replaced(sent.wrapping_add(1), &data).is_none());
                for within in 1..text as u32 {
                    prop_assert_eq!(shift.back(got.wrapping_add(within)), sent);
                }
                (sent, got) = (sent.wrapping_add(len), got.wrapping_add(text as u32));
            }
            prop_assert_eq!((shift.there(sent), shift.back(got)), (got, sent));
        }
    }

    #[test]
    fn blocks_of_selective_acknowledgments_are_moved_and_broken_options_stay() {
        let mut shift = Shift::default();
        shift.add(Edit {
            seq: 100,
            len: 10,
            text: vec![0; 14],
        });
        let block = |a: u32, b: u32| [&[1, 1, 5, 10][..], &a.to_be_bytes(), &b.to_be_bytes()].concat();
        let mut options = block(114, 204);
        selective(&mut options, &shift);
        assert_eq!(options, block(110, 200));
        for broken in [&[5][..], &[5, 0], &[5, 9, 1], &[0, 5, 4], &[5, 4, 0, 0]] {
            let mut options = broken.to_vec();
            selective(&mut options, &shift);
            assert_eq!(options, broken);
        }
    }
}
