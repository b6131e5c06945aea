//! Reading IPFIX messages (RFC 7011), by the templates that came before.

use std::collections::BTreeMap;

/// A reader of messages, by the templates in them.
#[derive(Debug, Default)]
pub struct Reader {
    /// The fields of templates and their lengths, by domain and number.
    pub templates: BTreeMap<(u32, u16), Vec<(u32, usize)>>,
    /// Data records read, by domain.
    pub read: BTreeMap<u32, u32>,
    /// Whether to read as Open vSwitch writes: sequence numbers count messages, and the templates
    /// of one domain are those of all.
    pub lax: bool,
}

/// A record: its template, and its fields by number; enterprises' have 0x10000 added.
pub type Record = (u16, Vec<(u32, Vec<u8>)>);

/// A number in network order.
pub fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Cuts bytes off the front.
fn cut<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(len);
    *bytes = rest;
    front
}

impl Reader {
    /// The records of messages.
    ///
    /// # Panics
    /// A message is not whole, has no template, or has another number than the records before it.
    #[track_caller]
    pub fn read(&mut self, messages: &[Vec<u8>]) -> Vec<Record> {
        messages.iter().flat_map(|message| self.message(message)).collect()
    }

    /// The records of a message.
    ///
    /// # Panics
    /// As [`Reader::read`].
    #[track_caller]
    pub fn message(&mut self, message: &[u8]) -> Vec<Record> {
        assert!(message.len() <= 1400, "{}", message.len());
        let mut rest = message;
        assert_eq!(be(cut(&mut rest, 2)), 10);
        assert_eq!(be(cut(&mut rest, 2)) as usize, message.len());
        cut(&mut rest, 4);
        let (sequence, domain) = (be(cut(&mut rest, 4)) as u32, be(cut(&mut rest, 4)) as u32);
        if domain != 0 && !self.lax {
            assert_eq!(sequence, self.read.get(&domain).copied().unwrap_or_default());
        }
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (set, len) = (be(cut(&mut rest, 2)) as u16, be(cut(&mut rest, 2)) as usize);
            let mut content = cut(&mut rest, len - 4);
            while !content.is_empty() {
                match set {
                    2 | 3 => self.template(domain, set == 3, &mut content),
                    _ => {
                        records.push((set, self.record(domain, set, &mut content)));
                        *self.read.entry(domain).or_default() += 1;
                    }
                }
            }
        }
        records
    }

    fn template(&mut self, domain: u32, options: bool, content: &mut &[u8]) {
        let (number, count) = (be(cut(content, 2)) as u16, be(cut(content, 2)));
        if options {
            cut(content, 2);
        }
        let mut field = || {
            let (number, len) = (be(cut(content, 2)) as u32, be(cut(content, 2)) as usize);
            if number & 0x8000 == 0 {
                return (number, len);
            }
            assert_eq!(be(cut(content, 4)), 6876);
            (number & 0x7fff | 0x10000, len)
        };
        let fields = (0..count).map(|_| field()).collect();
        self.templates.insert((domain, number), fields);
    }

    fn record(&self, domain: u32, set: u16, content: &mut &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut value = |len: usize| match len {
            0xffff => {
                let len = cut(content, 1)[0].into();
                cut(content, len).to_vec()
            }
            len => cut(content, len).to_vec(),
        };
        let mut known = self.templates.iter();
        let fits = |(of, number): (u32, u16)| number == set && (of == domain || self.lax);
        let found = known.find(|(key, _)| fits(**key));
        let (_, fields) = found.unwrap_or_else(|| panic!("domain {domain} has no template {set}"));
        fields.iter().map(|(number, len)| (*number, value(*len))).collect()
    }
}

/// The number in a field of a record.
///
/// # Panics
/// The record does not have it.
#[track_caller]
pub fn number(record: &Record, field: u32) -> u64 {
    let found = record.1.iter().find(|(number, _)| *number == field);
    be(&found.unwrap_or_else(|| panic!("{field} in {record:?}")).1)
}
