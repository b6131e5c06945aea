//! Where packets were lost: their way from the sender to the receiver, and what leaves it at each
//! place.

use super::canvas::{Anchor, Canvas, Drawing, width};
use super::scale::number;

/// Packets that are lost at a place of the way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leak {
    /// Which part of the way, as `queue`.
    pub cause: String,
    /// Where, with packets, the most first.
    pub places: Vec<(String, f64)>,
}

const TOP: f64 = 34.0;
const BAND: f64 = 26.0;
const STEP: f64 = 118.0;
const LINE: f64 = 13.0;
/// Most places that are named.
const NAMED: usize = 3;

/// Draws it: a branch for each cause, as wide as its share of all that was lost. `title` stands
/// above it.
pub(crate) fn losses(title: &str, leaks: &[Leak]) -> Drawing {
    let sum = |leak: &Leak| leak.places.iter().map(|(_, packets)| packets).sum::<f64>();
    let all: f64 = leaks.iter().map(sum).sum();
    let mut canvas = Canvas::default();
    canvas.text("t panel", (0.0, 13.0), Anchor::Start, title);
    let whole = 70.0 + STEP * leaks.len() as f64 + 70.0;
    canvas.text("t", (0.0, TOP + BAND / 2.0 + 4.0), Anchor::Start, "sent");
    canvas.text("t", (whole, TOP + BAND / 2.0 + 4.0), Anchor::End, "received");
    let (first, last) = (34.0, whole - 56.0);
    let mut left = all;
    let mut at = first;
    let depth = TOP + BAND + 30.0;
    for (n, leak) in leaks.iter().enumerate() {
        let packets = sum(leak);
        let share = packets / all.max(f64::MIN_POSITIVE);
        let branch = (share * BAND).max(1.0);
        let x = first + STEP * (n as f64 + 0.5);
        // The band holds what will be lost further on; what arrives is the thin part that stays.
        let (before, after) = (thick(left, all), thick(left - packets, all));
        canvas.area(
            "stream",
            &[(at, TOP), (x, TOP), (x, TOP + before), (at, TOP + before)],
            "",
        );
        let told = format!(
            "{}: {} packets a sample, {} % of all that was lost",
            leak.cause,
            number(packets),
            number((share * 1000.0).round() / 10.0)
        );
        let class = if leak.cause == "unexplained" {
            "leak unexplained"
        } else {
            "leak"
        };
        canvas.area(
            class,
            &[
                (x, TOP + after),
                (x + branch, TOP + after),
                (x + branch, depth),
                (x, depth),
            ],
            &told,
        );
        let point = x + branch / 2.0;
        canvas.area(
            class,
            &[(x - 3.0, depth), (x + branch + 3.0, depth), (point, depth + 7.0)],
            "",
        );
        canvas.text("t name", (x - 6.0, TOP + BAND + 12.0), Anchor::End, &leak.cause);
        let lines = leak
            .places
            .iter()
            .take(NAMED)
            .map(|(place, packets)| format!("{place}: {}", number(*packets)));
        let more = leak.places.len().saturating_sub(NAMED);
        let more = (more > 0).then(|| format!("and {more} more"));
        for (n, line) in lines.chain(more).enumerate() {
            canvas.text("t", (point, depth + 21.0 + LINE * n as f64), Anchor::Middle, &line);
        }
        (left, at) = (left - packets, x);
    }
    let after = thick(0.0, all);
    canvas.area(
        "stream",
        &[(at, TOP), (last, TOP), (last, TOP + after), (at, TOP + after)],
        "",
    );
    let lines = leaks
        .iter()
        .map(|leak| leak.places.len().min(NAMED + 1))
        .max()
        .unwrap_or(0);
    let least = width(title, 13.0);
    canvas.done(
        whole.max(least),
        depth + 26.0 + LINE * lines as f64,
        format!("{title}: where packets were lost"),
    )
}

/// How thick the band is before this many of all lost packets leave it.
fn thick(left: f64, all: f64) -> f64 {
    const STAYS: f64 = 4.0;
    STAYS + (BAND - STAYS) * (left / all.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_a_branch_with_its_places() {
        let leak = |cause: &str, places: &[(&str, f64)]| Leak {
            cause: cause.into(),
            places: places
                .iter()
                .map(|(place, packets)| ((*place).to_owned(), *packets))
                .collect(),
        };
        let many = [("a", 4.0), ("b", 3.0), ("c", 2.0), ("d", 1.0)];
        let drawing = losses("oxvs", &[leak("policer", &[("PC1", 90.0)]), leak("queue", &many)]);
        let body = drawing.body();
        for part in [
            "policer: 90 packets a sample, 90 % of all",
            ">PC1: 90<",
            ">and 1 more<",
            "queue: 10 packets",
        ] {
            assert!(body.contains(part), "{part}: {body}");
        }
        assert_eq!(body.matches("class=\"stream\"").count(), 3);
    }
}
