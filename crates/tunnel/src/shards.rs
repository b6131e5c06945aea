//! A map that readers keep copies of, and whose changes are cheap.
//!
//! A copy shares its parts with the map. A change copies one part only if a reader still has it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

/// Parts of a map. With 16 384 entries, a change copies about 64 of them.
const SHARDS: usize = 256;

/// The map. Its hash is seeded: peers choose some of the keys.
#[derive(Clone, Debug)]
pub(crate) struct Shards<K, V> {
    seed: RandomState,
    shards: Vec<Arc<HashMap<K, V>>>,
}

impl<K, V> Default for Shards<K, V> {
    fn default() -> Shards<K, V> {
        Shards {
            seed: RandomState::new(),
            shards: vec![Arc::default(); SHARDS],
        }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Shards<K, V> {
    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.shards[self.shard(key)].get(key)
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let shard = self.shard(&key);
        Arc::make_mut(&mut self.shards[shard]).insert(key, value);
    }

    /// Removes a key; whether it was there.
    pub(crate) fn remove(&mut self, key: &K) -> bool {
        let shard = self.shard(key);
        // Looking first saves a copy of a part that does not change.
        self.shards[shard].contains_key(key) && Arc::make_mut(&mut self.shards[shard]).remove(key).is_some()
    }

    /// Number of keys.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    fn shard(&self, key: &K) -> usize {
        (self.seed.hash_one(key) % SHARDS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_is_a_map_whose_copies_do_not_change(steps in proptest::collection::vec((0u8..40, any::<Option<u8>>()), 0..200)) {
            let (mut map, mut model) = (Shards::default(), BTreeMap::new());
            let mut copies: Vec<(Shards<u8, u8>, BTreeMap<u8, u8>)> = Vec::new();
            for (key, value) in steps {
                copies.push((map.clone(), model.clone()));
                match value {
                    Some(value) => {
                        map.insert(key, value);
                        model.insert(key, value);
                    }
                    None => prop_assert_eq!(map.remove(&key), model.remove(&key).is_some()),
                }
            }
            copies.push((map, model));
            for (map, model) in copies {
                prop_assert_eq!(map.len(), model.len());
                for key in 0..40 {
                    prop_assert_eq!(map.get(&key), model.get(&key));
                }
            }
        }
    }
}
