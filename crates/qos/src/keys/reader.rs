//! Reads a row's keys one by one and keeps track of the unread ones.

use super::{KeyError, Row, Strings};
use crate::{ConfigError, Curve, Rate};

/// The longest first piece of a service curve, in microseconds.
const MOST_MICROS: u64 = 60_000_000;

pub(super) struct Reader<'a> {
    row: Row,
    map: &'a Strings,
    read: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(row: Row, map: &'a Strings) -> Reader<'a> {
        Reader {
            row,
            map,
            read: Vec::new(),
        }
    }

    pub(super) fn row(&self) -> Row {
        self.row
    }

    /// Unread keys.
    pub(super) fn unread(&self) -> impl Iterator<Item = &'a str> {
        let keys = self.map.keys().map(String::as_str);
        keys.filter(|key| !self.read.contains(key))
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        self.read.push(key);
        self.map.get(key).map(String::as_str)
    }

    /// A whole number in a unit. One that is too large for 64 bits is the largest of them, for a
    /// range to refuse.
    pub(super) fn number(&mut self, key: &'static str, unit: &str) -> Result<Option<u64>, KeyError> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        match whole(text) {
            Some(number) => Ok(Some(number)),
            None => Err(self.refuse(key, format!("not a whole number of {unit}"))),
        }
    }

    /// A rate in bit/s, at least 1.
    pub(super) fn rate(&mut self, key: &'static str) -> Result<Option<u64>, KeyError> {
        let number = self.number(key, "bit/s")?;
        number
            .map(|bits| self.check(Rate::new(key, bits)).map(|_| bits))
            .transpose()
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, KeyError> {
        match self.text(key) {
            None => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(self.refuse(key, "neither true nor false")),
        }
    }

    /// A service curve: a rate in bit/s, or `M1/D/M2` in bit/s, microseconds, bit/s.
    pub(super) fn curve(&mut self, key: &'static str) -> Result<Option<Curve>, KeyError> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        let parts: Option<Vec<u64>> = text.split('/').map(whole).collect();
        let curve = match parts.as_deref() {
            Some(&[rate]) => Curve::linear(key, rate),
            Some(&[_, d, _]) if d > MOST_MICROS => {
                return Err(self.refuse(key, format!("its time is not between 0 and {MOST_MICROS} µs")));
            }
            Some(&[m1, d, m2]) => Curve::new(key, m1, d, m2),
            _ => {
                return Err(self.refuse(key, "neither a rate in bit/s nor M1/D/M2 in bit/s, µs, bit/s"));
            }
        };
        self.check(curve).map(Some)
    }

    /// Adds the row to a configuration's error.
    pub(super) fn check<T>(&self, result: Result<T, ConfigError>) -> Result<T, KeyError> {
        result.map_err(|error| match error {
            ConfigError::OutOfRange { key, least, most, .. } => {
                self.refuse(key, format!("not between {least} and {most}"))
            }
            ConfigError::Form { key, wanted, .. } => self.refuse(key, format!("not {wanted}")),
            ConfigError::Missing { key, kind } => self.refuse(key, format!("required by {kind}")),
            ConfigError::Unsuitable { key, reason } => self.refuse(key, reason),
            other => self.refuse("parent", other.to_string()),
        })
    }

    /// An error in a key of this row.
    pub(super) fn refuse(&self, key: &str, rule: impl Into<String>) -> KeyError {
        KeyError {
            row: self.row,
            key: key.to_owned(),
            value: self.map.get(key).cloned(),
            rule: rule.into(),
        }
    }
}

/// Digits only: `str::parse` would take a sign.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}
