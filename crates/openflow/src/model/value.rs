//! Values of fields, and parts of fields.

use flow::{Home, MatchField};
use std::fmt;

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// The value of a field of at most 128 bits.
    Word(u128),
    /// The value of a tunnel metadata field: the received bytes, the last is the lowest.
    Wide(Vec<u8>),
}

impl Value {
    /// The value's low 128 bits.
    pub fn low(&self) -> u128 {
        match self {
            Value::Word(word) => *word,
            Value::Wide(bytes) => bytes.iter().fold(0, |n, b| n << 8 | u128::from(*b)),
        }
    }

    /// All bits of a field's value.
    pub(crate) fn all_ones(field: MatchField) -> Value {
        match field.info().home {
            Home::Elsewhere => Value::Wide(vec![0xff; field.bytes()]),
            _ => Value::Word(field.info().valid),
        }
    }
}

/// Consecutive bits of a field: at least one, all in the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subfield {
    field: MatchField,
    ofs: u16,
    n_bits: u16,
}

impl Subfield {
    /// `n_bits` bits of a field from bit `ofs` up; `None` if the field is shorter.
    pub fn new(field: MatchField, ofs: u16, n_bits: u16) -> Option<Subfield> {
        let bits = field.part_bits() as u16;
        let fits = n_bits > 0 && ofs.checked_add(n_bits).is_some_and(|end| end <= bits);
        fits.then_some(Subfield { field, ofs, n_bits })
    }

    /// All bits of a field.
    pub fn whole(field: MatchField) -> Subfield {
        Subfield {
            field,
            ofs: 0,
            n_bits: field.part_bits() as u16,
        }
    }

    /// The field.
    pub const fn field(&self) -> MatchField {
        self.field
    }

    /// The lowest bit.
    pub const fn ofs(&self) -> u16 {
        self.ofs
    }

    /// How many bits.
    pub const fn n_bits(&self) -> u16 {
        self.n_bits
    }

    /// Whether it covers the whole field.
    pub fn is_whole(&self) -> bool {
        *self == Subfield::whole(self.field)
    }
}

impl fmt::Display for Subfield {
    /// As in `NXM_NX_REG0[0..15]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.id(1) {
            Some(id) => write!(f, "{id}")?,
            None => write!(f, "{}", self.field)?,
        }
        match (self.n_bits, self.is_whole()) {
            (_, true) => f.write_str("[]"),
            (1, _) => write!(f, "[{}]", self.ofs),
            _ => write!(f, "[{}..{}]", self.ofs, self.ofs + self.n_bits - 1),
        }
    }
}
