//! First in, first out: one queue, and the three bands of `pfifo_fast`.
//!
//! Source: the manual page tc-pfifo_fast(8). A band is served only while those before it are empty;
//! packets choose theirs by [`Priority::band`]. The bands share one limit of packets (1000, the
//! queue length of a Linux device); at the limit an arriving packet is dropped, whatever its band;
//! queued packets stay.
//!
//! [`Priority::band`]: crate::Priority::band

use crate::pool::{Chain, Cx, Pool};
use crate::{Cause, ConfigError, Packet};

/// A limit of packets, 1 to 1 000 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FifoConfig {
    limit: u32,
}

impl Default for FifoConfig {
    fn default() -> FifoConfig {
        FifoConfig::DEFAULT
    }
}

impl FifoConfig {
    /// The queue length of a Linux device.
    pub(crate) const DEFAULT: FifoConfig = FifoConfig { limit: 1_000 };

    /// With a limit of packets.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] naming `limit`.
    pub fn new(limit: u64) -> Result<FifoConfig, ConfigError> {
        Ok(FifoConfig {
            limit: ConfigError::range("limit", limit, 1, 1_000_000)? as u32,
        })
    }
}

/// `N` bands with one limit.
#[derive(Debug)]
pub(crate) struct Fifo<const N: usize> {
    config: FifoConfig,
    bands: [Chain; N],
    packets: u32,
}

impl Fifo<1> {
    /// Enqueues a packet that is in the pool, if it fits.
    #[inline]
    pub(crate) fn push<P>(&mut self, pool: &mut Pool<P>, id: u32) {
        self.bands[0].push(pool, id);
        self.packets += 1;
    }

    /// The packet that leaves next; [`crate::pool::NIL`] if there is none.
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.bands[0].first()
    }
}

impl<const N: usize> Fifo<N> {
    pub(crate) fn new(config: FifoConfig) -> Fifo<N> {
        Fifo {
            config,
            bands: [const { Chain::new() }; N],
            packets: 0,
        }
    }

    #[inline]
    pub(crate) fn enqueue<P: Packet>(&mut self, id: u32, mut cx: Cx<'_, '_, P>) -> Option<Cause> {
        if self.is_full() {
            cx.drop(id, Cause::Full);
            return Some(Cause::Full);
        }
        let band = if N == 1 {
            0
        } else {
            let (packet, _) = cx.pool.look(id);
            packet.map_or(0, |packet| packet.priority().band()).min(N - 1)
        };
        self.bands[band].push(cx.pool, id);
        self.packets += 1;
        None
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.packets >= self.config.limit
    }

    #[inline]
    pub(crate) fn pop<P>(&mut self, pool: &Pool<P>) -> Option<u32> {
        let id = self.bands.iter_mut().find_map(|band| band.pop(pool))?;
        self.packets -= 1;
        Some(id)
    }

    /// A lower limit drops none of what is queued.
    pub(crate) fn change(&mut self, config: FifoConfig) {
        self.config = config;
    }
}
