//! Reading DER (ITU-T X.690) as far as certificates need it. Every length is checked against what there is; only definite lengths in their
//! shortest form are taken.

/// The bytes are not the DER that was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Tags that certificates are made of.
pub(super) mod tag {
    pub(in super::super) const BOOLEAN: u8 = 0x01;
    pub(in super::super) const INTEGER: u8 = 0x02;
    pub(in super::super) const BIT_STRING: u8 = 0x03;
    pub(in super::super) const OCTET_STRING: u8 = 0x04;
    pub(in super::super) const OID: u8 = 0x06;
    pub(in super::super) const UTC_TIME: u8 = 0x17;
    pub(in super::super) const GENERALIZED_TIME: u8 = 0x18;
    pub(in super::super) const SEQUENCE: u8 = 0x30;
    /// The context's own tag number `n`, constructed.
    pub(in super::super) const fn explicit(n: u8) -> u8 {
        0xa0 | n
    }
    /// The context's own tag number `n`, primitive.
    pub(in super::super) const fn implicit(n: u8) -> u8 {
        0x80 | n
    }
}

/// What is left to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

/// One element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    /// What it holds.
    pub(super) content: &'a [u8],
    /// All of it, tag and length included.
    pub(super) whole: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Nothing may follow.
    pub(super) fn end(self) -> Result<(), Malformed> {
        self.left.is_empty().then_some(()).ok_or(Malformed)
    }

    /// The next element.
    pub(super) fn element(&mut self) -> Result<Element<'a>, Malformed> {
        let all = self.left;
        let (&tag, rest) = all.split_first().ok_or(Malformed)?;
        // Tags of several bytes occur in no certificate.
        if tag & 0x1f == 0x1f {
            return Err(Malformed);
        }
        let (&first, rest) = rest.split_first().ok_or(Malformed)?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let bytes = usize::from(first & 0x7f);
                let (length, rest) = rest.split_at_checked(bytes).ok_or(Malformed)?;
                let value = length.iter().fold(0, |value, byte| value << 8 | usize::from(*byte));
                let shortest = value > 0x7f && length[0] != 0;
                (shortest.then_some(value).ok_or(Malformed)?, rest)
            }
            _ => return Err(Malformed),
        };
        let (content, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        self.left = rest;
        Ok(Element {
            tag,
            content,
            whole: &all[..all.len() - rest.len()],
        })
    }

    /// The next element, which must have a tag.
    pub(super) fn expect(&mut self, tag: u8) -> Result<Element<'a>, Malformed> {
        let element = self.element()?;
        (element.tag == tag).then_some(element).ok_or(Malformed)
    }

    /// The next element if it has a tag.
    pub(super) fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, Malformed> {
        match self.left.first() {
            Some(next) if *next == tag => self.element().map(Some),
            _ => Ok(None),
        }
    }

    /// The contents of the next element, a sequence.
    pub(super) fn sequence(&mut self) -> Result<Reader<'a>, Malformed> {
        Ok(self.expect(tag::SEQUENCE)?.reader())
    }
}

impl<'a> Element<'a> {
    pub(super) fn reader(&self) -> Reader<'a> {
        Reader::new(self.content)
    }

    /// The bytes of a bit string of whole bytes.
    pub(super) fn bit_string(&self) -> Result<&'a [u8], Malformed> {
        match self.content.split_first() {
            Some((0, bytes)) if self.tag == tag::BIT_STRING => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, Malformed> {
        match (self.tag, self.content) {
            (tag::BOOLEAN, [0]) => Ok(false),
            (tag::BOOLEAN, [0xff]) => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// A small number that is not negative.
    pub(super) fn small(&self) -> Result<u32, Malformed> {
        match self.content {
            _ if self.tag != tag::INTEGER => Err(Malformed),
            [first, ..] if first & 0x80 != 0 => Err(Malformed),
            [] => Err(Malformed),
            bytes if bytes.len() > 4 => Err(Malformed),
            bytes => Ok(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))),
        }
    }

    /// A time of RFC 5280 section 4.1.2.5, in seconds since 1970.
    pub(super) fn time(&self) -> Result<i64, Malformed> {
        let (year, rest) = match self.tag {
            tag::UTC_TIME => {
                let year = digits(self.content, 0, 2)?;
                (if year < 50 { 2000 + year } else { 1900 + year }, 2)
            }
            tag::GENERALIZED_TIME => (digits(self.content, 0, 4)?, 4),
            _ => return Err(Malformed),
        };
        if self.content.len() != rest + 11 || self.content[rest + 10] != b'Z' {
            return Err(Malformed);
        }
        let part = |at: usize, least: i64, most: i64| {
            let value = digits(self.content, rest + 2 * at, 2)?;
            (least..=most).contains(&value).then_some(value).ok_or(Malformed)
        };
        let (month, day) = (part(0, 1, 12)?, part(1, 1, 31)?);
        let (hour, minute, second) = (part(2, 0, 23)?, part(3, 0, 59)?, part(4, 0, 60)?);
        Ok(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
    }
}

fn digits(bytes: &[u8], at: usize, count: usize) -> Result<i64, Malformed> {
    let digits = bytes.get(at..at + count).ok_or(Malformed)?;
    digits.iter().try_fold(0, |value, byte| match byte {
        b'0'..=b'9' => Ok(value * 10 + i64::from(byte - b'0')),
        _ => Err(Malformed),
    })
}

/// Days since 1970 of a date of the Gregorian calendar; years are counted from March, so that a leap day is the last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let since_march = (month + 9) % 12;
    let in_year = (153 * since_march + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + in_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(tag: u8, text: &str) -> Result<i64, Malformed> {
        let whole = text.as_bytes();
        Element {
            tag,
            content: whole,
            whole,
        }
        .time()
    }

    #[test]
    fn times_count_from_1970() {
        assert_eq!(time(tag::UTC_TIME, "700101000000Z"), Ok(0));
        assert_eq!(time(tag::UTC_TIME, "000229120000Z"), Ok(951_825_600));
        assert_eq!(time(tag::GENERALIZED_TIME, "20380119031408Z"), Ok(1 << 31));
        assert_eq!(time(tag::GENERALIZED_TIME, "21000301000000Z"), Ok(4_107_542_400));
        for wrong in ["7001010000Z", "701301000000Z", "700101000000+", "70010100000xZ", ""] {
            assert_eq!(time(tag::UTC_TIME, wrong), Err(Malformed), "{wrong}");
        }
    }

    #[test]
    fn lengths_are_in_their_shortest_form_and_within_what_there_is() {
        let one = |bytes: &[u8]| Reader::new(bytes).element().map(|e| e.content.len());
        assert_eq!(one(&[4, 2, 1, 2, 9]), Ok(2));
        assert_eq!(one(&[4, 0x81, 1, 1]), Err(Malformed));
        assert_eq!(one(&[4, 0x80, 0, 0]), Err(Malformed));
        assert_eq!(one(&[4, 3, 1, 2]), Err(Malformed));
        assert_eq!(one(&[4, 0x84, 0, 0, 0, 1, 7]), Err(Malformed));
        assert_eq!(one(&[0x1f, 1, 1]), Err(Malformed));
        let long: Vec<u8> = [4, 0x82, 1, 0].into_iter().chain([0; 256]).collect();
        assert_eq!(one(&long), Ok(256));
    }
}
