//! Addresses that a bridge does not forward frames to, unless `other_config:forward-bpdu` is set.

use wire::MacAddr;

/// Addresses outside IEEE 802.1Q's own block, and how many of their low bits do not matter.
const VENDORS: [(u64, u32); 7] = [
    // Extreme Discovery Protocol.
    (0x00e0_2b00_0000, 0),
    // Ethernet Automatic Protection Switching (RFC 3619).
    (0x00e0_2b00_0004, 0),
    (0x00e0_2b00_0006, 0),
    // Cisco: Inter Switch Link; CDP, VTP, DTP, PAgP, UDLD; PVST+; STP Uplink Fast; CFM. The manual
    // writes the last as 01:00:0c:cc:cc:cx; the switch it describes takes only those with a last
    // digit below 8, and so do we.
    (0x0100_0c00_0000, 0),
    (0x0100_0ccc_cccc, 1),
    (0x0100_0ccd_cdcd, 0),
    (0x0100_0ccc_ccc0, 3),
];

/// Whether frames to `mac` stay on their link.
pub(crate) fn is_reserved(mac: MacAddr) -> bool {
    let bits = mac.to_u64();
    mac.is_reserved() || VENDORS.iter().any(|(address, free)| bits >> free == address >> free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_the_manual_are_reserved() {
        let reserved = [
            "01:80:c2:00:00:00",
            "01:80:c2:00:00:0f",
            "00:e0:2b:00:00:00",
            "00:e0:2b:00:00:04",
            "00:e0:2b:00:00:06",
            "01:00:0c:00:00:00",
            "01:00:0c:cc:cc:cc",
            "01:00:0c:cc:cc:cd",
            "01:00:0c:cd:cd:cd",
            "01:00:0c:cc:cc:c0",
            "01:00:0c:cc:cc:c7",
        ];
        let others = [
            "01:80:c2:00:00:10",
            "00:e0:2b:00:00:05",
            "01:00:0c:00:00:01",
            "01:00:0c:cc:cc:c8",
            "01:00:0c:cc:cc:ce",
            "ff:ff:ff:ff:ff:ff",
            "02:00:00:00:00:01",
        ];
        assert_eq!(reserved.map(|mac| is_reserved(mac.parse().unwrap())), [true; 11]);
        assert_eq!(others.map(|mac| is_reserved(mac.parse().unwrap())), [false; 7]);
    }
}
