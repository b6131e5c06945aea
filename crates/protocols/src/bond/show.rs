//! `bond/show`, as Open vSwitch prints it.

use super::Mode;
use super::machine::Bond;
use nanos::Nanos;
use std::fmt::Write;
use wire::MacAddr;

impl Bond {
    /// The text of `bond/show` for a bond of this name.
    pub fn show(&self, name: &str, now: Nanos) -> String {
        let mut out = String::new();
        self.write(&mut out, name, now);
        out
    }

    fn write(&self, out: &mut String, name: &str, now: Nanos) {
        let config = &self.config;
        let mut line = |text: String| {
            let _ = writeln!(out, "{text}");
        };
        line(format!("---- {name} ----"));
        line(format!("bond_mode: {}", config.mode.name()));
        let recirculates = config.mode == Mode::Tcp;
        let id = if recirculates { i64::from(config.id) } else { -1 };
        line(format!(
            "bond may use recirculation: {}, Recirc-ID : {id}",
            if recirculates { "yes" } else { "no" },
        ));
        line(format!("bond-hash-basis: {}", config.basis));
        line(match recirculates && config.lb_output {
            true => format!("lb_output action: enabled, bond-id: {id}"),
            false => "lb_output action: disabled, bond-id: -1".to_owned(),
        });
        if config.mode == Mode::Slb {
            line(format!("all members active: {}", config.all_members_active));
        }
        line(format!("updelay: {} ms", config.updelay.as_millis()));
        line(format!("downdelay: {} ms", config.downdelay.as_millis()));
        if self.is_balanced() && self.rebalance_at != Nanos::MAX {
            let left = self.rebalance_at.since(now);
            line(format!("next rebalance: {} ms", left.as_millis()));
        }
        line(format!("lacp_status: {}", self.lacp.name()));
        line(format!("lacp_fallback_ab: {}", config.fallback));
        line(match &config.primary {
            None => "active-backup primary: <none>".to_owned(),
            Some(primary) if self.members.contains_key(primary) => format!("active-backup primary: {primary}"),
            Some(primary) => format!("active-backup primary: {primary} (no such member)"),
        });
        let mac = self.active_mac.unwrap_or(MacAddr::ZERO);
        let active = self.active.as_deref().unwrap_or("none");
        line(format!("active member mac: {mac}({active})"));
        for (name, member) in &self.members {
            let state = if member.enabled { "enabled" } else { "disabled" };
            line(format!("\nmember {name}: {state}"));
            if self.active.as_ref() == Some(name) {
                line("  active member".to_owned());
            }
            if let Some(at) = member.follows {
                let kind = if member.enabled { "downdelay" } else { "updelay" };
                line(format!("  {kind} expires in {} ms", at.since(now).as_millis()));
            }
            line(format!("  may_enable: {}", member.may_enable));
            if !self.is_balanced() {
                continue;
            }
            for (hash, bucket) in self.buckets.iter().enumerate() {
                if bucket.member.as_ref() == Some(name) && bucket.load >= 1024 {
                    line(format!("  hash {hash}: {} kB load", bucket.load / 1024));
                }
            }
        }
        line(String::new());
    }
}
