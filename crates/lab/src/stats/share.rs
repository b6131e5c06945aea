//! How evenly something is shared.

/// Jain's index of fairness: 1 if all are equal, 1/n if one has all; 1 for an empty list.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// The largest difference between a flow's share of the received and of the offered load: 0 if
/// shares are proportional to the load.
pub fn proportional(offered: &[f64], received: &[f64]) -> f64 {
    let (all_offered, all_received) = (offered.iter().sum::<f64>(), received.iter().sum::<f64>());
    if all_offered == 0.0 || all_received == 0.0 {
        return if all_offered == all_received { 0.0 } else { 1.0 };
    }
    let apart = |(o, r): (&f64, &f64)| (r / all_received - o / all_offered).abs();
    offered.iter().zip(received).map(apart).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_that_of_its_author() {
        assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
        assert_eq!(jain(&[9.0, 0.0, 0.0]), 1.0 / 3.0);
        assert_eq!(jain(&[]), 1.0);
    }

    #[test]
    fn shares_proportional_to_the_load_are_no_distance_from_it() {
        assert!(proportional(&[4.0, 8.0], &[3.0, 6.0]) < 1e-12);
        assert!((proportional(&[3.0, 9.0], &[5.0, 5.0]) - 0.25).abs() < 1e-12);
        assert_eq!(proportional(&[1.0], &[0.0]), 1.0);
    }
}
