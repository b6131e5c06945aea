//! Reads a discarded message: finds its end, and keeps enough of it for an error reply to its `id`.
//!
//! It keeps the outline: the message without the contents of its arrays and objects, such as
//! `{"id":7,"method":"transact","params":[]}`.

/// The longest outline that is kept, in bytes.
const LONGEST: usize = 4096;

/// A message that is being discarded.
#[derive(Debug, Default)]
pub(super) struct Skim {
    depth: u32,
    in_string: bool,
    escaped: bool,
    outline: Vec<u8>,
    length: usize,
}

impl Skim {
    /// Takes the next bytes. Returns how many of them the message had left, if it ends among them.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, &byte) in bytes.iter().enumerate() {
            let before = self.depth;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' if !self.in_string => self.depth += 1,
                b'}' | b']' if !self.in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if before.min(self.depth) <= 1 && self.outline.len() < LONGEST {
                self.outline.push(byte);
            }
            if self.depth == 0 && before > 0 {
                self.length += at + 1;
                return Some(at + 1);
            }
        }
        self.length += bytes.len();
        None
    }

    /// Arrays and objects that are open.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// The bytes of the message so far.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The outline. It is no JSON if it was longer than [`LONGEST`].
    pub(super) fn into_outline(self) -> Vec<u8> {
        self.outline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outline_of_a_message_has_its_id_however_it_is_cut() {
        let message = br#"{"params":["D",{"op":"]}\"","row":{"a":[1]}}],"id":7,"method":"tr}a\"nsact"} {"next":1}"#;
        let end = message.len() - r#" {"next":1}"#.len();
        for piece in 1..message.len() {
            let mut skim = Skim::default();
            let mut taken = 0;
            let found = message.chunks(piece).find_map(|chunk| {
                let found = skim.feed(chunk);
                taken += found.unwrap_or(chunk.len());
                found
            });
            assert!(found.is_some());
            assert_eq!((taken, skim.length()), (end, end));
            assert_eq!(skim.into_outline(), br#"{"params":[],"id":7,"method":"tr}a\"nsact"}"#);
        }
    }

    #[test]
    fn a_long_outline_is_cut() {
        let mut skim = Skim::default();
        assert_eq!(skim.feed(b"{"), None);
        assert_eq!(skim.feed(&[b'1'; 10_000]), None);
        assert_eq!(skim.feed(b"}x"), Some(1));
        assert_eq!(skim.into_outline().len(), LONGEST);
    }
}
