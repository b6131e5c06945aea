//! The fields of packets: where each lies in a flow key, what it is called, when it means
//! something.
//!
//! A [`Key`] is what the switch knows of a packet: a fixed array of words into which [`extract`]
//! writes the values of all fields. A [`Mask`] of the same shape says which bits of a key count.
//! One table, [`Field::info`], gives each field's place and names; no other code knows a shift or a
//! width.
//!
//! Invariants
//! - Key and mask bits that belong to no field are zero, so that equality and hashes can work on
//!   words.
//! - A field whose prerequisite a packet does not meet is zero in its key.
//! - `extract` never panics and reads each header once.
#![forbid(unsafe_code)]

mod compose;
mod connection;
mod display;
mod extract;
mod field;
mod key;
mod mask;
mod match_field;
mod meta;
mod odp;
mod option_map;
mod options;
mod recirc;
mod state;
mod tunnel;

pub use compose::{compose, compose_with};
pub use display::Masked;
pub use extract::{KEYED_LEN, KeySlot, Reading, extract, has_key, repeats};
pub use field::{ETHERNET_WORDS, EXTRA_WORDS, Field, FieldInfo, Group, KEY_WORDS, Prerequisite};
pub use key::{Key, TAG_PRESENT};
pub use mask::{Mask, mix};
pub use match_field::{Access, Format, Home, Maskable, MatchField, MatchFieldInfo, MatchPrerequisite, OxmClass, OxmId};
pub use meta::{
    Connection, ExtraMeta, MAX_TUNNEL_OPTIONS, OriginalTuple, PacketMeta, PortNo, Tunnel, TunnelDetails,
    TunnelOptionBytes,
};
pub use odp::{OdpError, parse_odp};
pub use option_map::{BadOption, MappedOption, OptionMap, OptionWords};
pub use options::{OPTION_UNITS, OPTIONS, option_bits, option_present, option_unit};
pub use recirc::RecircId;
pub use state::{FlowMaskState, FlowState, META_WORDS, PORT_UNSET, StateMatch, port_from_of10, port_to_of10};
pub use wire::headers::Frag;
