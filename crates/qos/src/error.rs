//! Errors of a configuration.

use thiserror::Error;

/// A refused configuration; the previous one stays.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value outside its range.
    #[error("{key}: {value} is not between {least} and {most}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The given value.
        value: u64,
        /// The lowest legal value.
        least: u64,
        /// The highest legal value.
        most: u64,
    },
    /// Not a number, or not of the form that the key has.
    #[error("{key}: \"{value}\" is not {wanted}")]
    Form {
        /// The key.
        key: &'static str,
        /// The given value.
        value: String,
        /// The legal form.
        wanted: &'static str,
    },
    /// A key without which the discipline cannot run.
    #[error("{key}: required by {kind}")]
    Missing {
        /// The key.
        key: &'static str,
        /// The discipline.
        kind: &'static str,
    },
    /// A key that this queue cannot have.
    #[error("{key}: {reason}")]
    Unsuitable {
        /// The key.
        key: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// Two classes of one number.
    #[error("queue {number} is there twice")]
    Twice {
        /// The class's number.
        number: u32,
    },
    /// A parent that is not there.
    #[error("parent: queue {number} names queue {parent}, which is not there")]
    NoParent {
        /// The class's number.
        number: u32,
        /// The parent named.
        parent: u32,
    },
    /// A class that is its own ancestor.
    #[error("parent: queue {number} is among its own ancestors")]
    Loop {
        /// A class on the loop.
        number: u32,
    },
    /// A discipline that is not known.
    #[error("type: \"{0}\" is not a kind of QoS")]
    UnknownKind(String),
}

impl ConfigError {
    pub(crate) fn range(key: &'static str, value: u64, least: u64, most: u64) -> Result<u64, ConfigError> {
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(ConfigError::OutOfRange {
                key,
                value,
                least,
                most,
            })
        }
    }
}
