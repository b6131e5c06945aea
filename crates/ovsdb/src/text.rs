//! Values as users type and read them on a command line (ovs-vsctl(8), "Column values"): bare
//! words, quoted strings, `[a, b]`, `{k=v}`, and for sets of integers ranges such as `10-20`.

use crate::atom::{Atom, AtomicType, Resolve};
use crate::datum::Datum;
use crate::error::{Error, ErrorKind};
use crate::json::parse_json;
use crate::types::{BaseType, ColumnType, real_text};
use std::fmt::Write as _;

/// The longest range of integers that one word may stand for.
const MAX_RANGE: i64 = 4096;

impl Atom {
    /// The atom as text. Strings are in quotes if they would be read as something else without.
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

    /// Parses one atom of type `base`, with `@name` for a UUID that `resolve` knows, and checks it
    /// against the type's limits.
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
    /// Brackets or braces around the elements are optional; commas or spaces separate elements.
    ///
    /// # Errors
    /// `syntax error` or `constraint violation`.
    pub fn from_text(text: &str, kind: &ColumnType, resolve: Resolve<'_>) -> Result<Datum, Error> {
        let (open, close) = if kind.is_map() { ('{', '}') } else { ('[', ']') };
        let mut rest = text.trim_start_matches(' ');
        let end = rest.starts_with(open).then_some(close);
        if end.is_some() {
            rest = rest[1..].trim_start_matches(' ');
        } else if rest.is_empty() {
            let class = if kind.is_map() { "map" } else { "set" };
            return Err(bad(format!("use \"{open}{close}\" to specify the empty {class}")));
        }
        let (mut atoms, mut pairs) = (Vec::new(), Vec::new());
        while let Some(c) = rest.chars().next().filter(|c| Some(*c) != end) {
            if is_delimiter(c) {
                return Err(bad(format!("{text}: unexpected \"{c}\" parsing {}", kind.describe())));
            }
            let (key, after) = split_token(rest)?;
            match &kind.value {
                None => parse_elements(key, &kind.key, resolve, &mut atoms)?,
                Some(value_type) => {
                    let key_atom = Atom::from_text(key, &kind.key, resolve)?;
                    let Some(after) = after.trim_start_matches(' ').strip_prefix('=') else {
                        return Err(expected_equals(rest, after));
                    };
                    let (value, after) = split_token(after.trim_start_matches(' '))?;
                    pairs.push((key_atom, Atom::from_text(value, value_type, resolve)?));
                    rest = after;
                }
            }
            if kind.value.is_none() {
                rest = after;
            }
            rest = rest.trim_start_matches(' ');
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start_matches(' ');
        }
        if let Some(close) = end {
            let Some(after) = rest.strip_prefix(close) else {
                return Err(bad(format!("{text}: missing \"{close}\" at end of data")));
            };
            if !after.trim_start_matches(' ').is_empty() {
                return Err(bad(format!("{text}: trailing garbage after \"{close}\"")));
            }
        }
        sized(text, kind, atoms, pairs)
    }
}

/// Splits a token off the front of `text`: what comes before the next space or character of
/// `:=,[]{}!<>` outside double quotes.
///
/// # Errors
/// `syntax error` when quotes are not closed.
pub fn split_token(text: &str) -> Result<(&str, &str), Error> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        if quoted {
            quoted = escaped || c != '"';
            escaped = c == '\\' && !escaped;
        } else if c == '"' {
            quoted = true;
        } else if is_delimiter(c) {
            return Ok(text.split_at(at));
        }
    }
    if quoted {
        return Err(bad(format!("{text}: quoted string extends past end of argument")));
    }
    Ok((text, ""))
}

fn is_delimiter(c: char) -> bool {
    matches!(c, ':' | '=' | ',' | ' ' | '[' | ']' | '{' | '}' | '!' | '<' | '>')
}

fn expected_equals(from: &str, after: &str) -> Error {
    bad(match after.trim_start_matches(' ').chars().next() {
        Some(c) => format!("{from}: syntax error at \"{c}\" expecting \"=\""),
        None => format!("{from}: syntax error at end of argument expecting \"=\""),
    })
}

/// Sorts the elements and checks their number.
fn sized(text: &str, kind: &ColumnType, mut atoms: Vec<Atom>, mut pairs: Vec<(Atom, Atom)>) -> Result<Datum, Error> {
    let given = atoms.len() + pairs.len();
    let class = if kind.is_map() { "pair(s)" } else { "value(s)" };
    if given < kind.min {
        let min = kind.min;
        return Err(bad(format!(
            "{text}: {given} {class} specified but the minimum number is {min}"
        )));
    }
    if given > kind.max {
        let max = kind.max;
        return Err(bad(format!(
            "{text}: {given} {class} specified but the maximum number is {max}"
        )));
    }
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
    Ok(if kind.is_map() {
        Datum::from_sorted_map(pairs)
    } else {
        Datum::from_sorted_set(atoms)
    })
}

/// Parses one word of a set: an atom, or a range of integers.
fn parse_elements(word: &str, base: &BaseType, resolve: Resolve<'_>, atoms: &mut Vec<Atom>) -> Result<(), Error> {
    let range = (base.atomic_type() == AtomicType::Integer)
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
    base.check(&Atom::Integer(first))?;
    base.check(&Atom::Integer(last))?;
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

/// `first-last`; a leading minus is a sign.
fn integer_range(word: &str) -> Option<(i64, i64)> {
    let hyphen = word.get(1..)?.find('-')? + 1;
    Some((word[..hyphen].parse().ok()?, word[hyphen + 1..].parse().ok()?))
}

fn parse_atom(text: &str, kind: AtomicType, resolve: Resolve<'_>) -> Result<Atom, Error> {
    let invalid = |what: &str| bad(format!("\"{text}\" is not a valid {what}"));
    match kind {
        AtomicType::Integer => text.parse().map(Atom::Integer).map_err(|_| invalid("integer or range")),
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
    parse_json::<String>(text.as_bytes())
        .map(Atom::string)
        .map_err(|_| bad(format!("{text}: {}", quoting_error(text))))
}

/// The error for a quoted string that is not a JSON string.
fn quoting_error(text: &str) -> String {
    let inside = text.get(1..text.len() - 1).unwrap_or_default();
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return "quoted string may not include unescaped \"".to_owned(),
            '\\' => match chars.next() {
                None => return "quoted string may not end with backslash".to_owned(),
                Some('u') => {
                    let digits: String = chars.by_ref().take(4).collect();
                    if digits.len() < 4 {
                        return "quoted string ends within \\u escape".to_owned();
                    }
                    if !digits.chars().all(|digit| digit.is_ascii_hexdigit()) {
                        return "malformed \\u escape".to_owned();
                    }
                    if digits == "0000" {
                        return "null bytes not supported in quoted strings".to_owned();
                    }
                }
                Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't') => {}
                Some(other) => return format!("bad escape \\{other}"),
            },
            _ => {}
        }
    }
    "not a valid quoted string".to_owned()
}

/// Whether a string would be read as something else without quotes.
fn needs_quotes(text: &str) -> bool {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_');
    !first
        || !bytes.all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'))
        || text == "true"
        || text == "false"
        || text.get(..36).is_some_and(|start| start.parse::<crate::Uuid>().is_ok())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn bad(details: impl Into<String>) -> Error {
    Error::new(ErrorKind::Syntax, details)
}
