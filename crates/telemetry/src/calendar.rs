//! Calendar time in the `strftime` templates of log patterns.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::fmt::strtime::{BrokenDownTime, Config};
use jiff::tz::TimeZone;

/// The time since 1970-01-01 00:00 UTC; zero before.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A moment since the epoch in UTC. In the template, `#`s become digits of the fraction of the
/// second; unknown conversions stay as they are. Later times than the year 9999 become its end.
pub(crate) fn utc(since: Duration, template: &str) -> String {
    format(since, TimeZone::UTC, template)
}

/// As [`utc`], in the system's time zone: that of `TZ`, else of `/etc/localtime`.
pub(crate) fn local(since: Duration, template: &str) -> String {
    format(since, TimeZone::system(), template)
}

fn format(since: Duration, zone: TimeZone, template: &str) -> String {
    let moment = i64::try_from(since.as_millis()).ok().map(Timestamp::from_millisecond);
    let moment = moment.and_then(Result::ok).unwrap_or(Timestamp::MAX).to_zoned(zone);
    let template = with_fraction(template, since.subsec_millis());
    let known = BrokenDownTime::from(&moment).to_string_with_config(&Config::new().lenient(true), &template);
    known.unwrap_or(template)
}

/// The template with the fraction's digits instead of `#`s.
fn with_fraction(template: &str, millis: u32) -> String {
    let millis = format!("{millis:03}");
    let mut out = String::with_capacity(template.len());
    let mut digits = millis.chars();
    let mut chars = template.chars();
    while let Some(c) = chars.next() {
        if c == '#' {
            out.push(digits.next().unwrap_or('0'));
            continue;
        }
        digits = millis.chars();
        out.push(c);
        if c == '%' {
            out.extend(chars.next());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_their_calendar_fields() {
        let show = |ms: u64| utc(Duration::from_millis(ms), "%Y-%m-%dT%H:%M:%S.###Z");
        assert_eq!(show(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(show(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(show(1_769_860_799_999), "2026-01-31T11:59:59.999Z");
        assert_eq!(show(4_102_444_800_123), "2100-01-01T00:00:00.123Z");
    }

    #[test]
    fn local_time_is_that_of_the_zone_with_its_summer() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let show = |s: u64| format(Duration::from_secs(s), zone.clone(), "%F %T %Z %z");
        assert_eq!(show(1_769_860_799), "2026-01-31 12:59:59 CET +0100");
        assert_eq!(show(1_782_864_000), "2026-07-01 02:00:00 CEST +0200");
        let west = TimeZone::posix("NST3:30").unwrap();
        assert_eq!(format(Duration::ZERO, west, "%F %T %z"), "1969-12-31 20:30:00 -0330");
    }

    #[test]
    fn conversions_are_strftimes_and_unknown_ones_stay() {
        let show = |template: &str| utc(Duration::from_millis(1_769_904_000_042), template);
        assert_eq!(show("%y%e%b%h|%Z|%z|%%"), "26 1FebFeb|UTC|+0000|%");
        assert_eq!(show("####|##|%T.#"), "0420|04|00:00:00.0");
        assert_eq!(show("%J %"), "%J %");
        assert!(utc(Duration::MAX, "%Y").starts_with("9999"));
    }
}
