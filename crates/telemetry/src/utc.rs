//! Calendar time, and the few `strftime` conversions that log patterns use.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A moment, broken into calendar fields (proleptic Gregorian) of a time zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Calendar {
    pub(crate) year: i64,
    pub(crate) month: u32,
    pub(crate) day: u32,
    pub(crate) hour: u32,
    pub(crate) minute: u32,
    pub(crate) second: u32,
    pub(crate) millis: u32,
    /// The zone's abbreviation, `UTC` or `CEST`.
    pub(crate) zone: String,
    /// What the zone is ahead of the UTC, in seconds.
    pub(crate) offset: i32,
}

/// The time since 1970-01-01 00:00 UTC; zero before.
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

impl Calendar {
    /// A moment since the epoch in UTC.
    pub(crate) fn utc(since: Duration) -> Calendar {
        Calendar::ahead(since, 0, "UTC")
    }

    /// A moment since the epoch in the system's time zone: that of `TZ`, else of `/etc/localtime`.
    pub(crate) fn local(since: Duration) -> Calendar {
        Calendar::of_zone(since, &TimeZone::system())
    }

    fn of_zone(since: Duration, zone: &TimeZone) -> Calendar {
        match Timestamp::try_from(UNIX_EPOCH + since) {
            Ok(moment) => {
                let here = zone.to_offset_info(moment);
                Calendar::ahead(since, here.offset().seconds(), here.abbreviation())
            }
            Err(_) => Calendar::utc(since),
        }
    }

    fn ahead(since: Duration, offset: i32, zone: &str) -> Calendar {
        let seconds = since.as_secs() as i64 + i64::from(offset);
        let (year, month, day) = civil(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400) as u32;
        Calendar {
            year,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            millis: since.subsec_millis(),
            zone: zone.to_owned(),
            offset,
        }
    }

    /// Expands a template of `strftime`; `#`s become digits of the fraction of the second.
    pub(crate) fn format(&self, template: &str) -> String {
        let mut out = String::with_capacity(template.len() + 16);
        let mut chars = template.chars();
        let mut fraction_digits = 0;
        let millis = format!("{:03}", self.millis);
        while let Some(c) = chars.next() {
            if c == '#' {
                out.push(millis.chars().nth(fraction_digits).unwrap_or('0'));
                fraction_digits += 1;
                continue;
            }
            fraction_digits = 0;
            if c != '%' {
                out.push(c);
                continue;
            }
            let _ = match chars.next() {
                Some('Y') => write!(out, "{}", self.year),
                Some('y') => write!(out, "{:02}", self.year.rem_euclid(100)),
                Some('m') => write!(out, "{:02}", self.month),
                Some('d') => write!(out, "{:02}", self.day),
                Some('e') => write!(out, "{:2}", self.day),
                Some('b' | 'h') => write!(out, "{}", MONTHS[(self.month - 1) as usize]),
                Some('H') => write!(out, "{:02}", self.hour),
                Some('M') => write!(out, "{:02}", self.minute),
                Some('S') => write!(out, "{:02}", self.second),
                Some('T') => write!(out, "{:02}:{:02}:{:02}", self.hour, self.minute, self.second),
                Some('F') => write!(out, "{}-{:02}-{:02}", self.year, self.month, self.day),
                Some('Z') => write!(out, "{}", self.zone),
                Some('z') => {
                    let minutes = self.offset.abs() / 60;
                    let sign = if self.offset < 0 { '-' } else { '+' };
                    write!(out, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
                }
                Some('%') => write!(out, "%"),
                Some(other) => write!(out, "%{other}"),
                None => Ok(()),
            };
        }
        out
    }
}

/// Year, month and day of a day counted from 1970-01-01, by counting in eras of 400 years that
/// begin on 1 March.
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_their_calendar_fields() {
        let show = |ms: u64| Calendar::utc(Duration::from_millis(ms)).format("%Y-%m-%dT%H:%M:%S.###Z");
        assert_eq!(show(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(show(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(show(1_769_860_799_999), "2026-01-31T11:59:59.999Z");
        assert_eq!(show(4_102_444_800_123), "2100-01-01T00:00:00.123Z");
    }

    #[test]
    fn local_time_is_that_of_the_zone_with_its_summer() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let show = |s: u64| Calendar::of_zone(Duration::from_secs(s), &zone).format("%F %T %Z %z");
        assert_eq!(show(1_769_860_799), "2026-01-31 12:59:59 CET +0100");
        assert_eq!(show(1_782_864_000), "2026-07-01 02:00:00 CEST +0200");
        let west = TimeZone::posix("NST3:30").unwrap();
        let calendar = Calendar::of_zone(Duration::ZERO, &west);
        assert_eq!(calendar.format("%F %T %z"), "1969-12-31 20:30:00 -0330");
    }
}
