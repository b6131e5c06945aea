//! The lines of one direction of a control connection, whatever segments they arrive in.
//!
//! A line is read only if its beginning was seen: text that a peer put into the middle of a line is
//! never taken for a line, wherever the segments are cut.

/// Bytes of a line at most. A longer one is skipped.
const LONGEST: usize = 512;

/// The state of one direction.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The next sequence number; `None` before the first segment.
    next: Option<u32>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The beginning of this line was not seen, or it is too long.
    skips: bool,
}

impl Lines {
    /// The direction begins at this number, with a line.
    pub(super) fn begin(&mut self, seq: u32) {
        *self = Lines {
            next: Some(seq),
            ..Lines::default()
        };
    }

    /// Takes a segment, and calls `read` with each line that ends in it, without its end, and with
    /// the line's sequence number if it begins there too.
    pub(super) fn take(&mut self, seq: u32, mut data: &[u8], mut read: impl FnMut(&[u8], Option<u32>)) {
        if data.is_empty() {
            return;
        }
        match self.next {
            None => self.skips = true,
            Some(next) => {
                let ahead = seq.wrapping_sub(next) as i32;
                if ahead > 0 {
                    // A segment is missing: the line's rest may be anything.
                    self.line.clear();
                    self.skips = true;
                } else {
                    // What was read before is not read again.
                    let old = usize::try_from(i64::from(ahead).unsigned_abs()).unwrap_or(usize::MAX);
                    let Some(new) = data.get(old..).filter(|new| !new.is_empty()) else {
                        return;
                    };
                    data = new;
                }
            }
        }
        let end = data.len() as u32;
        let mut begins = match self.next {
            Some(next) if (seq.wrapping_sub(next) as i32) <= 0 => next,
            _ => seq,
        };
        self.next = Some(begins.wrapping_add(end));
        while let Some(at) = data.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = data.split_at(at);
            data = &rest[1..];
            let whole = self.line.is_empty();
            if !self.skips && self.line.len() + head.len() <= LONGEST {
                self.line.extend_from_slice(head);
                let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
                read(line, whole.then_some(begins));
            }
            self.line.clear();
            self.skips = false;
            begins = begins.wrapping_add(at as u32 + 1);
        }
        if self.line.len() + data.len() > LONGEST {
            self.line.clear();
            self.skips = true;
        }
        if !self.skips {
            self.line.extend_from_slice(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(segments: &[(u32, &[u8])]) -> Vec<String> {
        let mut lines = Lines::default();
        lines.begin(1000);
        let mut found = Vec::new();
        for (seq, data) in segments {
            lines.take(*seq, data, |line, _| {
                found.push(String::from_utf8_lossy(line).into_owned())
            });
        }
        found
    }

    proptest! {
        #[test]
        fn lines_are_the_same_wherever_segments_are_cut_and_however_often_they_come(
            cuts in proptest::collection::vec(1usize..9, 1..30), again in proptest::collection::vec(any::<bool>(), 30),
        ) {
            let text = b"220 ready\r\nPORT 10,0,0,1,4,5\r\n\r\n227 no\nlast\r\nopen";
            let (mut segments, mut at) = (Vec::new(), 0);
            for (cut, again) in cuts.iter().zip(again) {
                let end = (at + cut).min(text.len());
                segments.push((1000 + at as u32, &text[at..end]));
                if again {
                    let from = at.saturating_sub(3);
                    segments.push((1000 + from as u32, &text[from..end]));
                }
                at = end;
            }
            segments.push((1000 + at as u32, &text[at..]));
            prop_assert_eq!(read(&segments), ["220 ready", "PORT 10,0,0,1,4,5", "", "227 no", "last"]);
        }
    }

    #[test]
    fn a_line_whose_beginning_is_missing_is_skipped() {
        assert_eq!(
            read(&[(1000, b"one\r\nfirst "), (1012, b"second\r\nnext\r\n")]),
            ["one", "next"]
        );
        let mut lines = Lines::default();
        let mut found = Vec::new();
        lines.take(5, b"227 half\r\nwhole\r\n", |line, at| found.push((line.to_vec(), at)));
        assert_eq!(found, [(b"whole".to_vec(), Some(15))]);
        lines.take(22, b"in two", |_, _| unreachable!());
        lines.take(28, b" parts\r\nnext\r\n", |line, at| found.push((line.to_vec(), at)));
        assert_eq!(
            found[1..],
            [(b"in two parts".to_vec(), None), (b"next".to_vec(), Some(36))]
        );
    }

    #[test]
    fn a_long_line_is_skipped_and_does_not_grow() {
        let long = vec![b'x'; 400];
        assert_eq!(read(&[(1000, &long), (1400, &long), (1800, b"end\r\nok\r\n")]), ["ok"]);
    }
}
