//! Real programs that hosts run.

use serde::{Deserialize, Serialize};

/// An application: a server, and the program that loads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Application {
    /// Pages of the web (HTTP/1.1): nginx and wrk.
    Web,
    /// Pages of the web over QUIC (HTTP/3): Caddy, and the laboratory's own program that loads it.
    Http3,
    /// Names: dnsmasq and dnsperf, over UDP.
    Dns,
}

impl Application {
    /// In a scenario's file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Application::Web => "web",
            Application::Http3 => "http3",
            Application::Dns => "dns",
        }
    }

    /// The server and the program that loads it, if that is not the laboratory's own, each with
    /// its Debian package.
    pub(crate) fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Application::Web => &[("nginx", "nginx-light"), ("wrk", "wrk")],
            Application::Http3 => &[("caddy", "caddy")],
            Application::Dns => &[("dnsmasq", "dnsmasq-base"), ("dnsperf", "dnsperf")],
        }
    }

    /// The program that loads the server.
    pub(crate) fn client(self) -> &'static str {
        self.programs().get(1).map_or("http3-load", |(program, _)| program)
    }
}
