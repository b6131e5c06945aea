//! Replays the corpora of the fuzz targets, and mutations of them that are the same on every run.

use fuzz_targets::TARGETS;
use std::path::Path;
use testkit::Rng;

/// Mutations of each corpus file; `OXVS_SOAK` multiplies them.
const MUTATIONS: usize = 2000;

#[test]
fn no_target_panics_on_its_corpus_or_on_mutations_of_it() {
    let soak = std::env::var("OXVS_SOAK").ok().and_then(|s| s.parse().ok());
    let mutations = MUTATIONS * soak.unwrap_or(1);
    for (name, target) in TARGETS {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../fuzz/corpus")
            .join(name);
        let seeds = seeds(&dir);
        assert!(!seeds.is_empty(), "{} is empty", dir.display());
        let mut rng = Rng::new(0x5eed);
        target(&[]);
        for seed in &seeds {
            target(seed);
            for _ in 0..mutations {
                target(&mutate(seed, &seeds, &mut rng));
            }
        }
    }
}

/// The files of a directory, in the order of their names.
fn seeds(dir: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
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
