//! Cuts a byte stream into JSON values without parsing them.
//!
//! Goal: each byte is read once, however messages are split over reads, so that a large message in
//! many pieces costs no more per byte than a small one. The framer knows strings, escapes and
//! nesting only: `{"a":tru]` is a frame, and the JSON parser refuses it.
//!
//! Invariants: `start <= scanned <= buffer.len()`; the bytes before `start` were handed out, those
//! before `scanned` are reflected in the state. After an error the framer stays in error: the
//! stream has no recoverable boundary.

use std::fmt;

use super::skim::Skim;

/// Limits on the memory and the parser's stack that a peer can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest message, in bytes.
    pub max_bytes: usize,
    /// Deepest nesting of arrays and objects.
    pub max_depth: u32,
}

impl Default for Limits {
    /// 64 MiB and 1000 levels.
    fn default() -> Limits {
        Limits {
            max_bytes: 64 << 20,
            max_depth: 1000,
        }
    }
}

/// Why a stream cannot be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message does not begin with `{` or `[`.
    #[error("syntax error at beginning of message: byte {0:#04x} does not begin a JSON object or array")]
    NotJson(u8),
    /// Arrays and objects nest deeper than the limit.
    #[error("message nests deeper than {0} levels")]
    TooDeep(u32),
    /// The message is longer than the limit.
    #[error("message exceeds {0} bytes")]
    TooLong(usize),
}

/// Classes of bytes.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Other,
    Quote,
    Backslash,
    Open,
    Close,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    classes[b'"' as usize] = Class::Quote;
    classes[b'\\' as usize] = Class::Backslash;
    classes[b'{' as usize] = Class::Open;
    classes[b'[' as usize] = Class::Open;
    classes[b'}' as usize] = Class::Close;
    classes[b']' as usize] = Class::Close;
    classes
};

/// Finds the end of each top-level JSON value of a stream.
pub struct Framer {
    buffer: Vec<u8>,
    start: usize,
    scanned: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
    limits: Limits,
    failed: Option<FrameError>,
    /// The message that is not kept.
    skimmed: Option<Skim>,
    /// The outline of a message that was not kept and has ended.
    discarded: Option<Vec<u8>>,
}

impl Framer {
    /// A framer with the default [`Limits`].
    pub fn new() -> Framer {
        Framer::with_limits(Limits::default())
    }

    /// A framer with its own limits.
    pub fn with_limits(limits: Limits) -> Framer {
        Framer {
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            depth: 0,
            in_string: false,
            escaped: false,
            limits,
            failed: None,
            skimmed: None,
            discarded: None,
        }
    }

    /// Appends bytes that the peer sent.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if let Some(skim) = &mut self.skimmed {
            match skim.feed(bytes) {
                Some(end) => {
                    bytes = &bytes[end..];
                    self.discarded = self.skimmed.take().map(Skim::into_outline);
                }
                None if skim.length() > self.limits.max_bytes => {
                    self.failed = Some(FrameError::TooLong(self.limits.max_bytes));
                    return;
                }
                None if skim.depth() > self.limits.max_depth => {
                    self.failed = Some(FrameError::TooDeep(self.limits.max_depth));
                    return;
                }
                None => return,
            }
        }
        self.buffer().extend_from_slice(bytes);
    }

    /// Discards the incomplete message, after [`Framer::next`] returned `None`, and its rest as it
    /// arrives; [`Framer::take_discarded`] reports its end. Only for bytes that come by
    /// [`Framer::push`].
    pub fn discard(&mut self) {
        if self.pending() == 0 || self.failed.is_some() {
            return;
        }
        let mut skim = Skim::default();
        if skim.feed(&self.buffer[self.start..]).is_none() {
            self.skimmed = Some(skim);
            self.buffer = Vec::new();
            (self.start, self.scanned, self.depth) = (0, 0, 0);
            (self.in_string, self.escaped) = (false, false);
        }
    }

    /// A discarded message whose end has arrived, without the contents of its arrays and objects:
    /// enough for an error reply. Call it before [`Framer::next`], which yields the next message.
    pub fn take_discarded(&mut self) -> Option<Vec<u8>> {
        self.discarded.take()
    }

    /// The buffer to append the peer's bytes to, for reads without a copy. Only append to it.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.start == self.buffer.len() {
            self.forget();
        } else if self.start > self.buffer.len() / 2 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        &mut self.buffer
    }

    /// Removes the frames handed out, and frees the memory of long messages.
    fn forget(&mut self) {
        const KEEP: usize = 256 << 10;
        self.buffer.clear();
        self.buffer.shrink_to(KEEP);
        self.scanned = 0;
        self.start = 0;
    }

    /// The memory that it uses, in bytes.
    pub fn memory(&self) -> usize {
        self.buffer.capacity()
    }

    /// Bytes that have arrived and are not part of a frame handed out.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The next whole JSON object or array, `None` until more bytes arrive.
    ///
    /// # Errors
    /// [`FrameError`]; the same one on every later call.
    #[expect(clippy::should_implement_trait, reason = "it lends and can fail")]
    pub fn next(&mut self) -> Result<Option<&[u8]>, FrameError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.start == self.buffer.len() {
            // The peer may say nothing more for a long time.
            self.forget();
            return Ok(None);
        }
        match self.scan() {
            Ok(Some(end)) => {
                let start = std::mem::replace(&mut self.start, end);
                Ok(Some(&self.buffer[start..end]))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.failed = Some(error);
                self.buffer = Vec::new();
                self.start = 0;
                self.scanned = 0;
                Err(error)
            }
        }
    }

    fn scan(&mut self) -> Result<Option<usize>, FrameError> {
        if self.depth == 0 {
            let rest = &self.buffer[self.scanned..];
            let blank = rest.iter().take_while(|b| b" \t\r\n".contains(b)).count();
            self.scanned += blank;
            self.start = self.scanned;
            match self.buffer.get(self.scanned) {
                None => return Ok(None),
                Some(b'{' | b'[') => {}
                Some(&other) => return Err(FrameError::NotJson(other)),
            }
        }
        let end = self.buffer.len().min(self.start.saturating_add(self.limits.max_bytes));
        let (mut depth, mut in_string, mut escaped) = (self.depth, self.in_string, self.escaped);
        for (at, &byte) in self.buffer[..end].iter().enumerate().skip(self.scanned) {
            let class = CLASSES[usize::from(byte)];
            if class == Class::Other {
                escaped = false;
            } else if in_string {
                in_string = escaped || class != Class::Quote;
                escaped = !escaped && class == Class::Backslash;
            } else if class == Class::Open {
                depth += 1;
                if depth > self.limits.max_depth {
                    return Err(FrameError::TooDeep(self.limits.max_depth));
                }
            } else if class == Class::Close {
                depth -= 1;
                if depth == 0 {
                    (self.depth, self.in_string, self.escaped, self.scanned) = (0, false, false, at + 1);
                    return Ok(Some(at + 1));
                }
            } else {
                in_string = class == Class::Quote;
            }
        }
        (self.depth, self.in_string, self.escaped, self.scanned) = (depth, in_string, escaped, end);
        if self.buffer.len() - self.start >= self.limits.max_bytes {
            return Err(FrameError::TooLong(self.limits.max_bytes));
        }
        Ok(None)
    }
}

impl Default for Framer {
    fn default() -> Framer {
        Framer::new()
    }
}

impl fmt::Debug for Framer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Framer")
            .field("pending", &self.pending())
            .field("depth", &self.depth)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(framer: &mut Framer) -> Vec<String> {
        let mut out = Vec::new();
        while let Some(frame) = framer.next().unwrap() {
            out.push(String::from_utf8(frame.to_vec()).unwrap());
        }
        out
    }

    const STREAM: &str = r#" {"a":"}\"]\\"} [1,[2,{"b":{}}]]
        {"\\":"\u005c"}{}"#;
    const FRAMES: [&str; 4] = [r#"{"a":"}\"]\\"}"#, r#"[1,[2,{"b":{}}]]"#, r#"{"\\":"\u005c"}"#, "{}"];

    #[test]
    fn values_that_follow_one_another_are_told_apart() {
        let mut framer = Framer::new();
        framer.push(STREAM.as_bytes());
        assert_eq!(frames(&mut framer), FRAMES);
        assert_eq!(framer.pending(), 0);
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_split_over_reads_does_not_matter(
            cuts in prop::collection::vec(0..STREAM.len(), 0..20)
        ) {
            let mut cuts = cuts;
            cuts.push(STREAM.len());
            cuts.sort_unstable();
            let mut framer = Framer::new();
            let mut got = Vec::new();
            let mut from = 0;
            for to in cuts {
                framer.push(&STREAM.as_bytes()[from..to]);
                got.extend(frames(&mut framer));
                from = to;
            }
            prop_assert_eq!(got, FRAMES);
        }

        #[test]
        fn no_bytes_make_it_panic(chunks in prop::collection::vec(
            prop::collection::vec(prop::sample::select(br#"{}[]"\a ,"#.to_vec()), 0..16), 0..16
        )) {
            let mut framer = Framer::with_limits(Limits { max_bytes: 24, max_depth: 4 });
            for chunk in chunks {
                framer.push(&chunk);
                while let Ok(Some(frame)) = framer.next() {
                    prop_assert!(frame.len() <= 24);
                }
            }
        }
    }

    #[test]
    fn garbage_depth_and_length_are_refused_and_stay_refused() {
        let mut framer = Framer::new();
        framer.push(b"{}GET / HTTP/1.0\r\n");
        assert_eq!(framer.next(), Ok(Some(&b"{}"[..])));
        assert_eq!(framer.next(), Err(FrameError::NotJson(b'G')));
        framer.push(b"{}");
        assert_eq!(framer.next(), Err(FrameError::NotJson(b'G')));

        let mut framer = Framer::new();
        framer.push("[".repeat(1_000_000).as_bytes());
        assert_eq!(framer.next(), Err(FrameError::TooDeep(1000)));
        let mut framer = Framer::new();
        framer.push("[".repeat(1000).as_bytes());
        framer.push("]".repeat(1000).as_bytes());
        assert_eq!(framer.next().unwrap().map(<[u8]>::len), Some(2000));

        let mut framer = Framer::with_limits(Limits {
            max_bytes: 10,
            max_depth: 10,
        });
        framer.push(b"{\"456789\"}[]");
        assert_eq!(framer.next().unwrap().map(<[u8]>::len), Some(10));
        assert_eq!(framer.next(), Ok(Some(&b"[]"[..])));
        framer.push(b"{\"4567890\"}");
        assert_eq!(framer.next(), Err(FrameError::TooLong(10)));
    }

    #[test]
    fn a_message_that_trickles_in_is_scanned_once() {
        let mut framer = Framer::new();
        framer.push(b"[\"");
        for _ in 0..200_000 {
            framer.push(b"x");
            assert_eq!(framer.next(), Ok(None));
        }
        framer.push(b"\"]");
        assert_eq!(framer.next().unwrap().map(<[u8]>::len), Some(200_004));
    }

    #[test]
    fn a_discarded_message_is_told_by_its_outline_and_the_next_is_a_frame() {
        for cut in 1..30 {
            let mut framer = Framer::new();
            let (head, tail) = br#"{"id":1,"params":[[1,"]"],2]}"#.split_at(cut.min(28));
            framer.push(head);
            assert_eq!(framer.next(), Ok(None));
            framer.discard();
            assert_eq!((framer.pending(), framer.memory()), (0, 0));
            framer.push(tail);
            framer.push(br#"{"id":2}"#);
            assert_eq!(
                framer.take_discarded().as_deref(),
                Some(&br#"{"id":1,"params":[]}"#[..]),
                "{cut}"
            );
            assert_eq!(framer.next(), Ok(Some(&br#"{"id":2}"#[..])));
            assert_eq!(framer.take_discarded(), None);
            framer.discard();
            assert_eq!(framer.next(), Ok(None));
        }
    }

    #[test]
    fn a_discarded_message_without_end_is_an_error_all_the_same() {
        let limits = Limits {
            max_bytes: 1000,
            max_depth: 10,
        };
        let mut framer = Framer::with_limits(limits);
        framer.push(b"[");
        assert_eq!(framer.next(), Ok(None));
        framer.discard();
        (0..11).for_each(|_| framer.push(&[b'1'; 100]));
        assert_eq!(framer.next(), Err(FrameError::TooLong(1000)));
        let mut framer = Framer::with_limits(limits);
        framer.push(b"[");
        framer.discard();
        framer.push(&[b'['; 11]);
        assert_eq!(framer.next(), Err(FrameError::TooDeep(10)));
    }
}
