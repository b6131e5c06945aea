//! OpenFlow: one model for all versions, and the codecs and the text grammar around it.
//!
//! [`model`] says what messages mean, whatever version they come in; its types cannot hold what no
//! version allows. A [`Codec`] turns messages into bytes and back, a [`Framer`] cuts a stream into
//! messages, [`negotiate`] chooses the version. [`text`] reads and prints matches, actions and
//! flows as `ovs-ofctl(8)` does.
//!
//! Invariants
//! - Nothing here panics on bytes or text from outside. Lengths are checked at every level; what is
//!   refused is refused with the [`OfError`] that the specification has for it.
//! - No clock, no socket: bytes in, values out.
#![forbid(unsafe_code)]

mod action;
mod buf;
pub mod check;
mod error;
mod field_order;
mod framer;
mod instruction;
pub mod model;
mod msg;
mod oxm;
pub mod text;
mod version;

pub use action::{accept_test_actions, decode as decode_actions};
pub use error::{Code, ErrorBody, ErrorKind, OfError, Vendor};
pub use framer::{Framer, FramerError, HEADER_LEN, MAX_LEN};
pub use instruction::decode as decode_instructions;
pub use msg::Codec;
pub(crate) use msg::event::reasons as async_reasons;
pub use msg::fixed::{decode_match10, decode_match11, encode_match10, encode_match11};
pub use version::{Hello, UnknownVersion, Version, Versions, negotiate};
