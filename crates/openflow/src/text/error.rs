//! What is wrong with a text.

/// Why a text is refused. Messages are in the words that users of `ovs-ofctl` know, with the offending part of the input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A word of a flow that is no field and no property.
    #[error("unknown keyword {0}")]
    UnknownKeyword(String),
    /// A word that needs a value has none.
    #[error("field {0} missing value")]
    MissingValue(String),
    /// No action of this name.
    #[error("unknown action {0}")]
    UnknownAction(String),
    /// A number with a purpose that is none, or out of its range.
    #[error("invalid {what} \"{text}\"")]
    Number {
        /// The purpose.
        what: String,
        /// The input.
        text: String,
    },
    /// A number that is none.
    #[error("invalid numeric format {0}")]
    NumericFormat(String),
    /// A number that is not there.
    #[error("missing required numeric argument")]
    MissingNumber,
    /// A value that its field cannot hold.
    #[error("{text}: value too large for {bytes}-byte field {field}")]
    TooLarge {
        /// The input.
        text: String,
        /// The field's size.
        bytes: usize,
        /// The field's name.
        field: &'static str,
    },
    /// A field's value or mask that is no number.
    #[error("{text}: bad syntax for {what}")]
    Syntax {
        /// The input.
        text: String,
        /// The field's name, and `value` or `mask`.
        what: String,
    },
    /// An address that is none.
    #[error("{text}: invalid {what}")]
    Invalid {
        /// The input.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// A prefix longer than an address.
    #[error("{text}: {family} network prefix bits not between 0 and {max}, inclusive")]
    Prefix {
        /// The input.
        text: String,
        /// `IPv4` or `IPv6`.
        family: &'static str,
        /// The address's length.
        max: u32,
    },
    /// A mask for a field that takes none.
    #[error("{text}: invalid mask for field {field}")]
    Mask {
        /// The input.
        text: String,
        /// The field's name.
        field: &'static str,
    },
    /// A port that is none, for a field.
    #[error("{text}: invalid or unknown port for {field}")]
    FieldPort {
        /// The input.
        text: String,
        /// The field's name.
        field: &'static str,
    },
    /// A port that is none, for an action.
    #[error("{text}: {action} to unknown port")]
    ActionPort {
        /// The input.
        text: String,
        /// What was to be done with it.
        action: &'static str,
    },
    /// Something that is none of its kind.
    #[error("unknown {what} \"{text}\"")]
    Unknown {
        /// The kind.
        what: &'static str,
        /// The input.
        text: String,
    },
    /// A condition on fragments that is none.
    #[error("{0}: unknown fragment type (valid types are \"no\", \"yes\", \"first\", \"later\", \"not_later\")")]
    Fragment(String),
    /// A flag that is none.
    #[error("{text}: unknown {what} flag(s)")]
    Flag {
        /// The input.
        text: String,
        /// Whose flags.
        what: &'static str,
    },
    /// A flag that is there twice.
    #[error("{text}: Each {what} flag can be specified only once")]
    FlagTwice {
        /// The input.
        text: String,
        /// Whose flags.
        what: &'static str,
    },
    /// A value that is outside of what its action takes.
    #[error("{text}: not a valid {what}")]
    NotValid {
        /// The input.
        text: String,
        /// What it should be.
        what: &'static str,
    },
    /// A field that is none.
    #[error("{0}: unknown field")]
    Field(String),
    /// A field to be set that is none.
    #[error("{0} is not a valid OXM field name")]
    SetField(String),
    /// A field that actions may not set.
    #[error("{0} is read-only")]
    ReadOnly(String),
    /// A range of bits that its field does not have.
    #[error("{text}: {what}")]
    Bits {
        /// The input.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// An argument that an action does not take.
    #[error("invalid key \"{key}\" in \"{action}\" argument")]
    Key {
        /// The argument.
        key: String,
        /// The action.
        action: &'static str,
    },
    /// An action's arguments are wrong as a whole.
    #[error("{text}: {what}")]
    Arguments {
        /// The input.
        text: String,
        /// What is wrong.
        what: String,
    },
    /// A rule of the grammar that needs no input to be told.
    #[error("{0}")]
    Rule(&'static str),
    /// Instructions that are in the wrong order.
    #[error(
        "invalid instruction ordering: {later} must appear before {earlier}, for OpenFlow 1.1+ compatibility"
    )]
    Order {
        /// What came behind but must be before.
        later: &'static str,
        /// What it must be before.
        earlier: &'static str,
    },
    /// An instruction that is there twice.
    #[error("duplicate {0} instruction not allowed, for OpenFlow 1.1+ compatibility")]
    Duplicate(&'static str),
    /// An instruction where only actions may be.
    #[error("{0} instruction not allowed here")]
    Instruction(&'static str),
    /// Actions that do not go with the match.
    #[error("actions are invalid with specified match ({0})")]
    Inconsistent(&'static str),
    /// An error in a line of a file.
    #[error("{line}: {error}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong.
        error: Box<TextError>,
    },
}
