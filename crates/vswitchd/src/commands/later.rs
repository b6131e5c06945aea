//! Commands of features that are not supported yet. They check their number of arguments and then
//! say so.

use super::Answer;
use crate::state::State;

/// Name, arguments, and the fewest and most of them.
type Entry = (&'static str, &'static str, usize, usize);

const LATER: &[Entry] = &[
    ("dpctl/ct-bkts", "[dp] [gt=N]", 0, 2),
    ("dpctl/ct-del-limits", "[dp] zone=N1[,N2]...", 1, 2),
    ("dpctl/ct-disable-tcp-seq-chk", "[dp]", 0, 1),
    ("dpctl/ct-enable-tcp-seq-chk", "[dp]", 0, 1),
    ("dpctl/ct-get-limits", "[dp] [zone=N1[,N2]...]", 0, 2),
    ("dpctl/ct-get-maxconns", "[dp]", 0, 1),
    ("dpctl/ct-get-nconns", "[dp]", 0, 1),
    ("dpctl/ct-get-sweep-interval", "[dp]", 0, 1),
    ("dpctl/ct-get-tcp-seq-chk", "[dp]", 0, 1),
    (
        "dpctl/ct-set-limits",
        "[dp] [default=L] [zone=N,limit=L]...",
        1,
        usize::MAX,
    ),
    ("dpctl/ct-set-maxconns", "[dp] maxconns", 1, 2),
    ("dpctl/ct-set-sweep-interval", "[dp] ms", 1, 2),
    ("dpctl/ct-stats-show", "[dp] [zone=N]", 0, 3),
    ("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0, 4),
    (
        "dpctl/flush-conntrack",
        "[dp] [zone=N] [ct-orig-tuple] [ct-reply-tuple]",
        0,
        4,
    ),
    ("dpctl/ipf-get-status", "[dp]", 0, 1),
    ("dpctl/ipf-set-disabled", "[dp] v4|v6", 1, 2),
    ("dpctl/ipf-set-enabled", "[dp] v4|v6", 1, 2),
    ("dpctl/ipf-set-max-nfrags", "[dp] maxfrags", 1, 2),
    ("dpctl/ipf-set-min-frag", "[dp] v4|v6 minfragment", 2, 3),
];

pub(super) fn register(add: &impl Fn(&str, &str, usize, usize, fn(&State, &[String]) -> Answer)) {
    for (name, usage, min, max) in LATER {
        add(name, usage, *min, *max, |_, _| Err("not supported yet".to_owned()));
    }
}

/// Those whose names begin with `prefix`, without it, with their arguments.
pub(super) fn of(prefix: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    LATER
        .iter()
        .filter_map(move |(name, usage, ..)| Some((name.strip_prefix(prefix)?, *usage)))
}
