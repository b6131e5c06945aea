//! A key that is read into again and again.

use super::{Plain, ethernet, payload};
use crate::field::fill;
use crate::{Field, Key, PacketMeta};
use std::ops::Deref;
use wire::EtherType;

/// A key to read packets into, one after the other. Keys are long: to copy or clear one takes as
/// long as to read a header. It dereferences to the key read last.
///
/// Packets of a connection come in bursts. A packet with the key of the packet before it is
/// [`Reading::Same`], and nothing is written. Only plain packets are recognised: TCP and UDP over
/// IPv4 without tags, options and fragments, with plain metadata.
#[derive(Clone)]
pub struct KeySlot {
    key: Key,
    content: Content,
}

/// Which words of a key need not be zero.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Those of an IPv4 packet with plain metadata.
    Plain,
    /// Those, and the ones of a connection.
    Tracked,
    /// Any.
    Any,
}

/// What came of reading a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Its key is that of the packet before; nothing was written.
    Same,
    /// Its key.
    Key,
    /// None: the packet has no key, and the slot's content has no meaning.
    Malformed,
}

impl Default for KeySlot {
    fn default() -> KeySlot {
        KeySlot {
            key: Key::ZERO,
            content: Content::Plain,
        }
    }
}

impl Deref for KeySlot {
    type Target = Key;

    #[inline(always)]
    fn deref(&self) -> &Key {
        &self.key
    }
}

impl KeySlot {
    /// Reads a packet, as [`extract`](super::extract) does. `before` is where the packet before it
    /// was read in the same way, if there was one.
    #[inline(always)]
    pub fn read(&mut self, data: &[u8], meta: &PacketMeta, before: Option<&KeySlot>) -> Reading {
        if !meta.is_plain() {
            return self.read_rare(data, meta);
        }
        let Some(plain) = Plain::read(data, meta) else {
            return self.read_any(data, meta);
        };
        if before.is_some_and(|before| before.content == Content::Plain && plain.is_of(before)) {
            return Reading::Same;
        }
        if self.content != Content::Plain {
            self.clear();
        }
        plain.write(&mut self.key);
        Reading::Key
    }

    /// Reads a packet whose metadata is not plain. Those of connections are often of TCP or UDP.
    #[inline(never)]
    fn read_rare(&mut self, data: &[u8], meta: &PacketMeta) -> Reading {
        let Some(connection) = meta.connection_only() else {
            return self.read_any(data, meta);
        };
        let Some(plain) = Plain::read(data, meta) else {
            return self.read_any(data, meta);
        };
        if self.content == Content::Any {
            self.key = Key::ZERO;
        }
        plain.write(&mut self.key);
        self.key.set_connection(connection);
        self.content = Content::Tracked;
        Reading::Key
    }

    /// Makes all words zero that a plain packet does not write.
    #[inline]
    fn clear(&mut self) {
        match self.content {
            Content::Plain => {}
            Content::Tracked => self.key.clear_connection(),
            Content::Any => self.key = Key::ZERO,
        }
        self.content = Content::Plain;
    }

    /// Reads a packet by the walk over its headers.
    pub(super) fn read_any(&mut self, data: &[u8], meta: &PacketMeta) -> Reading {
        self.key = Key::ZERO;
        let (mark, priority) = (meta.mark.into(), meta.priority.into());
        fill(
            &mut self.key.words,
            [(Field::PktMark, mark), (Field::SkbPriority, priority)],
        );
        if let Some(tunnel) = meta.tunnel() {
            self.key.set_tunnel(tunnel);
        }
        if let Some(connection) = meta.connection() {
            self.key.set_connection(connection);
        }
        self.key.set(Field::PacketType, meta.packet_type().into());
        let read = ethernet(&mut self.key, data, meta);
        if let Some((kind, rest)) = read {
            payload(&mut self.key, kind, rest);
        }
        let is_plain = meta.is_plain() && self.key.get(Field::EthType) == u128::from(EtherType::IPV4.0);
        self.content = if is_plain { Content::Plain } else { Content::Any };
        reading(read.is_some())
    }

    /// The key of the same packet in a recirculation, where nothing else of it has changed since it
    /// was read.
    #[inline]
    pub fn recirculate(&mut self, id: u32) {
        self.key.set(Field::RecircId, id.into());
    }
}

fn reading(has_key: bool) -> Reading {
    if has_key { Reading::Key } else { Reading::Malformed }
}
