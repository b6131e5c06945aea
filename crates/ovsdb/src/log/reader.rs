//! Reads records.

use super::sum::Sum;
use crate::json::parse_json;
use serde_json::{Map, Value};
use std::io::{BufRead, Read};

/// The longest header line that makes sense, in bytes.
const MAX_HEADER: u64 = 256;

/// A record of a database file.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Where its header begins, in bytes from the beginning of the file.
    pub offset: u64,
    /// Its JSON object.
    pub json: Map<String, Value>,
}

/// Why a file could not be read further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{offset}: {reason}")]
pub struct Damage {
    /// Where the bad record begins: the length of the good part of the file, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}

/// Yields the records of a database file, to the end or to the first that is damaged.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    offset: u64,
    damage: Option<Damage>,
    body: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `input`, which stands at the beginning of a file.
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            offset: 0,
            damage: None,
            body: Vec::new(),
        }
    }

    /// The length of the part that was read and is good, in bytes.
    pub fn good_length(&self) -> u64 {
        self.offset
    }

    /// The damage that ended the reading, if it was not the end of the file.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    fn read(&mut self) -> Result<Option<Record>, String> {
        let mut header = Vec::new();
        let limited = (&mut self.input).take(MAX_HEADER).read_until(b'\n', &mut header);
        limited.map_err(|error| format!("read error: {error}"))?;
        if header.is_empty() {
            return Ok(None);
        }
        let (length, sum) = parse_header(&header)?;
        self.body.clear();
        // Memory grows with the bytes read, not with the length that the header claims.
        let read = (&mut self.input).take(length).read_to_end(&mut self.body);
        read.map_err(|error| format!("read error: {error}"))?;
        if (self.body.len() as u64) < length {
            return Err(format!(
                "{} bytes are missing at the end of the file",
                length - self.body.len() as u64
            ));
        }
        let actual = Sum::of(&self.body);
        if !actual.as_str().eq_ignore_ascii_case(sum) {
            let actual = actual.as_str();
            return Err(format!(
                "{length} bytes have SHA-1 hash {actual} but expected hash {sum}"
            ));
        }
        let json = parse_json(&self.body).map_err(|error| format!("{length} bytes are not valid JSON: {error}"))?;
        let Value::Object(json) = json else {
            return Err("the record is not a JSON object".to_owned());
        };
        let record = Record {
            offset: self.offset,
            json,
        };
        self.offset += header.len() as u64 + length;
        Ok(Some(record))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Record;

    /// The next good record; `None` at the end of the file and at damage, see [`Reader::damage`].
    fn next(&mut self) -> Option<Record> {
        if self.damage.is_some() {
            return None;
        }
        match self.read() {
            Ok(record) => record,
            Err(reason) => {
                self.damage = Some(Damage {
                    offset: self.offset,
                    reason,
                });
                None
            }
        }
    }
}

/// The length and the SHA-1 in a header line.
fn parse_header(header: &[u8]) -> Result<(u64, &str), String> {
    let bad = || "the header line of a record is damaged".to_owned();
    let line = header.strip_suffix(b"\n").ok_or_else(bad)?;
    let line = std::str::from_utf8(line).map_err(|_| bad())?;
    let rest = line.strip_prefix("OVSDB ").ok_or_else(bad)?;
    let (magic, rest) = rest.split_once(' ').ok_or_else(bad)?;
    if magic != "JSON" {
        return Err(format!(
            "a record of kind {magic} is in a file that should have JSON records only"
        ));
    }
    let (length, sum) = rest.split_once(' ').ok_or_else(bad)?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let length = Some(length)
        .filter(|length| digits(length))
        .and_then(|length| length.parse().ok())
        .ok_or_else(bad)?;
    if sum.len() != 40 || !sum.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(bad());
    }
    Ok((length, sum))
}
