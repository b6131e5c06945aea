//! The configuration of HTB.

use crate::codel::MTU;
use crate::tree::{MOST, Tree};
use crate::{ConfigError, LeafConfig, LinkLayer, Nanos, Rate};

/// The default rate of an HTB class, in bit/s.
const LEAST_RATE: u64 = 12_000;

/// A class: a queue, or the parent of others.
#[derive(Clone, Debug)]
pub struct HtbClass {
    pub(crate) number: u32,
    pub(crate) parent: Option<u32>,
    pub(crate) min_rate: Rate,
    pub(crate) max_rate: Option<Rate>,
    pub(crate) burst: Option<u64>,
    pub(crate) quantum: Option<u32>,
    pub(crate) priority: u8,
    pub(crate) leaf: LeafConfig,
}

impl HtbClass {
    /// The class of a queue, 0 to 61 439, that is a child of the port's.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `queue`.
    pub fn new(number: u32) -> Result<HtbClass, ConfigError> {
        ConfigError::range("queue", u64::from(number), 0, MOST)?;
        Ok(HtbClass {
            number,
            parent: None,
            min_rate: Rate::new("min-rate", LEAST_RATE)?,
            max_rate: None,
            burst: None,
            quantum: None,
            priority: 0,
            leaf: LeafConfig::default(),
        })
    }

    /// As a child of another queue's class. A queue with children takes no packets; packets sent to
    /// it go to queue 0.
    pub fn parent(self, parent: u32) -> HtbClass {
        HtbClass {
            parent: Some(parent),
            ..self
        }
    }

    /// With a guaranteed rate in bit/s (default and minimum 12 000). The children of a class should
    /// not have a larger sum than the class itself, but they get it nevertheless.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `min-rate`.
    pub fn min_rate(self, bits: u64) -> Result<HtbClass, ConfigError> {
        Ok(HtbClass {
            min_rate: Rate::new("min-rate", bits.max(LEAST_RATE))?,
            ..self
        })
    }

    /// With a ceiling for borrowing in bit/s (default: its parent's; not below `min-rate`).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `max-rate`.
    pub fn max_rate(self, bits: u64) -> Result<HtbClass, ConfigError> {
        Ok(HtbClass {
            max_rate: Some(Rate::new("max-rate", bits)?),
            ..self
        })
    }

    /// With a burst after a pause, up to 2^42 bits (default and minimum: two packets of 1514 bytes,
    /// and a millisecond at its rate).
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `burst`.
    pub fn burst(self, bits: u64) -> Result<HtbClass, ConfigError> {
        Ok(HtbClass {
            burst: Some(ConfigError::range("burst", bits, 0, 1 << 42)? / 8),
            ..self
        })
    }

    /// With the bytes of its turn when classes compete for borrowed rate, 64 to 2^24. Default: in
    /// proportion to `min-rate`, 1514 for the least among its siblings, or less so that the
    /// greatest has at most sixteen times that.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `quantum`.
    pub fn quantum(self, bytes: u64) -> Result<HtbClass, ConfigError> {
        Ok(HtbClass {
            quantum: Some(ConfigError::range("quantum", bytes, 64, 1 << 24)? as u32),
            ..self
        })
    }

    /// With a priority in borrowing: 0 (first, and the default) to 7; higher numbers are 7.
    pub fn priority(self, priority: u64) -> HtbClass {
        HtbClass {
            priority: priority.min(7) as u8,
            ..self
        }
    }

    /// With a discipline (default: a FIFO of 1000 packets).
    pub fn leaf(self, leaf: LeafConfig) -> HtbClass {
        HtbClass { leaf, ..self }
    }
}

/// A port's classes.
#[derive(Clone, Debug)]
pub struct HtbConfig {
    pub(crate) rate: Rate,
    pub(crate) link: LinkLayer,
    pub(crate) classes: Vec<HtbClass>,
}

impl HtbConfig {
    /// With the port's rate in bit/s and its classes. A queue 0 is added if there is none.
    ///
    /// # Errors
    /// [`ConfigError`], if the rate is out of range (`max-rate`) or the classes are not a tree.
    pub fn new(max_rate: u64, mut classes: Vec<HtbClass>) -> Result<HtbConfig, ConfigError> {
        if !classes.iter().any(|class| class.number == 0) {
            classes.push(HtbClass::new(0)?);
        }
        let config = HtbConfig {
            rate: Rate::new("max-rate", max_rate)?,
            link: LinkLayer::FRAME,
            classes,
        };
        config.tree()?;
        Ok(config)
    }

    /// With a link-layer overhead for its rates (default: none).
    pub fn link(self, link: LinkLayer) -> HtbConfig {
        HtbConfig { link, ..self }
    }

    pub(crate) fn tree(&self) -> Result<Tree, ConfigError> {
        let queues: Vec<_> = self.classes.iter().map(|class| (class.number, class.parent)).collect();
        Tree::new(&queues)
    }

    /// The ceiling of each class of the tree: its own, else its parent's; not below its rate.
    pub(crate) fn ceilings(&self, tree: &Tree) -> Vec<Rate> {
        let mut order: Vec<usize> = (1..tree.parents.len()).collect();
        order.sort_by_key(|class| std::cmp::Reverse(tree.heights[*class]));
        let mut ceilings = vec![self.rate; tree.parents.len()];
        for class in order {
            let spec = &self.classes[class - 1];
            let ceiling = spec.max_rate.unwrap_or(ceilings[tree.parents[class] as usize]);
            ceilings[class] = if ceiling.bits_per_second() < spec.min_rate.bits_per_second() {
                spec.min_rate
            } else {
                ceiling
            };
        }
        ceilings
    }

    /// The time that the bucket of a rate holds, in picoseconds.
    pub(crate) fn depth(rate: Rate, burst: Option<u64>) -> i64 {
        rate.depth(HtbConfig::burst(rate, burst))
    }

    /// The bytes that the bucket of a rate holds.
    pub(crate) fn burst(rate: Rate, burst: Option<u64>) -> u64 {
        let least = rate.bytes_in(Nanos::from_millis(1)).max(2 * u64::from(MTU));
        burst.unwrap_or(0).max(least)
    }

    /// The quantum of each class of the tree.
    pub(crate) fn quanta(&self, tree: &Tree) -> Vec<i64> {
        let mut bounds = vec![(u64::MAX, 1); tree.parents.len()];
        for (n, class) in self.classes.iter().enumerate() {
            let (least, most) = &mut bounds[tree.parents[n + 1] as usize];
            *least = class.min_rate.bits_per_second().min(*least);
            *most = class.min_rate.bits_per_second().max(*most);
        }
        let own = self.classes.iter().enumerate().map(|(n, class)| {
            let (least, most) = bounds[tree.parents[n + 1] as usize];
            let largest = u128::from(MTU) * u128::from((most / least.max(1)).clamp(1, 16));
            let share = largest * u128::from(class.min_rate.bits_per_second()) / u128::from(most);
            class.quantum.map_or(share.max(64) as i64, i64::from)
        });
        std::iter::once(i64::from(MTU)).chain(own).collect()
    }
}
