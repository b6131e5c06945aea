//! The data of classes that a packet touches: for each class one cache line, and another for one
//! with a real-time or upper-limit curve.
//!
//! With thousands of classes these lines are in no near cache and are most of a packet's cost. They
//! contain the running curves of one piece, which nearly all are; running curves of two pieces are
//! elsewhere.

use super::curve::{Curve, Line, Running};

/// The kinds of curves, as places in [`Bent`] and as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    RealTime,
    LinkShare,
    UpperLimit,
}

/// The curves of a class, for when it wakes up or changes.
#[derive(Clone, Copy)]
pub(super) struct Curves {
    pub(super) rt: Option<Curve>,
    pub(super) ls: Option<Curve>,
    pub(super) ul: Option<Curve>,
}

/// Which curves a class has, and which of them have two pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Has(u8);

impl Has {
    pub(super) fn new(curves: &Curves) -> Has {
        let all = [
            (Kind::RealTime, curves.rt),
            (Kind::LinkShare, curves.ls),
            (Kind::UpperLimit, curves.ul),
        ];
        let of = |(kind, curve): (Kind, Option<Curve>)| match curve {
            None => 0,
            Some(curve) if curve.is_line() => 1 << kind as u8,
            Some(_) => 0x11 << kind as u8,
        };
        Has(all.into_iter().map(of).sum())
    }

    #[inline]
    pub(super) fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }

    #[inline]
    fn is_bent(self, kind: Kind) -> bool {
        self.0 & 0x10 << kind as u8 != 0
    }
}

/// The part of a class that each packet needs.
#[repr(C, align(64))]
pub(super) struct Class {
    pub(super) parent: u32,
    /// Its number among its siblings.
    pub(super) ordinal: u32,
    /// Its children's competition; `NIL` for leaves.
    pub(super) siblings: u32,
    pub(super) active: bool,
    pub(super) has: Has,
    /// Among its siblings it waits for its time to send.
    pub(super) held: bool,
    /// Bytes served in all.
    pub(super) served: u64,
    pub(super) virtual_time: u64,
    /// When its own limit lets it send.
    pub(super) limited_until: u64,
    pub(super) ls: Line,
}

const _: () = assert!(size_of::<Class>() == 64);

/// The further part of a class with a real-time or an upper-limit curve that each packet needs.
#[repr(C, align(64))]
pub(super) struct Timed {
    pub(super) deadline: Line,
    /// Bytes served in real time.
    pub(super) served: u64,
    pub(super) ul: Line,
    /// Bytes of the packet that leaves next.
    pub(super) next: u32,
    /// Packets become eligible by a concave curve itself, else by the line of its second piece.
    pub(super) concave: bool,
    /// It is among the eligible ones, by deadline, and not among the early ones.
    pub(super) eligible: bool,
}

const _: () = assert!(size_of::<Timed>() == 64);

impl Timed {
    pub(super) fn new(curves: &Curves) -> Timed {
        let line = |curve: &Option<Curve>| curve.as_ref().map_or_else(Line::default, Line::new);
        Timed {
            deadline: line(&curves.rt),
            served: 0,
            ul: line(&curves.ul),
            next: 0,
            concave: curves.rt.is_some_and(|curve| curve.is_concave()),
            eligible: false,
        }
    }
}

/// The running curves of two pieces, by kind and class, up to the last class with one.
#[derive(Default)]
pub(super) struct Bent([Vec<Option<Running>>; 3]);

impl Bent {
    pub(super) fn new(curves: &[Curves]) -> Bent {
        let running = |curve: &Option<Curve>| curve.filter(|curve| !curve.is_line()).map(Running::new);
        Bent([
            up_to_the_last(curves.iter().map(|curves| running(&curves.rt))),
            up_to_the_last(curves.iter().map(|curves| running(&curves.ls))),
            up_to_the_last(curves.iter().map(|curves| running(&curves.ul))),
        ])
    }

    /// Takes over a running curve.
    pub(super) fn inherit(&mut self, kind: Kind, to: usize, other: &mut Bent, from: usize) {
        if let (Some(to), Some(from)) = (self.get_mut(kind, to as u32), other.get_mut(kind, from as u32)) {
            std::mem::swap(to, from);
        }
    }

    /// The running curve of a kind, if it has two pieces.
    pub(super) fn get_mut(&mut self, kind: Kind, class: u32) -> Option<&mut Running> {
        self.0[kind as usize].get_mut(class as usize)?.as_mut()
    }

    /// A curve of a class, which has one of this kind, as it runs: this line, unless it has two
    /// pieces.
    #[inline]
    pub(super) fn run<'a>(&'a mut self, kind: Kind, class: u32, has: Has, line: &'a mut Line) -> Run<'a> {
        if has.is_bent(kind)
            && let Some(running) = self.get_mut(kind, class)
        {
            Run::Bent(running)
        } else {
            Run::Line(line)
        }
    }
}

/// A running curve where it is.
pub(super) enum Run<'a> {
    Line(&'a mut Line),
    Bent(&'a mut Running),
}

impl Run<'_> {
    #[inline]
    pub(super) fn time_of(&self, y: u64) -> u64 {
        match self {
            Run::Line(line) => line.time_of(y),
            Run::Bent(running) => running.time_of(y),
        }
    }

    #[inline]
    pub(super) fn time_on_line(&self, y: u64) -> u64 {
        match self {
            Run::Line(line) => line.time_of(y),
            Run::Bent(running) => running.time_on_line(y),
        }
    }

    pub(super) fn restart(&mut self, curve: &Curve, x: u64, y: u64) {
        match self {
            Run::Line(line) => line.restart(curve, x, y),
            Run::Bent(running) => running.restart(curve, x, y),
        }
    }

    #[inline]
    pub(super) fn delay(&mut self, time: u64) {
        match self {
            Run::Line(line) => line.delay(time),
            Run::Bent(running) => running.delay(time),
        }
    }
}

/// Without the last ones that are none.
fn up_to_the_last<T>(all: impl Iterator<Item = Option<T>>) -> Vec<Option<T>> {
    let mut all: Vec<_> = all.collect();
    let used = all.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    all.truncate(used);
    all.shrink_to_fit();
    all
}
