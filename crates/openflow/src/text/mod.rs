//! The text grammar of matches, actions and flows, as `ovs-ofctl(8)`, `ovs-fields(7)` and `ovs-actions(7)` define it, both ways.
//!
//! [`parse_flow`] reads a flow for a command, [`parse_match`], [`parse_actions`] and [`parse_instructions`] read its parts; [`print_match`],
//! [`print_actions`], [`print_instructions`] and [`print_flow_stats`] print them. Groups and meters have [`parse_group`] and [`parse_meter`].
//!
//! Invariants
//! - What is printed reads as what it was printed from.
//! - Nothing panics on any text, and nesting is bounded by [`MAX_DEPTH`].
//! - Names of ports and tables come from a [`Names`] that the caller has; there are no globals.

mod action;
mod bundle;
mod ct;
mod encap;
mod error;
mod field;
mod flags;
mod flow;
mod group;
mod instruction;
mod learn;
mod lex;
mod matches;
mod names;
mod print_action;
mod print_flow;
mod print_match;
mod subfield;

pub use action::{MAX_DEPTH, parse_actions};
pub use error::TextError;
pub use flow::{parse_flow, parse_flow_file};
pub use group::{parse_group, parse_meter};
pub use instruction::parse_instructions;
pub use matches::parse_match;
pub use names::{Names, NoNames, parse_port, print_port, print_table};
pub use print_action::{print_actions, print_instructions};
pub use print_flow::{StatsStyle, print_flow_mod, print_flow_stats};
pub use print_match::print_match;
