//! The bridge from `tracing` to modules and destinations.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::registry::{REGISTRY, module_of};
use super::sink::SINKS;
use super::{Destination, Level};

pub(super) struct VlogLayer;

impl<S: Subscriber> Layer<S> for VlogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        let on = !metadata.is_span() && admits(metadata);
        if on { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        !metadata.is_span() && admits(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match REGISTRY.most_verbose() {
            Level::Off | Level::Emer => LevelFilter::OFF,
            Level::Err => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Dbg => LevelFilter::DEBUG,
        })
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(level) = level_of(event.metadata()) else {
            return;
        };
        let mut text = Text::default();
        event.record(&mut text);
        text.message.push_str(&text.fields);
        write_lines(module_of(event.metadata().target()), level, (&text.message, text.lines));
    }
}

/// Writes one message to each destination that takes it.
pub(super) fn write(module: &str, level: Level, message: &str) {
    write_lines(module, level, (message, false));
}

/// The same without the console.
pub(super) fn write_beside_console(module: &str, level: Level, message: &str) {
    write_where(module, level, (message, false), |d| d != Destination::Console);
}

/// Writes one message that may have lines.
fn write_lines(module: &str, level: Level, message: (&str, bool)) {
    write_where(module, level, message, |_| true);
}

fn write_where(module: &str, level: Level, message: (&str, bool), wanted: impl Fn(Destination) -> bool) {
    let module = REGISTRY.module(module);
    let wanted = Destination::ALL.map(|d| module.level(d) >= level && wanted(d));
    SINKS.lock().write(wanted, module.name(), level, message);
}

fn admits(metadata: &Metadata<'_>) -> bool {
    let module = module_of(metadata.target());
    level_of(metadata).is_some_and(|level| REGISTRY.module(module).admits_any(level))
}

/// `None` for `TRACE`, which has no counterpart.
fn level_of(metadata: &Metadata<'_>) -> Option<Level> {
    match *metadata.level() {
        tracing::Level::ERROR => Some(Level::Err),
        tracing::Level::WARN => Some(Level::Warn),
        tracing::Level::INFO => Some(Level::Info),
        tracing::Level::DEBUG => Some(Level::Dbg),
        tracing::Level::TRACE => None,
    }
}

/// An event's message, then its other fields as ` name=value`. The field `lines` is not printed: an
/// event that has it keeps the newlines of its message.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
    lines: bool,
}

impl Visit for Text {
    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "lines" => self.lines = value,
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
