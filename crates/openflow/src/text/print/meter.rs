//! Meters.

use super::{Printer, bits};
use crate::Version;
use crate::model::{ALL_METERS, BandKind, Duration, MeterCommand, MeterConfig, MeterFeatures, MeterMod, MeterStats};
use std::fmt::Write;

/// Names of the bits of a meter's flags.
const FLAGS: [&str; 4] = ["kbps", "pktps", "burst", "stats"];

/// A meter's number or name behind `meter` and a separator.
pub(super) fn id(out: &mut String, meter: u32, separator: char) {
    let _ = match meter {
        0xffff_fffd => write!(out, "meter{separator}slowpath"),
        0xffff_fffe => write!(out, "meter{separator}controller"),
        ALL_METERS => write!(out, "meter{separator}all"),
        0xffff_0001.. => write!(out, "meter{separator}unknown"),
        meter => write!(out, "meter{separator}{meter}"),
    };
}

/// A meter as commands take it, but for the newlines between bands.
pub(super) fn config(out: &mut String, config: &MeterConfig) {
    id(out, config.meter, '=');
    for (n, name) in FLAGS.iter().enumerate() {
        if config.flags & 1 << n != 0 {
            let _ = write!(out, " {name}");
        }
    }
    let unknown = config.flags & !0xf;
    if unknown != 0 {
        let _ = write!(out, " flags:{unknown:#x}");
    }
    out.push_str(" bands=");
    for band in &config.bands {
        out.push_str("\ntype=");
        out.push_str(match band.kind {
            BandKind::Drop => "drop",
            BandKind::DscpRemark(_) => "dscp_remark",
        });
        let _ = write!(out, " rate={}", band.rate);
        if config.flags & 4 != 0 {
            let _ = write!(out, " burst_size={}", band.burst);
        }
        if let BandKind::DscpRemark(level) = band.kind {
            let _ = write!(out, " prec_level={level}");
        }
    }
    out.push('\n');
}

impl Printer<'_> {
    pub(super) fn meter_mod(&mut self, m: &MeterMod) {
        self.out.push_str(match m.command {
            MeterCommand::Add => " ADD ",
            MeterCommand::Modify => " MOD ",
            MeterCommand::Delete => " DEL ",
        });
        config(self.out, &m.config);
    }

    pub(super) fn meter_configs(&mut self, meters: &[MeterConfig]) {
        for meter in meters {
            self.out.push('\n');
            config(self.out, meter);
        }
    }

    pub(super) fn meter_stats(&mut self, meters: &[MeterStats]) {
        for meter in meters {
            self.out.push('\n');
            id(self.out, meter.meter, ':');
            let _ = writeln!(
                self.out,
                " flow_count:{} packet_in_count:{} byte_in_count:{} duration:{} bands:",
                meter.flows,
                meter.packets,
                meter.bytes,
                duration(meter.duration)
            );
            for (n, (packets, bytes)) in meter.bands.iter().enumerate() {
                let _ = writeln!(self.out, "{n}: packet_count:{packets} byte_count:{bytes}");
            }
        }
    }

    pub(super) fn meter_features(&mut self, features: MeterFeatures) {
        let _ = write!(
            self.out,
            "\nmax_meter:{} max_bands:{} max_color:{}\nband_types: ",
            features.max_meters, features.max_bands, features.max_color
        );
        bits(self.out, features.band_types, ' ', |n| match n {
            1 => Some("drop"),
            2 => Some("dscp_remark"),
            _ => None,
        });
        self.out.push_str("\ncapabilities: ");
        bits(self.out, features.capabilities, ' ', |n| FLAGS.get(n as usize).copied());
        self.out.push('\n');
    }
}

/// Seconds with as many decimals as they need; if there are any, at least three.
pub(super) fn duration(d: Duration) -> String {
    match (d.nsec, d.nsec % 1_000_000) {
        (0, _) => format!("{}s", d.sec),
        (u32::MAX, _) if d.sec == u32::MAX => "?".into(),
        (_, 0) => format!("{}.{:03}s", d.sec, d.nsec / 1_000_000),
        _ => format!("{}.{:09}s", d.sec, d.nsec),
    }
}

/// Whether a version has durations of ports, queues and groups.
pub(super) fn tells_duration(version: Version) -> bool {
    version >= Version::V13
}
