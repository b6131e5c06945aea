//! The ratio of a metric at two values of a dimension.

use super::data::{Panel, datum, legend, panel, scales, system_key};
use super::{Figure, draw_dots, marks};
use crate::report::exhibits::Quotient;
use crate::report::summary::Summary;
use crate::report::svg::Axis;
use crate::stats::Repeated;

/// For each system and each cell with both values: of each repetition the one over the other.
pub(super) fn quotient(summary: &Summary, metric: &str, ratio: &Quotient) -> Option<Figure> {
    let mut panels: Vec<Panel> = Vec::new();
    let mut groups: Vec<String> = Vec::new();
    for (over, at) in summary.cells.iter().enumerate() {
        if at.get(&ratio.dimension) != Some(&ratio.over) {
            continue;
        }
        let mut below = at.clone();
        below.insert(ratio.dimension.clone(), ratio.under.clone());
        let Some(under) = summary.cells.iter().position(|at| *at == below) else {
            continue;
        };
        below.remove(&ratio.dimension);
        let name = summary.name(&below);
        groups.push(name.clone());
        for system in &summary.systems {
            let values = |cell| summary.values(system, cell, metric, 1.0).into_iter();
            let pairs = values(over).zip(values(under)).filter(|(_, (_, under))| *under > 0.0);
            let ratios = Repeated::new(pairs.map(|((bed, over), (_, under))| (bed, over / under)));
            let drawn = datum(name.clone(), system_key(system), &ratios);
            panel(&mut panels, String::new(), "").data.extend(drawn);
        }
    }
    panels.retain(|panel| !panel.data.is_empty());
    let y = Axis {
        title: ratio.title.clone(),
        unit: String::new(),
    };
    let drawn = panels.iter().zip(scales(&panels)).map(|(panel, scale)| {
        (
            String::new(),
            draw_dots(panel, &groups, &Axis::default(), y.clone(), scale),
        )
    });
    (!panels.is_empty()).then(|| Figure {
        caption: format!("{}; 1 is no difference.", ratio.title),
        reading: marks(panels.iter().flat_map(|panel| &panel.data)),
        legend: legend(&panels),
        panels: drawn.collect(),
    })
}
