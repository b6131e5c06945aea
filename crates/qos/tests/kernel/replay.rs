//! Sends the same packets through one of our disciplines on virtual time, at the kernel's arrival
//! times.

use crate::common::Parcel;
use crate::record::{Fate, Record};
use crate::scenario::Scenario;
use qos::{Nanos, Scheduler};

/// The fates of a scenario's packets in our discipline, sent at the times of a record.
pub(crate) fn replay(scenario: &Scenario, kernel: &Record) -> Record {
    let mut scheduler = (scenario.ours)();
    // Time does not start at 0, so that buckets are full.
    let origin = Nanos::from_secs(10);
    let mut fates: Vec<Fate> = (kernel.fates.iter())
        .map(|fate| Fate {
            left: None,
            marked: false,
            ..*fate
        })
        .collect();
    let mut now = origin;
    for (number, offer) in scenario.offers.iter().enumerate() {
        let at = origin + Nanos::from_micros(fates[number].sent);
        leave(&mut *scheduler, &mut now, at, origin, &mut fates);
        let parcel = Parcel {
            ecn: offer.ecn,
            priority: offer.class as u8,
            born: at,
            ..Parcel::new(number as u64, offer.bytes.into())
        };
        let parcel = parcel.flow(offer.flow.into()).queue(offer.class.into());
        let _ = scheduler.enqueue(parcel, now, &mut |_, _| ());
    }
    leave(
        &mut *scheduler,
        &mut now,
        origin + Nanos::from_secs(3_600),
        origin,
        &mut fates,
    );
    assert_eq!(scheduler.packets(), 0, "something never left");
    Record {
        kernel: "oxvs".to_owned(),
        fates,
    }
}

/// Lets everything leave that does before `until`, which it then is.
fn leave(scheduler: &mut dyn Scheduler<Parcel>, now: &mut Nanos, until: Nanos, origin: Nanos, fates: &mut [Fate]) {
    loop {
        while let Some(parcel) = scheduler.dequeue(*now, &mut |_, _| ()) {
            let fate = &mut fates[parcel.id as usize];
            fate.left = Some(now.since(origin).0 / 1_000);
            fate.marked = parcel.marked;
        }
        match scheduler.next_event(*now) {
            Some(next) if next <= until => *now = next.max(Nanos(now.0 + 1)),
            _ => {
                *now = until.max(*now);
                return;
            }
        }
    }
}
