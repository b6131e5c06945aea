//! Descriptions and changes of tables.

use super::Printer;
use super::name::Name;
use crate::buf::Reader;
use crate::msg::property::Properties;
use crate::{OfError, Version};
use std::fmt::Write;

/// A table's settings: eviction, and vacancy events.
#[derive(Default)]
struct Settings {
    eviction: bool,
    vacancy: bool,
    eviction_flags: Option<u32>,
    /// The thresholds of vacancy events in percent, down and up, and the present vacancy.
    thresholds: [u8; 3],
}

impl Settings {
    /// Reads the properties of a description, or of a change, which is checked.
    fn read(config: u32, body: &mut Reader<'_>, change: bool) -> Result<Settings, OfError> {
        let mut settings = Settings {
            eviction: config & 4 != 0,
            vacancy: config & 8 != 0,
            ..Settings::default()
        };
        let mut properties = Properties::new(body);
        while let Some((kind, mut value)) = properties.next()? {
            match kind {
                2 => {
                    settings.eviction_flags = Some(value.u32()?);
                    value.end()?;
                }
                3 => {
                    settings.thresholds = [value.u8()?, value.u8()?, value.u8()?];
                    value.skip(1)?;
                    value.end()?;
                    let [down, up, now] = settings.thresholds;
                    if change && (now != 0 || down > up || up > 100) {
                        return Err(OfError::BpcBadValue);
                    }
                }
                _ if change => return Err(OfError::BrcBadType),
                _ => {}
            }
        }
        Ok(settings)
    }
}

fn on(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn eviction_flags(out: &mut String, flags: u32) {
    super::bits(out, flags, '|', |n| match n {
        0 => Some("OTHER"),
        1 => Some("IMPORTANCE"),
        2 => Some("LIFETIME"),
        _ => None,
    });
}

impl Printer<'_> {
    fn table_desc(&mut self, body: &mut Reader<'_>) -> Result<(), OfError> {
        let len = usize::from(body.u16()?);
        let mut data = body.sub(len.checked_sub(2).ok_or(OfError::BrcBadLen)?, OfError::BrcBadLen)?;
        let table = data.u8()?;
        data.skip(1)?;
        let config = data.u32()?;
        let settings = Settings::read(config, &mut data, false)?;
        let _ = write!(
            self.out,
            "\n  table {}:\n   eviction={} eviction_flags=",
            crate::text::table(table, self.style),
            on(settings.eviction)
        );
        match settings.eviction_flags {
            Some(flags) => eviction_flags(self.out, flags),
            None => self.out.push_str("(default)"),
        }
        let _ = write!(self.out, "\n   vacancy={}", on(settings.vacancy));
        if settings.vacancy {
            let [down, up, now] = settings.thresholds;
            let _ = write!(self.out, " vacancy_down={down}% vacancy_up={up}% vacancy={now}%");
        }
        self.out.push('\n');
        Ok(())
    }

    pub(super) fn table_descs(&mut self, name: &Name) -> Result<(), OfError> {
        let mut body = Reader::new(self.data.get(name.body..).unwrap_or_default(), OfError::BrcBadLen);
        while !body.is_empty() {
            self.table_desc(&mut body)?;
        }
        Ok(())
    }

    pub(super) fn table_status(&mut self, name: &Name) -> Result<(), OfError> {
        let mut body = Reader::new(self.data.get(name.body..).unwrap_or_default(), OfError::BrcBadLen);
        let reason = body.u8()?;
        body.skip(7)?;
        let reason = match reason {
            3 => " reason=VACANCY_DOWN",
            4 => " reason=VACANCY_UP",
            _ => return Err(OfError::BpcBadValue),
        };
        let before = self.out.len();
        self.table_desc(&mut body)?;
        self.out.insert_str(before, &format!("{reason}\ntable_desc:-"));
        Ok(())
    }

    pub(super) fn table_mod(&mut self, name: &Name) -> Result<(), OfError> {
        let mut body = Reader::new(self.data.get(name.body..).unwrap_or_default(), OfError::BrcBadLen);
        let table = body.u8()?;
        body.skip(3)?;
        let config = body.u32()?;
        let settings = Settings::read(config, &mut body, true)?;
        match table {
            255 => self.out.push_str(" table_id: ALL_TABLES"),
            table => {
                let _ = write!(self.out, " table_id={}", crate::text::table(table, self.style));
            }
        }
        if self.version < Version::V13 {
            let miss = ["controller", "continue", "drop"].get(config as usize & 3);
            if let Some(miss) = miss {
                let _ = writeln!(self.out, ", flow_miss_config={miss}");
            }
        }
        if self.version >= Version::V14 {
            let _ = write!(self.out, ", eviction={}", on(settings.eviction));
            if let Some(flags) = settings.eviction_flags {
                self.out.push_str(", eviction_flags=");
                eviction_flags(self.out, flags);
            }
            let _ = write!(self.out, ", vacancy={}", on(settings.vacancy));
            if settings.vacancy {
                let [down, up, _] = settings.thresholds;
                let _ = write!(self.out, " vacancy:{down},{up}");
            }
        }
        Ok(())
    }
}
