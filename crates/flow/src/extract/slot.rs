//! A key that is read into again and again.

use super::{Plain, ethernet, payload};
use crate::field::fill;
use crate::{Connection, Field, Key, PacketMeta};
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

/// Which words of a key need not be zero: a set of these bits, none for those of an IPv4 packet
/// with plain metadata.
type Content = u8;

const PLAIN: Content = 0;
/// Those of a tunnel.
const TUNNEL: Content = 1;
/// Those of a connection.
const CONNECTION: Content = 2;
/// Any.
const ANY: Content = 4;

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
            content: PLAIN,
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
        if before.is_some_and(|before| before.content == PLAIN && plain.is_of(before)) {
            return Reading::Same;
        }
        if self.content != PLAIN {
            self.clear(self.content);
            self.content = PLAIN;
        }
        plain.write(&mut self.key);
        Reading::Key
    }

    /// Reads a packet whose metadata is not plain. Those from tunnels and of connections are often
    /// of TCP or UDP.
    #[inline(never)]
    fn read_rare(&mut self, data: &[u8], meta: &PacketMeta) -> Reading {
        let Some(extra) = meta.extra_only() else {
            return self.read_any(data, meta);
        };
        let Some(plain) = Plain::read(data, meta) else {
            return self.read_any(data, meta);
        };
        let of = |is_there: bool, bit| if is_there { bit } else { PLAIN };
        let content = of(extra.tunnel.is_some(), TUNNEL) | of(extra.connection.is_some(), CONNECTION);
        self.clear(self.content & !content);
        self.content = content;
        if let Some(tunnel) = &extra.tunnel {
            self.key.set_tunnel(tunnel);
        }
        if let Some(connection) = &extra.connection {
            self.key.set_connection(connection);
        }
        plain.write(&mut self.key);
        Reading::Key
    }

    /// Makes words of a content zero.
    #[inline]
    fn clear(&mut self, content: Content) {
        if content & ANY != 0 {
            self.key = Key::ZERO;
            return;
        }
        if content & TUNNEL != 0 {
            self.key.clear_tunnel();
        }
        if content & CONNECTION != 0 {
            self.key.clear_connection();
        }
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
        self.content = if is_plain { PLAIN } else { ANY };
        reading(read.is_some())
    }

    /// The key of the same packet in a recirculation, where nothing else of it has changed since it
    /// was read.
    #[inline]
    pub fn recirculate(&mut self, id: u32) {
        self.key.set(Field::RecircId, id.into());
    }

    /// The same where the connection tracker has seen the packet meanwhile, and said this.
    #[inline]
    pub fn recirculate_tracked(&mut self, id: u32, connection: &Connection) {
        self.recirculate(id);
        self.key.set_connection(connection);
        self.content |= CONNECTION;
    }
}

fn reading(has_key: bool) -> Reading {
    if has_key { Reading::Key } else { Reading::Malformed }
}
