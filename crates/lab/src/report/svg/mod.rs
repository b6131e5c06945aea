//! Figures, as SVG that takes its colours from a style sheet.
//!
//! - [`Drawing`]: what was drawn, with its size.
//! - [`Scale`]: from numbers to places, with ticks.
//! - [`lines`], [`bars`]: the two plots. [`testbed`]: hosts, bridges and cables.
//!
//! Sizes are in CSS pixels at the size that a figure is made for: a panel fits a phone without
//! being scaled down.

mod bars;
mod canvas;
mod lines;
mod scale;
mod testbed;

pub(crate) use bars::{Bar, Bars, Group, bars};
pub(crate) use canvas::{Drawing, RADIUS, escape, marker, width};
pub(crate) use lines::{Line, Plot, Point, lines};
pub(crate) use scale::{Axis, Scale, number, rough};
pub(crate) use testbed::testbed;
