//! The options of an AF_XDP port, under the names of `ovs-vswitchd.conf.db(5)`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use sys::bpf::Hook;

/// Most queues of a port.
const MOST_QUEUES: u32 = 1024;

/// The configuration of an AF_XDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfxdpConfig {
    /// `xdp-mode`.
    pub mode: XdpMode,
    /// `n_rxq`: queues of the device that packets are received by, at least 1.
    pub queues: u32,
    /// `start-qid`: the first queue.
    pub first_queue: u32,
    /// `use-need-wakeup`: call the kernel only when it reports that it needs a call.
    pub need_wakeup: bool,
}

impl Default for AfxdpConfig {
    fn default() -> AfxdpConfig {
        AfxdpConfig {
            mode: XdpMode::BestEffort,
            queues: 1,
            first_queue: 0,
            need_wakeup: true,
        }
    }
}

/// The XDP program's mode, and who copies packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// The best of the others that there is.
    BestEffort,
    /// In the driver, and the device writes packets where the switch reads them.
    NativeZeroCopy,
    /// In the driver; packets are copied.
    Native,
    /// In the host's stack, for every device; packets are copied.
    Generic,
}

impl XdpMode {
    const ALL: [XdpMode; 4] = [
        XdpMode::BestEffort,
        XdpMode::NativeZeroCopy,
        XdpMode::Native,
        XdpMode::Generic,
    ];

    /// The name in `options:xdp-mode`.
    pub const fn as_str(self) -> &'static str {
        match self {
            XdpMode::BestEffort => "best-effort",
            XdpMode::NativeZeroCopy => "native-with-zerocopy",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        }
    }

    /// The modes to try, the best first.
    pub(super) fn attempts(self) -> &'static [XdpMode] {
        match self {
            XdpMode::BestEffort => &[XdpMode::NativeZeroCopy, XdpMode::Native, XdpMode::Generic],
            XdpMode::NativeZeroCopy => &[XdpMode::NativeZeroCopy],
            XdpMode::Native => &[XdpMode::Native],
            XdpMode::Generic => &[XdpMode::Generic],
        }
    }

    pub(super) fn hook(self) -> Hook {
        match self {
            XdpMode::Generic => Hook::XdpGeneric,
            _ => Hook::XdpNative,
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for XdpMode {
    type Err = String;

    fn from_str(text: &str) -> Result<XdpMode, String> {
        let mode = XdpMode::ALL.into_iter().find(|mode| mode.as_str() == text);
        mode.ok_or_else(|| {
            format!("options:xdp-mode={text} is none of best-effort, native-with-zerocopy, native and generic")
        })
    }
}

impl AfxdpConfig {
    /// Reads `Interface.options`; ignores other options.
    ///
    /// # Errors
    /// An option and what is wrong with it.
    pub fn from_options(options: &BTreeMap<String, String>) -> Result<AfxdpConfig, String> {
        let default = AfxdpConfig::default();
        Ok(AfxdpConfig {
            mode: match options.get("xdp-mode") {
                Some(text) => text.parse()?,
                None => default.mode,
            },
            // None is one, says the manual.
            queues: number(options, "n_rxq")?.unwrap_or(default.queues).max(1),
            first_queue: number(options, "start-qid")?.unwrap_or(default.first_queue),
            need_wakeup: match options.get("use-need-wakeup").map(String::as_str) {
                Some("true") => true,
                Some("false") => false,
                Some(other) => return Err(format!("options:use-need-wakeup={other} is neither true nor false")),
                None => default.need_wakeup,
            },
        })
    }
}

fn number(options: &BTreeMap<String, String>, key: &str) -> Result<Option<u32>, String> {
    let Some(text) = options.get(key) else {
        return Ok(None);
    };
    let number = text.parse().ok().filter(|number| *number <= MOST_QUEUES);
    let number = number.ok_or_else(|| format!("options:{key}={text} is not a number from 0 to {MOST_QUEUES}"))?;
    Ok(Some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)]) -> Result<AfxdpConfig, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        AfxdpConfig::from_options(&options.iter().map(own).collect())
    }

    #[test]
    fn options_that_are_not_given_have_the_defaults_of_the_manual() {
        let config = read(&[("something-else", "x")]).unwrap();
        assert_eq!(config, AfxdpConfig::default());
        assert_eq!(
            (config.mode, config.queues, config.need_wakeup),
            (XdpMode::BestEffort, 1, true)
        );
    }

    #[test]
    fn every_option_is_read_and_no_queue_is_one() {
        for mode in XdpMode::ALL {
            assert_eq!(read(&[("xdp-mode", mode.as_str())]).unwrap().mode, mode);
        }
        let config = read(&[("n_rxq", "3"), ("start-qid", "2"), ("use-need-wakeup", "false")]).unwrap();
        assert_eq!((config.queues, config.first_queue, config.need_wakeup), (3, 2, false));
        assert_eq!(read(&[("n_rxq", "0")]).unwrap().queues, 1);
    }

    #[test]
    fn a_wrong_option_is_refused_by_name() {
        for (key, value) in [
            ("xdp-mode", "fast"),
            ("n_rxq", "two"),
            ("n_rxq", "-1"),
            ("start-qid", "5000"),
            ("use-need-wakeup", "yes"),
        ] {
            let error = read(&[(key, value)]).unwrap_err();
            assert!(error.starts_with(&format!("options:{key}={value} is ")), "{error}");
        }
    }
}
