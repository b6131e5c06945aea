//! Values as users type and read them on a command line (ovs-vsctl(8), "Column values"): bare words, quoted strings, `[a, b]`, `{k=v}`,
//! and for sets of integers ranges such as `10-20`.

use crate::atom::{Atom, AtomicType, Resolve};
use crate::datum::Datum;
use crate::error::{Error, ErrorKind};
use crate::types::{BaseType, ColumnType, UNLIMITED, real_text};
use std::fmt::Write as _;

/// The longest range of integers that one word may stand for.
const MAX_RANGE: i64 = 4096;

impl Atom {
    /// The atom as text: strings that could be taken for something else are in quotes.
    pub fn to_text(&self) -> String {
        match self {
            Atom::Integer(value) => value.to_string(),
            Atom::Real(value) => real_text(*value),
            Atom::Boolean(value) => value.to_string(),
            Atom::String(value) if needs_quotes(value) => quoted(value),
            Atom::String(value) => value.to_string(),
            Atom::Uuid(value) => value.to_string(),
        }
    }

    /// The atom as text, strings as they are.
    pub fn to_bare_text(&self) -> String {
        match self {
            Atom::String(value) => value.to_string(),
            _ => self.to_text(),
        }
    }

    /// Parses one atom of type `base`, with `@name` for a UUID that `resolve` knows, and checks it against the type's limits.
    ///
    /// # Errors
    /// `syntax error` or `constraint violation`.
    pub fn from_text(text: &str, base: &BaseType, resolve: Resolve<'_>) -> Result<Atom, Error> {
        let atom = parse_atom(text, base.atomic_type(), resolve)?;
        base.check(&atom)?;
        Ok(atom)
    }
}

impl Datum {
    /// The value as text: a scalar bare, a set in brackets, a map in braces.
    pub fn to_text(&self, kind: &ColumnType) -> String {
        self.render(kind.is_map(), kind.max > 1 || self.is_empty(), Atom::to_text)
    }

    /// The value as text without brackets, braces or quotes.
    pub fn to_bare_text(&self, kind: &ColumnType) -> String {
        self.render(kind.is_map(), false, Atom::to_bare_text)
    }

    /// The elements in brackets, as error messages list them.
    pub(crate) fn display_list(&self) -> String {
        self.render(false, true, Atom::to_text)
    }

    fn render(&self, is_map: bool, delimited: bool, show: fn(&Atom) -> String) -> String {
        let (open, close) = if is_map { ('{', '}') } else { ('[', ']') };
        let mut text = String::new();
        if delimited {
            text.push(open);
        }
        for (at, atom) in self.atoms().iter().enumerate() {
            text.push_str(if at > 0 { ", " } else { "" });
            text.push_str(&show(atom));
        }
        for (at, (key, value)) in self.pairs().iter().enumerate() {
            let _ = write!(text, "{}{}={}", if at > 0 { ", " } else { "" }, show(key), show(value));
        }
        if delimited {
            text.push(close);
        }
        text
    }

    /// Parses a value of type `kind` and checks it against the type's limits.
    ///
    /// Brackets or braces around the elements are optional; elements stand apart by commas or spaces.
    ///
    /// # Errors
    /// `syntax error` or `constraint violation`.
    pub fn from_text(text: &str, kind: &ColumnType, resolve: Resolve<'_>) -> Result<Datum, Error> {
        let mut words = Words { text, at: 0 };
        words.skip_spaces();
        let (open, close) = if kind.is_map() { ('{', '}') } else { ('[', ']') };
        let end = words.take(open).then_some(close);
        let (mut atoms, mut pairs) = (Vec::new(), Vec::new());
        loop {
            words.skip_spaces();
            match words.peek() {
                None if end.is_some() => {
                    return Err(bad(format!("{text}: missing \"{close}\" at end of data")));
                }
                None => break,
                c if c == end => break,
                _ => {}
            }
            let key = words.word()?;
            match &kind.value {
                None => parse_elements(key, &kind.key, kind.max, resolve, &mut atoms)?,
                Some(value_type) => {
                    words.skip_spaces();
                    if !words.take('=') {
                        return Err(match words.peek() {
                            None => bad(format!("{text}: syntax error at end of input expecting \"=\"")),
                            Some(c) => bad(format!("{text}: syntax error at \"{c}\" expecting \"=\"")),
                        });
                    }
                    words.skip_spaces();
                    let value = words.word()?;
                    let key = Atom::from_text(key, &kind.key, resolve)?;
                    pairs.push((key, Atom::from_text(value, value_type, resolve)?));
                }
            }
            words.skip_spaces();
            words.take(',');
        }
        if end.is_some() {
            words.take(close);
            words.skip_spaces();
            if words.peek().is_some() {
                return Err(bad(format!("{text}: trailing garbage after \"{close}\"")));
            }
        }
        sized(text, kind, atoms, pairs)
    }
}

/// Sorts the elements and checks their number.
fn sized(text: &str, kind: &ColumnType, mut atoms: Vec<Atom>, mut pairs: Vec<(Atom, Atom)>) -> Result<Datum, Error> {
    let given = atoms.len() + pairs.len();
    atoms.sort_unstable();
    atoms.dedup();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs.dedup_by(|a, b| a.0 == b.0);
    if atoms.len() + pairs.len() < given {
        let class = if kind.is_map() {
            "map contains duplicate key"
        } else {
            "set contains duplicate value"
        };
        return Err(bad(format!("{text}: {class}")));
    }
    if given < kind.min || given > kind.max {
        let class = if kind.is_map() { "pair(s)" } else { "value(s)" };
        let most = if kind.max == UNLIMITED {
            "unlimited".to_owned()
        } else {
            kind.max.to_string()
        };
        return Err(bad(format!(
            "{text}: {given} {class} specified but the required number is {} to {most}",
            kind.min
        )));
    }
    Ok(if kind.is_map() {
        Datum::from_sorted_map(pairs)
    } else {
        Datum::from_sorted_set(atoms)
    })
}

/// Parses one word of a set: an atom, or a range of integers.
fn parse_elements(
    word: &str,
    base: &BaseType,
    max: usize,
    resolve: Resolve<'_>,
    atoms: &mut Vec<Atom>,
) -> Result<(), Error> {
    let range = (base.atomic_type() == AtomicType::Integer && max > 1)
        .then(|| integer_range(word))
        .flatten();
    let Some((first, last)) = range else {
        atoms.push(Atom::from_text(word, base, resolve)?);
        return Ok(());
    };
    if first > last {
        return Err(bad(format!(
            "\"{word}\" is not a valid range. Range end cannot be before start."
        )));
    }
    if last.saturating_sub(first) >= MAX_RANGE {
        return Err(bad(format!(
            "\"{word}\" is not a valid range. Range exceeds {MAX_RANGE} values."
        )));
    }
    for value in first..=last {
        let atom = Atom::Integer(value);
        base.check(&atom)?;
        atoms.push(atom);
    }
    Ok(())
}

/// `first-last`, where a minus in front is a sign.
fn integer_range(word: &str) -> Option<(i64, i64)> {
    let hyphen = word.get(1..)?.find('-')? + 1;
    Some((word[..hyphen].parse().ok()?, word[hyphen + 1..].parse().ok()?))
}

fn parse_atom(text: &str, kind: AtomicType, resolve: Resolve<'_>) -> Result<Atom, Error> {
    let invalid = |what: &str| bad(format!("\"{text}\" is not a valid {what}"));
    match kind {
        AtomicType::Integer => text.parse().map(Atom::Integer).map_err(|_| invalid("integer")),
        AtomicType::Real => {
            let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
            value
                .map(|value| Atom::Real(value + 0.0))
                .ok_or_else(|| invalid("real number"))
        }
        AtomicType::Boolean => match text {
            "true" | "yes" | "on" | "1" => Ok(Atom::Boolean(true)),
            "false" | "no" | "off" | "0" => Ok(Atom::Boolean(false)),
            _ => Err(invalid("boolean (use \"true\" or \"false\")")),
        },
        AtomicType::String => parse_string(text),
        AtomicType::Uuid if text.starts_with('@') => match resolve(text) {
            Some(uuid) => Ok(Atom::Uuid(uuid)),
            None => Err(invalid("UUID")),
        },
        AtomicType::Uuid => text.parse().map(Atom::Uuid).map_err(|_| invalid("UUID")),
    }
}

fn parse_string(text: &str) -> Result<Atom, Error> {
    if text.is_empty() {
        return Err(bad(
            "An empty string is not valid as input; use \"\" to represent the empty string",
        ));
    }
    if !text.starts_with('"') {
        return Ok(Atom::string(text));
    }
    if text.len() < 2 || !text.ends_with('"') {
        return Err(bad(format!("{text}: missing quote at end of quoted string")));
    }
    match serde_json::from_str::<String>(text) {
        Ok(text) => Ok(Atom::string(text)),
        Err(_) => Err(bad(format!("{text}: not a valid quoted string"))),
    }
}

/// Whether a string would be read as something else without quotes.
fn needs_quotes(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_');
    !first
        || !bytes.all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'))
        || text == "true"
        || text == "false"
        || is_partial_uuid(text)
}

/// Whether `text` could be the beginning of a UUID, at least 8 digits of it.
fn is_partial_uuid(text: &str) -> bool {
    let fits = |(at, c): (usize, u8)| {
        if matches!(at, 8 | 13 | 18 | 23) {
            c == b'-'
        } else {
            c.is_ascii_hexdigit()
        }
    };
    (8..=36).contains(&text.len()) && text.bytes().enumerate().all(fits)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn bad(details: impl Into<String>) -> Error {
    Error::new(ErrorKind::Syntax, details)
}

/// Cuts text into words at the characters that separate values.
struct Words<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Words<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let taken = self.peek() == Some(c);
        self.at += if taken { c.len_utf8() } else { 0 };
        taken
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    /// The next word, with its quotes if it has some.
    fn word(&mut self) -> Result<&'a str, Error> {
        let rest = self.rest();
        let length = if rest.starts_with('"') {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|&(_, c)| {
                let end = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                end
            });
            end.ok_or_else(|| bad(format!("{}: missing quote at end of quoted string", self.text)))?
                .0
                + 1
        } else {
            rest.find([':', '=', ',', ' ', '[', ']', '{', '}', '!', '<', '>'])
                .unwrap_or(rest.len())
        };
        if length == 0 {
            let c = self.peek().unwrap_or(' ');
            return Err(bad(format!(
                "{}: unexpected \"{c}\" where a value should be",
                self.text
            )));
        }
        self.at += length;
        Ok(&rest[..length])
    }
}
