//! Numbers from a seed that peers do not know.

/// By how much the state of a sequence grows with each number.
pub(crate) const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Three hash seeds: odd, and different for different seeds.
pub(crate) fn seeds(seed: u64) -> [u64; 3] {
    let mut state = seed;
    [(); 3].map(|()| next(&mut state) | 1)
}

/// The next number of a sequence (SplitMix64).
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(STEP);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
