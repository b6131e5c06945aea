//! The tree of a scheduler's classes, from the numbers of queues and of their parents.

use crate::ConfigError;
use crate::pool::NIL;

/// The highest number of a queue, as with Open vSwitch's HTB.
pub(crate) const MOST: u64 = 0xefff;

/// Class 0 is the root, class n + 1 the nth of the configuration.
pub(crate) struct Tree {
    pub(crate) parents: Vec<u32>,
    /// The most steps down to a leaf.
    pub(crate) heights: Vec<u32>,
    /// Classes by the numbers of their queues.
    pub(crate) by_number: Vec<u32>,
}

impl Tree {
    /// Of numbers and parents' numbers.
    pub(crate) fn new(queues: &[(u32, Option<u32>)]) -> Result<Tree, ConfigError> {
        let most = queues.iter().map(|(number, _)| *number as usize).max().unwrap_or(0);
        let mut by_number = vec![NIL; most + 1];
        for (n, (number, _)) in queues.iter().enumerate() {
            if std::mem::replace(&mut by_number[*number as usize], n as u32 + 1) != NIL {
                return Err(ConfigError::Twice { number: *number });
            }
        }
        let mut parents = vec![NIL];
        for &(number, parent) in queues {
            parents.push(match parent {
                None => 0,
                Some(0) => {
                    return Err(ConfigError::Unsuitable {
                        key: "parent",
                        reason: "queue 0 takes the packets of no other queue, so it can be no parent",
                    });
                }
                Some(parent) => match by_number.get(parent as usize) {
                    Some(&class) if class != NIL => class,
                    _ => return Err(ConfigError::NoParent { number, parent }),
                },
            });
        }
        let heights = heights(&parents).map_err(|class| ConfigError::Loop {
            number: queues[class - 1].0,
        })?;
        Ok(Tree {
            parents,
            heights,
            by_number,
        })
    }

    pub(crate) fn is_leaf(&self, class: usize) -> bool {
        self.heights[class] == 0
    }
}

/// Removes leaves until none is left; the rest is a loop.
fn heights(parents: &[u32]) -> Result<Vec<u32>, usize> {
    let mut children = vec![0u32; parents.len()];
    for &parent in parents.iter().filter(|parent| **parent != NIL) {
        children[parent as usize] += 1;
    }
    let mut heights = vec![0; parents.len()];
    let mut ready: Vec<usize> = (0..parents.len()).filter(|class| children[*class] == 0).collect();
    let mut done = 0;
    while let Some(class) = ready.pop() {
        done += 1;
        let parent = parents[class];
        if parent != NIL {
            let parent = parent as usize;
            heights[parent] = heights[parent].max(heights[class] + 1);
            children[parent] -= 1;
            if children[parent] == 0 {
                ready.push(parent);
            }
        }
    }
    if done == parents.len() {
        Ok(heights)
    } else {
        Err((1..parents.len()).find(|class| children[*class] > 0).unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_strangers_and_doubles_are_refused_by_number() {
        let error = |queues: &[(u32, Option<u32>)]| Tree::new(queues).err();
        assert_eq!(error(&[(1, None), (1, None)]), Some(ConfigError::Twice { number: 1 }));
        assert_eq!(
            error(&[(1, Some(9))]),
            Some(ConfigError::NoParent { number: 1, parent: 9 })
        );
        assert_eq!(
            error(&[(0, None), (4, Some(5)), (5, Some(4)), (6, Some(5))]),
            Some(ConfigError::Loop { number: 4 })
        );
        assert!(matches!(
            error(&[(0, None), (1, Some(0))]),
            Some(ConfigError::Unsuitable { .. })
        ));
    }

    #[test]
    fn a_chain_of_ten_thousand_has_that_height() {
        let chain: Vec<_> = (1..=10_000u32).map(|n| (n, (n > 1).then(|| n - 1))).collect();
        let tree = Tree::new(&chain).unwrap();
        assert_eq!(tree.heights[0], 10_000);
        assert!(tree.is_leaf(10_000) && !tree.is_leaf(9_999));
    }
}
