//! Priority tuple-space lookup that returns the rule and the consulted bits.
//!
//! A [`Classifier`] holds the rules of one OpenFlow table, a million of them.
//! [`Classifier::lookup`] finds the rule of highest priority for a key, an array of words, and adds
//! to a mask the bits that the answer depends on: this table's part of the megaflow's mask. Of
//! fields it knows only where stages end and which bits are addresses or ports ([`Layout`]).
//!
//! How
//! - Rules of the same mask are in one **subtable**, a hash table of the mask's nonzero words. A
//!   lookup tries subtables by falling highest priority and stops when no later one can win.
//! - A subtable without a bucket for the key is ruled out by as few bits as possible: those of a
//!   prefix that no rule has, else the words of the first stages that match no rule. A prefix found
//!   absent rules out all further subtables that match that length of that field without a probe.
//! - Once there are 16 subtables, rules of new masks go into subtables of coarser masks, up to
//!   eight matches in a bucket, so that the subtables do not grow with the masks. See *Bounds*.
//!
//! Goals: the mask as wide as correct; about 100 bytes a rule; insertion and removal in constant
//! time, without long pauses; no allocation in a lookup that tries up to 64 subtables.
//!
//! Invariants
//! - For every key that agrees with the one looked up on the consulted bits, the answer is the same
//!   until the rules change. Every skipped subtable adds bits that prove that it has no rule for
//!   the key; every candidate rule adds bits that prove whether it matches.
//! - A rule is in one subtable whose mask is part of its own; the rules of a match are all in the
//!   same one.
//! - A subtable's prefixes and stage hashes are counted once for each of its buckets.
//! - Nothing moves when a table grows: arrays grow by chunks, hash tables by splitting segments of
//!   2048 entries.
//!
//! Bounds
//! - A lookup costs at most one probe, and eight comparisons where masks are merged, for each
//!   subtable above the rule found. Masks of prefixes merge into those of whole quarters of each
//!   field; 1000 masks of two addresses make about fifty subtables. Very different masks and
//!   overflowing buckets still cost a subtable each, which a controller with a different mask for
//!   every rule pays.
//! - An insertion takes a few probes; the worst is the split of a segment (some 100 µs) and, where
//!   a match is repeated with many priorities, a walk over those that are higher.
//! - Loose changes ([`Classifier::covered_by`]) ask one bucket where the subtable's mask is part of
//!   the match, else go through the subtable.
//!
//! It is plain data without a lock, `Send` and `Sync` where the rules are: the owner decides how
//! readers and the writer take turns. Keys chosen by an attacker do not collide, for hashes are
//! seeded.
//!
//! ```
//! use classifier::{Classifier, Layout, Match, PrefixField};
//!
//! // Keys of two words: an input port, and an IPv4 address whose prefixes are tracked.
//! let address = PrefixField { word: 1, shift: 0, bits: 32 };
//! let mut table = Classifier::<&str, 2>::new(Layout::new(2, &[1, 2], &[address])?, 42);
//! let network = Match::new(&[0, 0x0a00_0000], &[0, 0xff00_0000]);
//! table.insert(&network, 100, "ten")?;
//!
//! let mut consulted = [0; 2];
//! let found = table.lookup(&[7, 0x0a01_0203], &mut consulted);
//! assert_eq!((found.map(|found| *found.rule), consulted), (Some("ten"), [0, 0xff00_0000]));
//!
//! // The first bit tells that it is another network.
//! let mut consulted = [0; 2];
//! assert!(table.lookup(&[7, 0x8000_0001], &mut consulted).is_none());
//! assert_eq!(consulted, [0, 0x8000_0000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod arena;
mod chunks;
mod classifier;
mod index;
mod layout;
mod lookup;
mod prefix_set;
mod prefixes;
mod scan;
mod shapes;
mod subtable;
mod words;

pub use classifier::{Classifier, InsertError, RuleId, Stats};
pub use layout::{Layout, LayoutError, MAX_PREFIX_FIELDS, MAX_WORDS, PrefixField};
pub use lookup::Found;
pub use scan::{Cursor, Entry};
pub use words::Match;
