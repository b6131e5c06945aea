//! The hash of a station that selects its bucket: Murmur3's 32-bit mixing, as in Open vSwitch, so
//! that `bond/hash` answers the same.

use super::BUCKETS;
use wire::MacAddr;

/// The bucket of a source address in a VLAN (0 without one).
pub fn hash_of_source(mac: MacAddr, vlan: u16, basis: u32) -> u8 {
    let station = u64::from(vlan) << 48 | mac.to_u64();
    let hash = add(add(basis, station as u32), (station >> 32) as u32);
    (finish(hash ^ 8) % BUCKETS as u32) as u8
}

fn add(hash: u32, data: u32) -> u32 {
    let data = data.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ data).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_open_vswitch() {
        let first = MacAddr([0, 0, 0, 0, 0, 1]);
        assert_eq!(hash_of_source(first, 0, 0), 68);
        assert_eq!(hash_of_source(first, 5, 0), 215);
        assert_eq!(hash_of_source(first, 5, 7), 87);
        assert_eq!(hash_of_source(MacAddr::BROADCAST, 4095, 0), 65);
    }
}
