//! The fate of each packet: in a kernel, as stored, or in one of our disciplines.

use crate::scenario::Scenario;
use std::fmt::Write as _;

/// The fate of one packet. Times are in µs from the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub sent: u64,
    /// `None`: it was dropped.
    pub left: Option<u64>,
    /// Marked as having met congestion.
    pub marked: bool,
}

/// The fates of a scenario's packets, by number.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub kernel: String,
    pub fates: Vec<Fate>,
}

impl Record {
    /// The numbers of those that left, in the order in which they did.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut left: Vec<(u64, usize)> = (self.fates.iter().enumerate())
            .filter_map(|(n, fate)| fate.left.map(|left| (left, n)))
            .collect();
        left.sort_unstable();
        left.into_iter().map(|(_, n)| n).collect()
    }

    /// As text: the kernel, the scenario, and for each packet when it was sent, how long it stayed
    /// (`-`: dropped), and `m` if it was marked.
    pub(crate) fn to_text(&self, scenario: &Scenario) -> String {
        let mut text = format!("# {}\n# kernel {}\n{}", scenario.name, self.kernel, setup(scenario));
        for fate in &self.fates {
            let _ = match fate.left {
                Some(left) => write!(text, "{} {}", fate.sent, left - fate.sent),
                None => write!(text, "{} -", fate.sent),
            };
            text.push_str(if fate.marked { " m\n" } else { "\n" });
        }
        text
    }

    /// Of such a text, if it is of this very scenario.
    pub(crate) fn from_text(text: &str, scenario: &Scenario) -> Option<Record> {
        let (kernel, rest) = text.split_once("# kernel ")?.1.split_once('\n')?;
        let fates = rest.strip_prefix(&setup(scenario))?.lines().map(|line| {
            let mut words = line.split(' ');
            let sent: u64 = words.next()?.parse().ok()?;
            let left = match words.next()? {
                "-" => None,
                stayed => Some(sent + stayed.parse::<u64>().ok()?),
            };
            let marked = words.next() == Some("m");
            Some(Fate { sent, left, marked })
        });
        let fates: Vec<Fate> = fates.collect::<Option<_>>()?;
        let kernel = kernel.to_owned();
        (fates.len() == scenario.offers.len()).then_some(Record { kernel, fates })
    }
}

fn setup(scenario: &Scenario) -> String {
    let digest = digest(scenario);
    let commands: String = scenario.tc.iter().map(|line| format!("# tc {line}\n")).collect();
    let packets = scenario.offers.len();
    format!("{commands}# {packets} packets, {digest:016x}\n")
}

/// Of all that is offered (FNV-1a): what was recorded for other packets is not compared.
fn digest(scenario: &Scenario) -> u64 {
    let fields = scenario.offers.iter().flat_map(|offer| {
        let ecn = offer.ecn.into();
        [offer.at, offer.flow.into(), offer.class.into(), offer.bytes.into(), ecn]
    });
    fields
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
}
