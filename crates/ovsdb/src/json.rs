//! Parsed JSON: a [`Value`], or a [`Node`], which costs a fraction of it.
//!
//! Most transactions have no escapes in strings and no fractions. [`Node::parse`] parses such text
//! without an allocation for each string, array and object: strings are borrowed from the text, the
//! rest is in an [`Arena`]. `serde_json` parses all other text.

use bumpalo::Bump;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;
use smallvec::SmallVec;

/// The type of a JSON value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean,
    /// Any number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// Parses JSON that a peer, a file or a user supplied.
///
/// Strings must not contain NUL. Open vSwitch's programs disconnect when they receive one, so a
/// single such string in the database would lock them all out.
///
/// # Errors
/// The parser's, or the byte offset of the first `\u0000`.
pub fn parse_json<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, serde_json::Error> {
    refuse_nul(text)?;
    serde_json::from_slice(text)
}

/// Refuses JSON text with an escaped NUL, with Open vSwitch's message. Every parser refuses a NUL
/// that is not escaped.
///
/// # Errors
/// The byte offset of the first one.
pub fn refuse_nul(text: &[u8]) -> Result<(), serde_json::Error> {
    let mut at = 0;
    while let Some(skip) = text[at..].iter().position(|&byte| byte == b'\\') {
        at += skip;
        if text[at..].starts_with(br"\u0000") {
            let error = format!("null bytes not supported in quoted strings at byte {at}");
            return Err(serde_json::Error::custom(error));
        }
        // The second byte of an escape never begins another.
        at = (at + 2).min(text.len());
    }
    Ok(())
}

/// A JSON value in any representation.
pub trait Json: Sized {
    /// Its type.
    fn kind(&self) -> JsonKind;

    /// The boolean, if it is one.
    fn as_bool(&self) -> Option<bool>;

    /// The number, if it is an integer of 64 bits.
    fn as_i64(&self) -> Option<i64>;

    /// The number, if it is one.
    fn as_f64(&self) -> Option<f64>;

    /// The string, if it is one.
    fn as_str(&self) -> Option<&str>;

    /// The elements, if it is an array.
    fn as_array(&self) -> Option<&[Self]>;

    /// The member of that name and the object's copy of the name, if it is an object with such a
    /// member.
    fn member(&self, name: &str) -> Option<(&str, &Self)>;

    /// The members in the order of their names; none if it is not an object.
    fn members(&self) -> impl Iterator<Item = (&str, &Self)>;

    /// The number of members; 0 if it is not an object.
    fn n_members(&self) -> usize;

    /// A copy.
    fn to_value(&self) -> Value;
}

impl Json for Value {
    fn kind(&self) -> JsonKind {
        match self {
            Value::Null => JsonKind::Null,
            Value::Bool(_) => JsonKind::Boolean,
            Value::Number(_) => JsonKind::Number,
            Value::String(_) => JsonKind::String,
            Value::Array(_) => JsonKind::Array,
            Value::Object(_) => JsonKind::Object,
        }
    }

    fn as_bool(&self) -> Option<bool> {
        self.as_bool()
    }

    fn as_i64(&self) -> Option<i64> {
        self.as_i64()
    }

    fn as_f64(&self) -> Option<f64> {
        self.as_f64()
    }

    fn as_str(&self) -> Option<&str> {
        self.as_str()
    }

    fn as_array(&self) -> Option<&[Value]> {
        self.as_array().map(Vec::as_slice)
    }

    fn member(&self, name: &str) -> Option<(&str, &Value)> {
        let (name, value) = self.as_object()?.get_key_value(name)?;
        Some((name, value))
    }

    fn members(&self) -> impl Iterator<Item = (&str, &Value)> {
        let members = self.as_object().into_iter().flatten();
        members.map(|(name, value)| (name.as_str(), value))
    }

    fn n_members(&self) -> usize {
        self.as_object().map_or(0, serde_json::Map::len)
    }

    fn to_value(&self) -> Value {
        self.clone()
    }
}

/// The memory of [`Node`]s.
#[derive(Debug, Default)]
pub struct Arena(Bump);

impl Arena {
    /// Frees the nodes, but keeps up to [`Arena::KEEP`] bytes of memory for the next ones.
    pub fn clear(&mut self) {
        if self.0.allocated_bytes() > Arena::KEEP {
            self.0 = Bump::new();
        } else {
            self.0.reset();
        }
    }

    /// Most bytes that an arena without nodes uses.
    pub const KEEP: usize = 256 << 10;
}

/// A JSON value in borrowed memory, whose strings have no escapes and whose numbers are integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Node<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean(bool),
    /// A number.
    Integer(i64),
    /// A string.
    String(&'a str),
    /// An array.
    Array(&'a [Node<'a>]),
    /// An object: its members, sorted by their names, which are unique.
    Object(&'a [(&'a str, Node<'a>)]),
}

/// The deepest nesting of nodes.
const MAX_DEPTH: u32 = 64;

impl<'a> Node<'a> {
    /// Parses a text that is one JSON value. `None` if it is not, or if nodes cannot represent it.
    pub fn parse(text: &'a str, arena: &'a Arena) -> Option<Node<'a>> {
        let mut reader = Reader { text, at: 0, arena };
        let node = reader.value(MAX_DEPTH)?;
        reader.skip_blanks();
        (reader.at == text.len()).then_some(node)
    }
}

impl Json for Node<'_> {
    fn kind(&self) -> JsonKind {
        match self {
            Node::Null => JsonKind::Null,
            Node::Boolean(_) => JsonKind::Boolean,
            Node::Integer(_) => JsonKind::Number,
            Node::String(_) => JsonKind::String,
            Node::Array(_) => JsonKind::Array,
            Node::Object(_) => JsonKind::Object,
        }
    }

    fn as_bool(&self) -> Option<bool> {
        if let Node::Boolean(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    fn as_i64(&self) -> Option<i64> {
        if let Node::Integer(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    fn as_f64(&self) -> Option<f64> {
        self.as_i64().map(|value| value as f64)
    }

    fn as_str(&self) -> Option<&str> {
        if let Node::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    fn as_array(&self) -> Option<&[Self]> {
        if let Node::Array(elements) = self {
            Some(elements)
        } else {
            None
        }
    }

    fn member(&self, name: &str) -> Option<(&str, &Self)> {
        let Node::Object(members) = self else { return None };
        let (name, value) = members.iter().find(|(member, _)| *member == name)?;
        Some((name, value))
    }

    fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let members: &[(&str, Self)] = if let Node::Object(members) = self { members } else { &[] };
        members.iter().map(|(name, value)| (*name, value))
    }

    fn n_members(&self) -> usize {
        if let Node::Object(members) = self {
            members.len()
        } else {
            0
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Node::Null => Value::Null,
            Node::Boolean(value) => (*value).into(),
            Node::Integer(value) => (*value).into(),
            Node::String(text) => (*text).into(),
            Node::Array(elements) => Value::Array(elements.iter().map(Node::to_value).collect()),
            Node::Object(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), value.to_value()));
                Value::Object(members.collect())
            }
        }
    }
}

/// Parses nodes. `None` always means that nodes cannot represent the text.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    arena: &'a Arena,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// The next byte that is not a blank.
    fn next(&mut self) -> Option<u8> {
        self.skip_blanks();
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn value(&mut self, depth: u32) -> Option<Node<'a>> {
        match self.next()? {
            b'"' => self.string().map(Node::String),
            b'[' => self.array(depth.checked_sub(1)?),
            b'{' => self.object(depth.checked_sub(1)?),
            b't' => self.word("rue", Node::Boolean(true)),
            b'f' => self.word("alse", Node::Boolean(false)),
            b'n' => self.word("ull", Node::Null),
            _ => self.integer(),
        }
    }

    /// The rest of a string that has begun.
    fn string(&mut self) -> Option<&'a str> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let length = rest
            .iter()
            .position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        if rest[length] != b'"' {
            return None;
        }
        let text = self.text.get(self.at..self.at + length)?;
        self.at += length + 1;
        Some(text)
    }

    fn array(&mut self, depth: u32) -> Option<Node<'a>> {
        self.skip_blanks();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(Node::Array(&[]));
        }
        let mut elements: SmallVec<[Node<'a>; 8]> = SmallVec::new();
        loop {
            elements.push(self.value(depth)?);
            match self.next()? {
                b',' => {}
                b']' => return Some(Node::Array(self.arena.0.alloc_slice_copy(&elements))),
                _ => return None,
            }
        }
    }

    fn object(&mut self, depth: u32) -> Option<Node<'a>> {
        self.skip_blanks();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(Node::Object(&[]));
        }
        let mut members: SmallVec<[(&'a str, Node<'a>); 6]> = SmallVec::new();
        loop {
            if self.next()? != b'"' {
                return None;
            }
            let name = self.string()?;
            if self.next()? != b':' {
                return None;
            }
            members.push((name, self.value(depth)?));
            match self.next()? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        members.sort_unstable_by(|a, b| a.0.cmp(b.0));
        if members.windows(2).any(|two| two[0].0 == two[1].0) {
            return None;
        }
        Some(Node::Object(self.arena.0.alloc_slice_copy(&members)))
    }

    /// The rest of a word.
    fn word(&mut self, rest: &str, node: Node<'a>) -> Option<Node<'a>> {
        let found = self.text.as_bytes().get(self.at..)?.starts_with(rest.as_bytes());
        self.at += rest.len();
        found.then_some(node)
    }

    /// An integer whose first character was read: at most 18 digits, and not minus zero, which
    /// `serde_json` parses as a fraction.
    fn integer(&mut self) -> Option<Node<'a>> {
        let from = self.at - 1;
        let bytes = self.text.as_bytes();
        let negative = bytes[from] == b'-';
        let digits = from + usize::from(negative);
        let mut value = 0i64;
        let mut end = digits;
        while let Some(digit @ b'0'..=b'9') = bytes.get(end) {
            value = value.wrapping_mul(10).wrapping_add(i64::from(digit - b'0'));
            end += 1;
        }
        let length = end - digits;
        let strange = bytes.get(digits) == Some(&b'0') && (length > 1 || negative);
        if length == 0 || length > 18 || strange || matches!(bytes.get(end), Some(b'.' | b'e' | b'E')) {
            return None;
        }
        self.at = end;
        Some(Node::Integer(if negative { -value } else { value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_text_is_read_as_others_read_it() {
        let arena = Arena::default();
        for text in [
            "null",
            " true ",
            "false",
            "0",
            "-7",
            "999999999999999999",
            "\"\"",
            "\"h\u{e9}llo\"",
            "[]",
            "[ ]",
            "{}",
            "[1, [2,3] ,{\"a\":[null]}]",
            "{ \"b\" : 1 , \"a\" : {\"z\":true,\"\":[\"x\"]} }\n",
        ] {
            let node = Node::parse(text, &arena).unwrap_or_else(|| panic!("{text} is read"));
            assert_eq!(node.to_value(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn what_nodes_are_not_made_for_is_left_to_others() {
        let arena = Arena::default();
        for text in [
            "",
            " ",
            "1.0",
            "1e3",
            "-0",
            "01",
            "-",
            "9999999999999999999",
            "\"\\n\"",
            "\"a\nb\"",
            "\"open",
            "[1",
            "[1,]",
            "[1 2]",
            "{\"a\":1,\"a\":2}",
            "{\"a\"}",
            "{a:1}",
            "tru",
            "nul",
            "truex",
            "1 2",
            "+1",
            "[1]]",
        ] {
            assert_eq!(Node::parse(text, &arena), None, "{text}");
        }
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(Node::parse(&deep(64), &arena).is_some());
        assert_eq!(Node::parse(&deep(65), &arena), None);
    }

    #[test]
    fn an_escaped_nul_is_refused_wherever_it_is() {
        for (text, at) in [
            (r#""\u0000""#, 1),
            (r#"["a", "b\u0000c"]"#, 8),
            (r#"{"a\u0000": 1}"#, 3),
            (r#""\\\u0000""#, 3),
        ] {
            let error = parse_json::<Value>(text.as_bytes()).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("null bytes not supported in quoted strings at byte {at}"),
                "{text}"
            );
            assert_eq!(Node::parse(text, &Arena::default()), None, "{text}");
        }
        for text in [r#""\\u0000""#, r#""\u0001""#, r#""\n\\""#] {
            parse_json::<Value>(text.as_bytes()).unwrap();
        }
        assert!(parse_json::<Value>(br#""\"#).is_err());
    }

    const WORDS: [&str; 18] = [
        "[", "]", "{", "}", ",", ":", "\"a\"", "\"b\":", "\"", "\\", "12", "-", "0", ".5", "e", "true", "null", " ",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 8))]

        #[test]
        fn whatever_is_read_is_what_others_read(
            words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..12)
        ) {
            let text = words.concat();
            let arena = Arena::default();
            if let Some(node) = Node::parse(&text, &arena) {
                prop_assert_eq!(node.to_value(), serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }

    #[test]
    fn an_arena_keeps_little_memory() {
        let mut arena = Arena::default();
        let text = format!("[{}1]", "1,".repeat(100_000));
        assert!(Node::parse(&text, &arena).is_some());
        assert!(arena.0.allocated_bytes() > Arena::KEEP);
        arena.clear();
        assert!(arena.0.allocated_bytes() <= Arena::KEEP);
    }
}
