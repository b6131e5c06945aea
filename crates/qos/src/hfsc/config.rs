//! The configuration of HFSC.

use super::curve::Curve;
use crate::tree::{MOST, Tree};
use crate::{ConfigError, LeafConfig, LinkLayer, Rate};

/// The default rate of an HFSC class, in bit/s.
const LEAST_RATE: u64 = 12_000;

/// A class: a queue, or the parent of others.
#[derive(Clone, Debug)]
pub struct HfscClass {
    pub(crate) number: u32,
    pub(crate) parent: Option<u32>,
    pub(crate) rt: Option<Curve>,
    pub(crate) ls: Option<Curve>,
    pub(crate) ul: Option<Curve>,
    pub(crate) leaf: LeafConfig,
}

impl HfscClass {
    /// The class of a queue, 0 to 61 439, that is a child of the port's, with no curves.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `queue`.
    pub fn new(number: u32) -> Result<HfscClass, ConfigError> {
        ConfigError::range("queue", u64::from(number), 0, MOST)?;
        Ok(HfscClass {
            number,
            parent: None,
            rt: None,
            ls: None,
            ul: None,
            leaf: LeafConfig::default(),
        })
    }

    /// With `min-rate` as real-time and link-share curve, at least 12 000 bit/s, and `max-rate`,
    /// not below it, as upper limit, if given.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `min-rate` or `max-rate`.
    pub fn rates(self, min: u64, max: Option<u64>) -> Result<HfscClass, ConfigError> {
        let min = min.max(LEAST_RATE);
        let curve = Curve::linear("min-rate", min)?;
        let ul = max.map(|max| Curve::linear("max-rate", max.max(min))).transpose()?;
        Ok(HfscClass {
            rt: Some(curve),
            ls: Some(curve),
            ul,
            ..self
        })
    }

    /// As a child of another queue's class. A queue with children takes no packets; packets sent to
    /// it go to queue 0.
    pub fn parent(self, parent: u32) -> HfscClass {
        HfscClass {
            parent: Some(parent),
            ..self
        }
    }

    /// With a real-time curve: the service guaranteed to the class whatever its ancestors do.
    /// Together such curves must stay below the link's rate. Leaves only.
    pub fn rt(self, curve: Curve) -> HfscClass {
        HfscClass {
            rt: Some(curve),
            ..self
        }
    }

    /// With a link-share curve: its share of the remaining rate among its siblings.
    pub fn ls(self, curve: Curve) -> HfscClass {
        HfscClass {
            ls: Some(curve),
            ..self
        }
    }

    /// With an upper limit for the service by its link-share curve.
    pub fn ul(self, curve: Curve) -> HfscClass {
        HfscClass {
            ul: Some(curve),
            ..self
        }
    }

    /// With a discipline (default: a FIFO of 1000 packets).
    pub fn leaf(self, leaf: LeafConfig) -> HfscClass {
        HfscClass { leaf, ..self }
    }
}

/// A port's classes.
#[derive(Clone, Debug)]
pub struct HfscConfig {
    pub(crate) ul: Curve,
    pub(crate) link: LinkLayer,
    pub(crate) classes: Vec<HfscClass>,
}

impl HfscConfig {
    /// With the port's rate in bit/s, which limits all link-sharing, and its classes. A queue 0 is
    /// added if there is none.
    ///
    /// # Errors
    /// [`ConfigError`]: the rate is out of range (`max-rate`), the classes are not a tree, a parent
    /// has a real-time or no link-share curve (`rt`, `ls`), a queue has neither, or an upper limit
    /// without a link-share curve (`ul`), or a link-share or upper-limit curve ends flat.
    pub fn new(max_rate: u64, mut classes: Vec<HfscClass>) -> Result<HfscConfig, ConfigError> {
        if !classes.iter().any(|class| class.number == 0) {
            classes.push(HfscClass::new(0)?.rates(0, None)?);
        }
        let config = HfscConfig {
            ul: Curve::linear("max-rate", max_rate)?,
            link: LinkLayer::FRAME,
            classes,
        };
        let tree = config.tree()?;
        let refuse = |key, reason| Err(ConfigError::Unsuitable { key, reason });
        for (n, class) in config.classes.iter().enumerate() {
            let leaf = tree.is_leaf(n + 1);
            let flat = |curve: &Option<Curve>| curve.is_some_and(|curve| curve.rate() == 0);
            if !leaf && class.rt.is_some() {
                return refuse("rt", "only a queue without children can have a real-time curve");
            }
            if class.ls.is_none() && (!leaf || class.rt.is_none() || flat(&class.rt)) {
                return refuse("ls", "without it this class might never send");
            }
            if class.ul.is_some() && class.ls.is_none() {
                return refuse("ul", "an upper limit needs a link-share curve");
            }
            if flat(&class.ls) || flat(&class.ul) {
                return refuse(
                    if flat(&class.ls) { "ls" } else { "ul" },
                    "its last slope must not be 0",
                );
            }
        }
        Ok(config)
    }

    /// With a link-layer overhead for its rates (default: none).
    pub fn link(self, link: LinkLayer) -> HfscConfig {
        HfscConfig { link, ..self }
    }

    pub(crate) fn tree(&self) -> Result<Tree, ConfigError> {
        let queues: Vec<_> = self.classes.iter().map(|class| (class.number, class.parent)).collect();
        Tree::new(&queues)
    }

    /// The lowest rate that limits a class or an ancestor, in the long run.
    pub(crate) fn limit(&self, tree_parents: &[u32], mut class: u32) -> Option<Rate> {
        let mut least = self.ul.rate();
        while let Some(spec) = (class as usize).checked_sub(1).and_then(|n| self.classes.get(n)) {
            least = spec.ul.map_or(least, |ul| ul.rate().min(least));
            class = tree_parents[class as usize];
        }
        Rate::new("ul", least).ok()
    }
}
