//! Replays the corpora of the fuzz targets, and mutations of them that are the same on every run.

use fuzz_targets::TARGETS;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::{Rng, Tier};

/// Mutations of each corpus file; `OXVS_SOAK` multiplies them, and the long tests make ten times as
/// many.
const MUTATIONS: usize = 200;

#[test]
fn no_target_panics_on_its_corpus_or_on_mutations_of_it() {
    let soak = std::env::var("OXVS_SOAK").ok().and_then(|s| s.parse().ok());
    let long = if Tier::of_this_run() == Tier::Long { 10 } else { 1 };
    let mutations = MUTATIONS * soak.unwrap_or(1) * long;
    let corpora: Vec<Vec<Vec<u8>>> = TARGETS.iter().map(|(name, _)| corpus(name)).collect();
    let files: Vec<(usize, usize)> = (corpora.iter().enumerate())
        .flat_map(|(target, seeds)| (0..seeds.len()).map(move |seed| (target, seed)))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(at, file)) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (name, target) = TARGETS[at];
            let seeds = &corpora[at];
            // Each file has numbers of its own, so that its mutations are the same on every run.
            let mut rng = Rng::new(0x5eed + file as u64);
            let run = catch_unwind(AssertUnwindSafe(|| {
                target(&[]);
                target(&seeds[file]);
                for _ in 0..mutations {
                    target(&mutate(&seeds[file], seeds, &mut rng));
                }
            }));
            assert!(run.is_ok(), "{name} panicked on its file {file} or on a mutation of it");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
}

/// The files of a target's corpus, in the order of their names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    assert!(!paths.is_empty(), "{} is empty", dir.display());
    paths.sort();
    paths.iter().map(|p| std::fs::read(p).expect("a corpus file")).collect()
}

/// A seed with a few bits, bytes or pieces changed, cut off, doubled, or taken from another.
fn mutate(seed: &[u8], others: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(4) {
        if bytes.is_empty() {
            bytes.push(rng.number() as u8);
        }
        let at = rng.below(bytes.len());
        let end = at + rng.below((bytes.len() - at).min(32) + 1);
        match rng.below(7) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = rng.number() as u8,
            2 => bytes[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xff, b'"', b'[', b'{', b'}', b']']),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let other = rng.pick(others);
                let from = rng.below(other.len().max(1)).min(other.len());
                let to = (from + rng.below(64)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
    bytes
}
