//! Real programs that hosts run.

use serde::{Deserialize, Serialize};

/// An application: a server, and the program that loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Application {
    /// Pages of the web (HTTP/1.1): nginx and wrk.
    Web,
    /// Names: dnsmasq and dnsperf, over UDP.
    Dns,
}

impl Application {
    /// In a scenario's file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Application::Web => "web",
            Application::Dns => "dns",
        }
    }

    /// The server and the program that loads it, each with its Debian package.
    pub(crate) fn programs(self) -> [(&'static str, &'static str); 2] {
        match self {
            Application::Web => [("nginx", "nginx-light"), ("wrk", "wrk")],
            Application::Dns => [("dnsmasq", "dnsmasq-base"), ("dnsperf", "dnsperf")],
        }
    }

    /// The program that loads the server.
    pub(crate) fn client(self) -> &'static str {
        self.programs()[1].0
    }
}
