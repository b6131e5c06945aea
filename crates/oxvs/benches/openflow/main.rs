//! OpenFlow beside Debian's Open vSwitch, in one run: loading and dumping rules, memory, delays of
//! pings and of the database meanwhile, and rates of a reactive controller.
//!
//! `cargo bench -p oxvs --bench openflow [-- [RULES...] [delay] [controller] [ROUNDS]]`, as root:
//! `RULES` like `100k` or `1m`; without any of these words, `100k 1m delay controller`; `ROUNDS` a
//! number (default 3). Both switches run in namespaces between two veth hosts. Figures are medians
//! of interleaved rounds; compare the ratios.

mod controller;
mod delay;
mod meanwhile;
mod rules;
mod system;

use system::Kind;

fn main() {
    if !testkit::is_root() {
        println!("needs root, for network namespaces");
        return;
    }
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut sizes: Vec<usize> = args.iter().filter_map(|arg| size(arg)).collect();
    let chosen = |word: &str| args.iter().any(|arg| arg == word);
    let all = sizes.is_empty() && !chosen("delay") && !chosen("controller");
    if all {
        sizes = vec![100_000, 1_000_000];
    }
    let rounds = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(3);
    let kinds: Vec<Kind> = [Kind::Oxvs, Kind::Debian]
        .into_iter()
        .filter(|kind| kind.is_there())
        .collect();
    if kinds.len() < 2 {
        println!("no Open vSwitch is installed: ours alone");
    }
    for size in sizes {
        rules::compare(&kinds, size, if size > 500_000 { 1 } else { rounds });
    }
    if all || chosen("delay") {
        delay::compare();
    }
    if all || chosen("controller") {
        controller::compare(&kinds, rounds);
    }
}

fn size(word: &str) -> Option<usize> {
    let digits = word.trim_end_matches(['k', 'm']);
    let unit = match &word[digits.len()..] {
        "k" => 1_000,
        "m" => 1_000_000,
        _ => return None,
    };
    Some(digits.parse::<usize>().ok()? * unit)
}

/// The median.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A line of the table: the quantity, each system's figure, and how many times better ours is.
fn line(what: &str, unit: &str, figures: &[f64], more_is_better: bool) {
    let cells: String = figures.iter().map(|figure| format!("{figure:>12.3}")).collect();
    let ratio = match figures {
        [ours, theirs] if more_is_better => format!("{:>8.2}×", ours / theirs),
        [ours, theirs] => format!("{:>8.2}×", theirs / ours),
        _ => String::new(),
    };
    println!("{what:<44} {unit:>9} {cells} {ratio}");
}
