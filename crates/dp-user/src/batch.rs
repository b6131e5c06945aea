//! The packets that a worker handles together, and the megaflow of each.

use crate::signature::NONE;
use flow::{Key, KeySlot, PacketMeta, PortNo, Reading};
use netdev::Frame;

/// Frames in a batch.
pub const BATCH: usize = 32;

/// In place of a megaflow's number: no key could be read.
pub(crate) const MALFORMED: u32 = NONE - 1;

/// See the module's page.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) frames: Vec<Frame>,
    /// Those of the frames come first, in order; keys of earlier batches are behind them.
    places: Vec<Run>,
    used: usize,
    /// The port, where it has just received all the packets; `None` for packets that recirculate,
    /// or come from a tunnel.
    pub(super) received: Option<PortNo>,
    /// The keys of all runs were read, and are those of the packets as they are now.
    pub(crate) has_keys: bool,
    /// The megaflow generation when those without one were looked for.
    pub(crate) searched: u64,
}

/// Frames that, one after the other, have the same key, again and again.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) key: KeySlot,
    /// By which its megaflow is remembered.
    pub(crate) hash: u64,
    /// The number of the megaflow, [`NONE`] or [`MALFORMED`].
    pub(crate) flow: u32,
    pub(crate) packets: u32,
    pub(crate) bytes: u32,
}

impl Run {
    /// Takes in those of the next packets that visibly repeat one that did: there are often more.
    #[inline(never)]
    fn take_repeated<const RECEIVED: bool>(&mut self, repeated: &Frame, rest: &mut std::slice::Iter<Frame>) {
        const ALIKE: PacketMeta = PacketMeta::received(PortNo(0));
        while let Some(next) = rest.as_slice().first() {
            let metas = if RECEIVED {
                (&ALIKE, &ALIKE)
            } else {
                (&next.meta, &repeated.meta)
            };
            if !flow::repeats((next.data(), metas.0), (repeated.data(), metas.1)) {
                break;
            }
            self.packets += 1;
            self.bytes += next.len() as u32;
            rest.next();
        }
    }
}

impl Batch {
    /// Reads the keys of the packets, one key for packets in a row that have the same one.
    /// `RECEIVED`: all packets have just come in on `port`. Then nobody asks for their metadata,
    /// which saves seven instructions a packet.
    #[inline(always)]
    pub(crate) fn read<const RECEIVED: bool>(&mut self, port: PortNo, hash: impl Fn(&Key) -> u64) {
        let packets = self.frames.len();
        self.places.resize_with(self.places.len().max(packets), Run::default);
        let received = PacketMeta::received(port);
        self.has_keys = true;
        let mut used = 0;
        let (mut before, mut places) = (None::<&mut Run>, self.places.iter_mut());
        let mut place = places.next();
        let mut frames = self.frames.iter();
        while let Some(frame) = frames.next() {
            let Some(run) = place else { break };
            let len = frame.len() as u32;
            let meta = if RECEIVED { &received } else { &frame.meta };
            match run.key.read(frame.data(), meta, before.as_ref().map(|run| &run.key)) {
                Reading::Same => {
                    if let Some(before) = &mut before {
                        before.packets += 1;
                        before.bytes += len;
                        before.take_repeated::<RECEIVED>(frame, &mut frames);
                    }
                    place = Some(run);
                    continue;
                }
                Reading::Key => (run.hash, run.flow) = (hash(&run.key), NONE),
                Reading::Malformed => run.flow = MALFORMED,
            }
            (run.packets, run.bytes) = (1, len);
            before = Some(run);
            place = places.next();
            used += 1;
        }
        self.used = used;
    }

    #[inline(always)]
    pub(crate) fn runs(&self) -> &[Run] {
        &self.places[..self.used]
    }

    #[inline(always)]
    pub(crate) fn runs_mut(&mut self) -> &mut [Run] {
        &mut self.places[..self.used]
    }

    /// The runs, and the frames of all of them.
    #[inline(always)]
    pub(crate) fn parts_mut(&mut self) -> (&mut [Run], &mut Vec<Frame>) {
        (&mut self.places[..self.used], &mut self.frames)
    }

    /// Takes the frames beyond a batch out.
    pub(crate) fn split_rest(&mut self) -> Vec<Frame> {
        match self.frames.len() > BATCH {
            true => self.frames.split_off(BATCH),
            false => Vec::new(),
        }
    }

    /// Puts in a batch of the frames that [`Batch::split_rest`] took out.
    pub(crate) fn refill(&mut self, rest: &mut Vec<Frame>) {
        self.frames.extend(rest.drain(..rest.len().min(BATCH)));
    }

    pub(crate) fn forget_runs(&mut self) {
        self.used = 0;
    }

    /// All packets are of this megaflow.
    pub(crate) fn run_of(&mut self, number: u32) {
        if self.places.is_empty() {
            self.places.push(Run::default());
        }
        self.used = 1;
        self.has_keys = false;
        self.places[0].flow = number;
        self.places[0].packets = self.frames.len() as u32;
        self.places[0].bytes = bytes_of(&self.frames) as u32;
    }

    /// How many packets are in the runs that have a bit here.
    pub(crate) fn packets_in(&self, mut runs: u32) -> u32 {
        let mut packets = 0;
        while runs != 0 {
            packets += self.places[runs.trailing_zeros() as usize].packets;
            runs &= runs - 1;
        }
        packets
    }
}

#[inline]
pub(crate) fn bytes_of(frames: &[Frame]) -> u64 {
    frames.iter().map(|frame| frame.len() as u64).sum()
}
