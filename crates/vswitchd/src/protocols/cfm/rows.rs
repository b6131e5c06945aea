//! The columns of CFM in `Interface`.

use ovsdb::rows;
use protocols::cfm::{Config, Interval, VlanTagging};
use wire::{MacAddr, Vid};

/// A maintenance point that a row asks for, without its Ethernet source; `None` if it asks for none
/// or has a wrong number, as in Open vSwitch.
pub(crate) fn wanted(row: &rows::Interface) -> Option<Config> {
    let keys = &row.other_config;
    let flag = |key: &str| keys.get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let number = |key: &str| keys.get(key).and_then(|value| value.trim().parse::<i32>().ok());
    let extended = flag("cfm_extended");
    // Extended mode takes all 64 bits.
    let point = row.cfm_mpid?.cast_unsigned();
    if !Config::is_point(point, extended) {
        return None;
    }
    let millis = number("cfm_interval").filter(|millis| *millis > 0).unwrap_or(1000);
    let vlan = match keys.get("cfm_ccm_vlan") {
        Some(random) if random.eq_ignore_ascii_case("random") => VlanTagging::Random,
        Some(_) => VlanTagging::Vlan(Vid::from_tci(number("cfm_ccm_vlan").unwrap_or_default() as u16)),
        None => VlanTagging::Vlan(Vid::NONE),
    };
    Some(Config {
        point,
        extended,
        interval: Interval::of(millis.unsigned_abs(), extended),
        demand: flag("cfm_demand"),
        up: keys
            .get("cfm_opstate")
            .is_none_or(|state| state.eq_ignore_ascii_case("up")),
        vlan,
        priority: number("cfm_ccm_pcp").unwrap_or_default() as u8 & 7,
        mac: MacAddr::ZERO,
    })
}
