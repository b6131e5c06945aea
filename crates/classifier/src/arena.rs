//! The memory of rules.
//!
//! Rules whose masks use the same number of words share an arena: one array of nodes and, beside
//! it, one of their value words, both addressed by the node's number, so that a lookup can fetch
//! both at once. A node's number carries its arena.

use crate::chunks::Chunks;

/// No node.
pub(crate) const NONE: u32 = u32::MAX;

const INDEX_BITS: u32 = 26;
/// Rules that one arena can hold.
const CAPACITY: usize = (1 << INDEX_BITS) - 1;

#[derive(Debug)]
pub(crate) struct Node<R> {
    /// `None` in a free node.
    pub(crate) rule: Option<R>,
    pub(crate) priority: u32,
    pub(crate) generation: u32,
    pub(crate) shape: u32,
    /// The rule with the same match and the next lower priority. In a free node, the next free one.
    pub(crate) lower: u32,
    /// In the highest rule of its match: the highest rule of the next match in the bucket.
    pub(crate) chain: u32,
}

#[derive(Debug)]
struct Arena<R> {
    nodes: Chunks<Node<R>>,
    values: Chunks<u64>,
    free: u32,
    live: usize,
}

#[derive(Debug)]
pub(crate) struct Arenas<R> {
    /// By the number of words of a value.
    arenas: Vec<Arena<R>>,
    generation: u32,
}

impl<R> Arenas<R> {
    /// For values of up to `words` words, fewer than 64.
    pub(crate) fn new(words: usize) -> Arenas<R> {
        let arena = |words| Arena {
            nodes: Chunks::new(1),
            values: Chunks::new(words),
            free: NONE,
            live: 0,
        };
        Arenas {
            arenas: (0..=words).map(arena).collect(),
            generation: 0,
        }
    }

    /// Empty arenas whose node numbers differ from those of `old`.
    pub(crate) fn renewed(old: &Arenas<R>, words: usize) -> Arenas<R> {
        Arenas {
            generation: old.generation,
            ..Arenas::new(words)
        }
    }

    /// Puts a rule into a node, or returns it if the arena is full.
    pub(crate) fn put(&mut self, rule: R, priority: u32, shape: u32, value: &[u64]) -> Result<u32, R> {
        let arena = &mut self.arenas[value.len()];
        if arena.free == NONE && arena.nodes.len() >= CAPACITY {
            return Err(rule);
        }
        let node = Node {
            rule: Some(rule),
            priority,
            generation: self.generation,
            shape,
            lower: NONE,
            chain: NONE,
        };
        let index = if arena.free == NONE {
            arena.nodes.push(std::iter::once(node));
            arena.values.push(value.iter().copied());
            arena.nodes.len() - 1
        } else {
            let index = arena.free as usize;
            let place = &mut arena.nodes.get_mut(index)[0];
            arena.free = place.lower;
            *place = node;
            arena.values.get_mut(index).copy_from_slice(value);
            index
        };
        self.generation = self.generation.wrapping_add(1);
        arena.live += 1;
        Ok((value.len() as u32) << INDEX_BITS | index as u32)
    }

    /// Takes the rule out of a live node.
    pub(crate) fn take(&mut self, node: u32) -> Option<R> {
        let (arena, index) = split(node);
        let arena = &mut self.arenas[arena];
        let place = &mut arena.nodes.get_mut(index)[0];
        let rule = place.rule.take()?;
        place.lower = arena.free;
        arena.free = index as u32;
        arena.live -= 1;
        if arena.live == 0 {
            arena.nodes.clear();
            arena.values.clear();
            arena.free = NONE;
        }
        Some(rule)
    }

    #[inline]
    pub(crate) fn node(&self, node: u32) -> &Node<R> {
        let (arena, index) = split(node);
        &self.arenas[arena].nodes.get(index)[0]
    }

    #[inline]
    pub(crate) fn node_mut(&mut self, node: u32) -> &mut Node<R> {
        let (arena, index) = split(node);
        &mut self.arenas[arena].nodes.get_mut(index)[0]
    }

    /// The nonzero words of the value, packed.
    #[inline]
    pub(crate) fn value(&self, node: u32) -> &[u64] {
        let (arena, index) = split(node);
        self.arenas[arena].values.get(index)
    }

    /// The node, if it holds a rule.
    pub(crate) fn live(&self, node: u32) -> Option<&Node<R>> {
        let (arena, index) = split(node);
        let arena = self.arenas.get(arena)?;
        if index >= arena.nodes.len() {
            return None;
        }
        let node = &arena.nodes.get(index)[0];
        node.rule.is_some().then_some(node)
    }

    /// The first live node whose number is not below `from`.
    pub(crate) fn next_live(&self, from: u32) -> Option<u32> {
        let (mut arena, mut index) = split(from);
        while let Some(here) = self.arenas.get(arena) {
            while index < here.nodes.len() {
                if here.nodes.get(index)[0].rule.is_some() {
                    return Some((arena as u32) << INDEX_BITS | index as u32);
                }
                index += 1;
            }
            arena += 1;
            index = 0;
        }
        None
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.arenas
            .iter()
            .map(|arena| size_of::<Arena<R>>() + arena.nodes.memory_bytes() + arena.values.memory_bytes())
            .sum()
    }
}

#[inline]
fn split(node: u32) -> (usize, usize) {
    ((node >> INDEX_BITS) as usize, (node & CAPACITY as u32) as usize)
}
