//! The fragments that wait, by datagram, and their bounds.

use super::header::{Datagram, Header};
use super::{Drop, MOST_BYTES, MOST_OF_ONE, Received, TIMEOUT, join};
use nanos::Nanos;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Fragments in total by default, as in Open vSwitch.
const MAX_FRAGMENTS: usize = 1000;
/// Least sizes by default.
const MIN_V4: usize = 1200;
const MIN_V6: usize = 1280;

/// The least size that may be set, in bytes.
const LEAST: usize = 400;
/// The most fragments that may be set.
const MOST: usize = 5000;

/// Fragments that wait for others, and the settings. Reading settings takes no lock.
pub struct Reassembly {
    store: Mutex<Store>,
    settings: Settings,
}

struct Settings {
    enabled: [AtomicBool; 2],
    least: [AtomicUsize; 2],
    max: AtomicUsize,
}

/// Events by IP version. The names are those of `dpctl/ipf-get-status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fragments that were taken.
    pub accepted: u64,
    /// Fragments of datagrams that became whole.
    pub completed: u64,
    /// Fragments whose datagram did not become whole in time.
    pub expired: u64,
    /// Fragments that were too small.
    pub too_small: u64,
    /// Fragments of datagrams with overlaps.
    pub overlapped: u64,
    /// Fragments that others displaced.
    pub purged: u64,
    /// Copies.
    pub duplicate: u64,
    /// Fragments that were broken.
    pub malformed: u64,
    /// Fragments for which there was no room.
    pub full: u64,
}

#[derive(Default)]
struct Store {
    count: usize,
    bytes: usize,
    datagrams: BTreeMap<Datagram, Waiting>,
    /// Datagrams in the order of their first fragments, by the switch's port.
    ports: BTreeMap<u32, Port>,
    next: u64,
    counts: [Counts; 2],
}

#[derive(Default)]
struct Port {
    order: BTreeMap<u64, Datagram>,
    fragments: usize,
}

struct Waiting {
    number: u64,
    in_port: u32,
    since: Nanos,
    /// By offset.
    parts: BTreeMap<usize, (Header, Vec<u8>)>,
    bytes: usize,
    /// Length of the data, once the last fragment is there.
    end: Option<usize>,
    /// Fragments overlapped: whatever comes is dropped.
    spoiled: bool,
}

impl Default for Reassembly {
    fn default() -> Reassembly {
        Reassembly {
            store: Mutex::default(),
            settings: Settings {
                enabled: [AtomicBool::new(true), AtomicBool::new(true)],
                least: [AtomicUsize::new(MIN_V4), AtomicUsize::new(MIN_V6)],
                max: AtomicUsize::new(MAX_FRAGMENTS),
            },
        }
    }
}

impl Reassembly {
    /// Takes a fragment, from the IP header on, of a packet in this zone that came in on this port
    /// of the switch.
    pub fn receive(&self, packet: &[u8], v6: bool, zone: u16, in_port: u32, now: Nanos) -> Received {
        let (least, max) = (self.min_size(v6), self.max());
        let mut store = self.store.lock();
        // Each fragment that comes in pays for the removal of two old datagrams.
        store.expire(now, 2);
        let received = match Header::read(packet, v6, zone) {
            None => Err(Drop::Malformed),
            Some(header) if header.more && header.data.end < least => Err(Drop::TooSmall),
            Some(header) => store.add(header, packet, in_port, max, now),
        };
        store.account(received, v6)
    }

    /// Drops datagrams that were not whole in time, `budget` at most; returns whether more are
    /// left.
    pub fn expire(&self, now: Nanos, budget: usize) -> bool {
        self.store.lock().expire(now, budget)
    }

    /// Drops all fragments.
    pub fn purge(&self) {
        let mut store = self.store.lock();
        while let Some(datagram) = store.datagrams.keys().next().copied() {
            let fragments = store.remove(&datagram).map_or(0, |waiting| waiting.parts.len());
            store.counts[usize::from(datagram.is_v6())].purged += fragments as u64;
        }
    }

    /// Whether fragments of this IP version are reassembled.
    pub fn is_enabled(&self, v6: bool) -> bool {
        self.settings.enabled[usize::from(v6)].load(Ordering::Relaxed)
    }

    /// Turns reassembly on or off. The caller asks [`Reassembly::is_enabled`].
    pub fn set_enabled(&self, v6: bool, enabled: bool) {
        self.settings.enabled[usize::from(v6)].store(enabled, Ordering::Relaxed);
    }

    /// The least size of fragments that are not the last one.
    pub fn min_size(&self, v6: bool) -> usize {
        self.settings.least[usize::from(v6)].load(Ordering::Relaxed)
    }

    /// Sets the least size in bytes, IP header included; false if it is below 400.
    pub fn set_min_size(&self, v6: bool, bytes: usize) -> bool {
        let allowed = bytes >= LEAST;
        if allowed {
            self.settings.least[usize::from(v6)].store(bytes, Ordering::Relaxed);
        }
        allowed
    }

    /// Fragments at most.
    pub fn max(&self) -> usize {
        self.settings.max.load(Ordering::Relaxed)
    }

    /// Sets the number of fragments at most; false if it is above 5000.
    pub fn set_max(&self, max: usize) -> bool {
        let allowed = max <= MOST;
        if allowed {
            self.settings.max.store(max, Ordering::Relaxed);
        }
        allowed
    }

    /// Fragments that wait.
    pub fn len(&self) -> usize {
        self.store.lock().count
    }

    /// Whether no fragment waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Events so far.
    pub fn counts(&self, v6: bool) -> Counts {
        self.store.lock().counts[usize::from(v6)]
    }

    /// The datagrams that wait: source, destination, fragments.
    pub fn waiting(&self) -> Vec<(std::net::IpAddr, std::net::IpAddr, usize)> {
        let store = self.store.lock();
        let waiting = store.datagrams.iter().filter(|(_, waiting)| !waiting.spoiled);
        waiting
            .map(|(datagram, waiting)| {
                let (src, dst) = datagram.addresses();
                (src, dst, waiting.parts.len())
            })
            .collect()
    }
}

impl Store {
    fn account(&mut self, received: Result<Option<super::Whole>, Drop>, v6: bool) -> Received {
        let counts = &mut self.counts[usize::from(v6)];
        match received {
            Ok(None) => {
                counts.accepted += 1;
                Received::Held
            }
            Ok(Some(whole)) => {
                counts.accepted += 1;
                counts.completed += whole.fragments() as u64;
                Received::Whole(whole)
            }
            Err(why) => {
                let counter = match why {
                    Drop::Malformed => &mut counts.malformed,
                    Drop::TooSmall => &mut counts.too_small,
                    Drop::Overlap => &mut counts.overlapped,
                    Drop::Duplicate => &mut counts.duplicate,
                    Drop::Full => &mut counts.full,
                };
                *counter += 1;
                Received::Dropped(why)
            }
        }
    }

    fn add(
        &mut self,
        header: Header,
        packet: &[u8],
        in_port: u32,
        max: usize,
        now: Nanos,
    ) -> Result<Option<super::Whole>, Drop> {
        let datagram = header.datagram;
        // A datagram that waits too long is over, though nobody has removed it yet.
        if self
            .datagrams
            .get(&datagram)
            .is_some_and(|waiting| is_over(waiting, now))
        {
            self.drop_expired(&datagram);
        }
        let (start, end) = (header.offset, header.offset + header.data.len());
        if let Some(waiting) = self.datagrams.get(&datagram) {
            match waiting.judge(start, end, header.more, packet) {
                Err(Drop::Overlap) => {
                    self.spoil(&datagram);
                    return Err(Drop::Overlap);
                }
                judged => judged?,
            }
        }
        // Only a new place needs room; what is there keeps its own datagram.
        self.make_room(packet.len(), max, in_port, &datagram)?;
        let number = self.next;
        let waiting = self.datagrams.entry(datagram).or_insert_with(|| Waiting {
            number,
            in_port,
            since: now,
            parts: BTreeMap::new(),
            bytes: 0,
            end: None,
            spoiled: false,
        });
        if waiting.number == number {
            self.next += 1;
            self.ports.entry(in_port).or_default().order.insert(number, datagram);
        }
        waiting.end = waiting.end.or((!header.more).then_some(end));
        let kept = packet[..header.data.end].to_vec();
        waiting.bytes += kept.len();
        self.bytes += kept.len();
        self.count += 1;
        let of_port = waiting.in_port;
        waiting.parts.insert(start, (header, kept));
        let complete = waiting.is_complete();
        if let Some(port) = self.ports.get_mut(&of_port) {
            port.fragments += 1;
        }
        if !complete {
            return Ok(None);
        }
        let parts = self
            .remove(&datagram)
            .map(|waiting| waiting.parts.into_values().collect());
        match parts.and_then(join) {
            Some(whole) => Ok(Some(whole)),
            None => Err(Drop::Malformed),
        }
    }

    /// Makes room for a fragment of these bytes. A port that has most fragments itself gets none.
    fn make_room(&mut self, bytes: usize, max: usize, in_port: u32, own: &Datagram) -> Result<(), Drop> {
        while self.count >= max || self.bytes + bytes > MOST_BYTES {
            let fullest = self.ports.iter().max_by_key(|(_, port)| port.fragments);
            let (number, port) = fullest.ok_or(Drop::Full)?;
            let of_own = self.ports.get(&in_port).map_or(0, |port| port.fragments);
            if *number == in_port || port.fragments <= of_own {
                return Err(Drop::Full);
            }
            let oldest = port.order.values().find(|datagram| *datagram != own).copied();
            let oldest = oldest.ok_or(Drop::Full)?;
            let purged = self.remove(&oldest).map_or(0, |waiting| waiting.parts.len());
            self.counts[usize::from(oldest.is_v6())].purged += purged as u64;
        }
        Ok(())
    }

    /// Drops the fragments of a datagram; it stays, so that those to come are dropped too.
    fn spoil(&mut self, datagram: &Datagram) {
        let waiting = self.datagrams.get_mut(datagram);
        let Some(waiting) = waiting.filter(|waiting| !waiting.spoiled) else {
            return;
        };
        let (fragments, bytes) = (waiting.parts.len(), waiting.bytes);
        waiting.parts.clear();
        waiting.bytes = 0;
        waiting.spoiled = true;
        let of_port = waiting.in_port;
        self.counts[usize::from(datagram.is_v6())].overlapped += fragments as u64;
        // A spoiled datagram counts as one fragment, so that they are bounded as well.
        self.count = self.count + 1 - fragments;
        self.bytes -= bytes;
        if let Some(port) = self.ports.get_mut(&of_port) {
            port.fragments = port.fragments + 1 - fragments;
        }
    }

    fn expire(&mut self, now: Nanos, budget: usize) -> bool {
        for _ in 0..budget {
            let oldest = self
                .ports
                .values()
                .filter_map(|port| port.order.first_key_value())
                .min();
            let Some((_, datagram)) = oldest else { return false };
            let datagram = *datagram;
            if !self
                .datagrams
                .get(&datagram)
                .is_some_and(|waiting| is_over(waiting, now))
            {
                return false;
            }
            self.drop_expired(&datagram);
        }
        true
    }

    fn drop_expired(&mut self, datagram: &Datagram) {
        let expired = self.remove(datagram).map_or(0, |waiting| waiting.parts.len());
        self.counts[usize::from(datagram.is_v6())].expired += expired as u64;
    }

    fn remove(&mut self, datagram: &Datagram) -> Option<Waiting> {
        let waiting = self.datagrams.remove(datagram)?;
        let fragments = if waiting.spoiled { 1 } else { waiting.parts.len() };
        self.count -= fragments;
        self.bytes -= waiting.bytes;
        if let Some(port) = self.ports.get_mut(&waiting.in_port) {
            port.order.remove(&waiting.number);
            port.fragments -= fragments;
            if port.order.is_empty() {
                self.ports.remove(&waiting.in_port);
            }
        }
        Some(waiting)
    }
}

fn is_over(waiting: &Waiting, now: Nanos) -> bool {
    now >= waiting.since + TIMEOUT
}

impl Waiting {
    /// Whether a fragment of this place fits to those that are there.
    fn judge(&self, start: usize, end: usize, more: bool, packet: &[u8]) -> Result<(), Drop> {
        if self.spoiled {
            return Err(Drop::Overlap);
        }
        if let Some((header, bytes)) = self.parts.get(&start)
            && header.offset + header.data.len() == end
            && header.more == more
            && packet.get(packet.len().min(header.data.start)..header.data.end) == bytes.get(header.data.clone())
        {
            return Err(Drop::Duplicate);
        }
        let before = self.parts.range(..end).next_back();
        let overlaps = before.is_some_and(|(_, (header, _))| header.offset + header.data.len() > start);
        // Nothing lies behind the last fragment, and there is one last fragment.
        let furthest = self.parts.values().next_back();
        let beyond = self.end.is_some_and(|own| end > own || !more);
        let short = !more && furthest.is_some_and(|(header, _)| header.offset + header.data.len() > end);
        if overlaps || beyond || short {
            return Err(Drop::Overlap);
        }
        if self.parts.len() >= MOST_OF_ONE {
            return Err(Drop::Full);
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        let Some(end) = self.end else { return false };
        // They do not overlap: if they sum up to the length, there is no gap.
        let sum: usize = self.parts.values().map(|(header, _)| header.data.len()).sum();
        sum == end
    }
}
