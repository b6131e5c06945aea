//! Changes of a column relative to its value (RFC 7047 §5.1, `<mutation>`).

use crate::atom::{Atom, AtomicType, Resolve};
use crate::condition::{find_column, is_number};
use crate::datum::Datum;
use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::row::Row;
use crate::schema::TableSchema;
use crate::types::{BaseType, ColumnType, UNLIMITED};

/// How a value changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Insert,
    Delete,
}

/// One mutation of a row.
#[derive(Debug)]
pub(crate) struct Mutation {
    column: usize,
    mutator: Mutator,
    value: Datum,
}

impl Mutation {
    /// The number of the column.
    pub(crate) fn column(&self) -> usize {
        self.column
    }

    /// Parses `[column, mutator, value]`.
    pub(crate) fn from_json<J: Json>(json: &J, table: &TableSchema, resolve: Resolve<'_>) -> Result<Mutation, Error> {
        let parts = match json.as_array() {
            Some([column, name, value]) => column.as_str().zip(name.as_str()).zip(Some(value)),
            _ => None,
        };
        let Some(((column, name), value)) = parts else {
            return Err(Error::syntax(json, "Parse error in mutation."));
        };
        let at = find_column(json, table, column)?;
        let schema = &table.columns()[at];
        let mutator = Mutator::from_name(name)
            .ok_or_else(|| Error::new(ErrorKind::UnknownMutator, format!("No mutator named {name}.")))?;
        if !schema.mutable {
            let details = format!("Cannot mutate immutable column {column} in table {}.", table.name());
            return Err(Error::constraint(details).quoting(json));
        }
        let kind = &schema.kind;
        let fits = match mutator {
            Mutator::Add | Mutator::Subtract | Mutator::Multiply | Mutator::Divide => {
                is_number(&kind.key) && !kind.is_map()
            }
            Mutator::Modulo => kind.key.atomic_type() == AtomicType::Integer && !kind.is_map(),
            Mutator::Insert | Mutator::Delete => kind.min != 1 || kind.max != 1,
        };
        if !fits {
            let kind = kind.describe();
            let details =
                format!("Type mismatch: \"{name}\" operator may not be applied to column {column} of type {kind}.");
            return Err(Error::syntax(json, details));
        }
        let value = match mutator {
            Mutator::Insert => Datum::from_json(value, &ColumnType { min: 0, ..kind.clone() }, resolve)?,
            Mutator::Delete => {
                let many = ColumnType {
                    min: 0,
                    max: UNLIMITED,
                    ..kind.clone()
                };
                match Datum::from_json(value, &many, resolve) {
                    Err(_) if kind.is_map() => Datum::from_json(value, &ColumnType { value: None, ..many }, resolve)?,
                    parsed => parsed?,
                }
            }
            _ => Datum::from_json(
                value,
                &ColumnType::scalar(BaseType::plain(kind.key.atomic_type())),
                resolve,
            )?,
        };
        Ok(Mutation {
            column: at,
            mutator,
            value,
        })
    }

    /// Applies it to a row.
    pub(crate) fn apply(&self, row: &mut Row, table: &TableSchema) -> Result<(), Error> {
        let kind = &table.columns()[self.column].kind;
        let old = row.get(self.column);
        let new = match self.mutator {
            Mutator::Insert => old.union(&self.value),
            Mutator::Delete => old.subtract(&self.value),
            _ => self.calculate(old, kind)?,
        };
        if new.len() < kind.min || new.len() > kind.max {
            let details = format!("Attempted to store {} elements in {}.", new.len(), kind.describe());
            return Err(Error::constraint(details));
        }
        row.set(self.column, new);
        Ok(())
    }

    fn calculate(&self, old: &Datum, kind: &ColumnType) -> Result<Datum, Error> {
        let Some(operand) = self.value.as_one() else {
            return Ok(old.clone());
        };
        if let Some(atom) = old.as_one() {
            let atom = self.calculate_atom(atom, operand)?;
            kind.key.check(&atom)?;
            return Ok(Datum::one(atom));
        }
        let mut atoms = Vec::with_capacity(old.len());
        for atom in old.atoms() {
            let atom = self.calculate_atom(atom, operand)?;
            kind.key.check(&atom)?;
            atoms.push(atom);
        }
        atoms.sort_unstable();
        if atoms.windows(2).any(|pair| pair[0] == pair[1]) {
            let name = self.mutator.as_str();
            return Err(Error::constraint(format!(
                "Result of \"{name}\" operation contains duplicates."
            )));
        }
        Ok(Datum::from_sorted_set(atoms))
    }

    fn calculate_atom(&self, atom: &Atom, operand: &Atom) -> Result<Atom, Error> {
        let zero = || Error::new(ErrorKind::Domain, "Division by zero.");
        let result = match (atom, operand) {
            (Atom::Integer(a), Atom::Integer(b)) => match self.mutator {
                Mutator::Add => a.checked_add(*b),
                Mutator::Subtract => a.checked_sub(*b),
                Mutator::Multiply => a.checked_mul(*b),
                Mutator::Divide | Mutator::Modulo if *b == 0 => return Err(zero()),
                Mutator::Divide => a.checked_div(*b),
                Mutator::Modulo => a.checked_rem(*b),
                Mutator::Insert | Mutator::Delete => None,
            }
            .map(Atom::Integer),
            (Atom::Real(a), Atom::Real(b)) => match self.mutator {
                Mutator::Add => Some(a + b),
                Mutator::Subtract => Some(a - b),
                Mutator::Multiply => Some(a * b),
                Mutator::Divide if *b == 0.0 => return Err(zero()),
                Mutator::Divide => Some(a / b),
                Mutator::Modulo | Mutator::Insert | Mutator::Delete => None,
            }
            .filter(|value| value.is_finite())
            .map(|value| Atom::Real(value + 0.0)),
            _ => None,
        };
        result.ok_or_else(|| {
            let name = self.mutator.as_str();
            Error::new(
                ErrorKind::Range,
                format!("Result of \"{name}\" operation is out of range."),
            )
        })
    }
}

impl Mutator {
    fn from_name(name: &str) -> Option<Mutator> {
        Some(match name {
            "+=" => Mutator::Add,
            "-=" => Mutator::Subtract,
            "*=" => Mutator::Multiply,
            "/=" => Mutator::Divide,
            "%=" => Mutator::Modulo,
            "insert" => Mutator::Insert,
            "delete" => Mutator::Delete,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Mutator::Add => "+=",
            Mutator::Subtract => "-=",
            Mutator::Multiply => "*=",
            Mutator::Divide => "/=",
            Mutator::Modulo => "%=",
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
        }
    }
}
