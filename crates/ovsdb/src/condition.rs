//! Conditions on rows: the `where` of operations and of monitors (RFC 7047 §5.1, `<condition>`).

use crate::atom::{AtomicType, Resolve};
use crate::datum::Datum;
use crate::error::{Error, ErrorKind};
use crate::json::Json;
use crate::row::Row;
use crate::schema::{COL_UUID, TableSchema};
use crate::types::{BaseType, ColumnType, UNLIMITED};
use crate::uuid::Uuid;

/// How a column is compared with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Function {
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `>=`
    Ge,
    /// `>`
    Gt,
    /// `includes`
    Includes,
    /// `excludes`
    Excludes,
}

/// One clause of a condition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Clause {
    /// True or false for every row.
    Constant(bool),
    /// Compares a column with a value.
    Compare {
        /// The number of the column.
        column: usize,
        /// The comparison.
        function: Function,
        /// The value.
        value: Datum,
    },
}

/// Clauses. In an operation a row must meet all of them, in a monitor any of them. Every row meets
/// a condition without clauses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Condition {
    /// The clauses.
    pub clauses: Vec<Clause>,
}

impl Condition {
    /// Parses an array of clauses.
    ///
    /// # Errors
    /// `syntax error`, `unknown column`, `unknown function`, `constraint violation`.
    pub fn from_json(json: &impl Json, table: &TableSchema, resolve: Resolve<'_>) -> Result<Condition, Error> {
        let Some(array) = json.as_array() else {
            return Err(Error::syntax(json, "array expected"));
        };
        let mut clauses = Vec::with_capacity(array.len());
        for clause in array {
            clauses.push(Clause::from_json(clause, table, resolve)?);
        }
        Ok(Condition { clauses })
    }

    /// Whether the row meets every clause.
    pub fn all(&self, row: &Row) -> bool {
        self.clauses.iter().all(|clause| clause.holds(row))
    }

    /// Whether the row meets any clause, or there is none.
    pub fn any(&self, row: &Row) -> bool {
        self.clauses.is_empty() || self.clauses.iter().any(|clause| clause.holds(row))
    }

    /// Whether every row meets it in a monitor.
    pub(crate) fn is_always(&self) -> bool {
        self.clauses.is_empty() || self.clauses.contains(&Clause::Constant(true))
    }

    /// The UUID that a clause requires, if one does.
    pub(crate) fn uuid(&self) -> Option<Uuid> {
        self.equal_to(COL_UUID)
            .and_then(Datum::as_one)
            .and_then(|atom| atom.as_uuid())
    }

    /// The value that a clause requires of the column.
    pub(crate) fn equal_to(&self, wanted: usize) -> Option<&Datum> {
        self.clauses.iter().find_map(|clause| match clause {
            Clause::Compare {
                column,
                function: Function::Eq,
                value,
            } if *column == wanted => Some(value),
            _ => None,
        })
    }
}

impl Clause {
    fn from_json<J: Json>(json: &J, table: &TableSchema, resolve: Resolve<'_>) -> Result<Clause, Error> {
        if let Some(value) = json.as_bool() {
            return Ok(Clause::Constant(value));
        }
        let parts = match json.as_array() {
            Some([column, function, value]) => column.as_str().zip(function.as_str()).zip(Some(value)),
            _ => None,
        };
        let Some(((column, function), value)) = parts else {
            return Err(Error::syntax(json, "Parse error in condition."));
        };
        let at = find_column(json, table, column)?;
        let kind = &table.columns()[at].kind;
        let name = function;
        let function = Function::from_name(name)
            .ok_or_else(|| Error::new(ErrorKind::UnknownFunction, format!("No function named {name}.")))?;
        let value = match function {
            Function::Eq | Function::Ne => Datum::from_json(value, kind, resolve)?,
            Function::Lt | Function::Le | Function::Ge | Function::Gt => {
                if !is_number(&kind.key) || !(kind.is_scalar() || kind.is_optional_scalar()) {
                    let kind = kind.describe();
                    let details = format!(
                        "Type mismatch: \"{name}\" operator may not be applied to column {column} of type {kind}."
                    );
                    return Err(Error::syntax(json, details));
                }
                Datum::from_json(value, &ColumnType { min: 1, ..kind.clone() }, resolve)?
            }
            Function::Includes | Function::Excludes if kind.is_scalar() => Datum::from_json(value, kind, resolve)?,
            Function::Includes => Datum::from_json(value, &ColumnType { min: 0, ..kind.clone() }, resolve)?,
            Function::Excludes => Datum::from_json(
                value,
                &ColumnType {
                    min: 0,
                    max: UNLIMITED,
                    ..kind.clone()
                },
                resolve,
            )?,
        };
        Ok(Clause::Compare {
            column: at,
            function,
            value,
        })
    }

    fn holds(&self, row: &Row) -> bool {
        match self {
            Clause::Constant(value) => *value,
            Clause::Compare {
                column,
                function,
                value,
            } => function.holds(row.get(*column), value),
        }
    }
}

impl Function {
    fn from_name(name: &str) -> Option<Function> {
        Some(match name {
            "<" => Function::Lt,
            "<=" => Function::Le,
            "==" => Function::Eq,
            "!=" => Function::Ne,
            ">=" => Function::Ge,
            ">" => Function::Gt,
            "includes" => Function::Includes,
            "excludes" => Function::Excludes,
            _ => return None,
        })
    }

    /// Compares a column's value with that of a clause. An empty column is neither less nor greater
    /// than any value.
    fn holds(self, field: &Datum, value: &Datum) -> bool {
        let order = || field.as_one().zip(value.as_one()).map(|(a, b)| a.cmp(b));
        match self {
            Function::Lt => order().is_some_and(|order| order.is_lt()),
            Function::Le => order().is_some_and(|order| order.is_le()),
            Function::Eq => field == value,
            Function::Ne => field != value,
            Function::Ge => order().is_some_and(|order| order.is_ge()),
            Function::Gt => order().is_some_and(|order| order.is_gt()),
            Function::Includes => field.includes(value),
            Function::Excludes => field.excludes(value),
        }
    }
}

/// The number of a column that a clause or mutation names.
pub(crate) fn find_column(json: &impl Json, table: &TableSchema, name: &str) -> Result<usize, Error> {
    table.column_index(name).ok_or_else(|| {
        Error::new(
            ErrorKind::UnknownColumn,
            format!("No column {name} in table {}.", table.name()),
        )
        .quoting(json)
    })
}

pub(crate) fn is_number(base: &BaseType) -> bool {
    matches!(base.atomic_type(), AtomicType::Integer | AtomicType::Real)
}
