//! Figures, as SVG that takes its colours from a style sheet.
//!
//! - [`Drawing`]: what was drawn, with its size.
//! - [`Scale`]: from numbers to places, with ticks.
//! - [`lines`], [`dots`]: the two plots. [`strip`]: a claim's effects. [`losses`]: where packets
//!   were lost. [`testbed`]: hosts, bridges and cables.
//!
//! Sizes are in CSS pixels at the size that a figure is made for: a panel fits a phone without
//! being scaled down.

mod canvas;
mod dots;
mod lines;
mod losses;
mod scale;
mod strip;
mod testbed;
mod tikz;

pub(crate) use canvas::{Drawing, Form, RADIUS, Shape, escape, marker, width};
pub(crate) use dots::{Dot, Dots, Group, dots};
pub(crate) use lines::{DASHES, Line, Plot, Point, lines};
pub(crate) use losses::{Leak, losses};
pub(crate) use scale::{Axis, Scale, TAIL, number, rough};
pub(crate) use strip::{Effect, axis as strip_axis, strip};
pub(crate) use testbed::testbed;
pub(crate) use tikz::escape as latex_escape;
