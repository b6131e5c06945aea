//! A study's figure or table, drawn from its printed numbers.

use super::data::{Datum, Panel, distinct, interval, legend, panel, scales};
use super::{Across, Figure, Key, draw_dots};
use crate::report::exhibits::Drawn;
use crate::report::looks;
use crate::report::svg::{Axis, Drawing};
use crate::table::{Cell, Table};
use std::collections::BTreeMap;

/// The level of its intervals: the highest that a study prints.
const LEVEL: f64 = 0.99;

/// Draws it; none if there are no numbers.
pub(crate) fn study(drawn: &Drawn, tables: &BTreeMap<String, Table>) -> Option<Figure> {
    let table = tables.get(&drawn.table)?;
    let main = panels(drawn, table);
    let lost = drawn.lost.as_ref().and_then(|name| tables.get(name));
    let lost = lost.map_or_else(Vec::new, |table| panels(drawn, table));
    let mut all: Vec<(String, Drawing)> = Vec::new();
    for (panels, unit) in [(&main, table.unit.as_str()), (&lost, "lost streams")] {
        let y = Axis {
            title: if unit.is_empty() {
                "as printed, without a unit"
            } else {
                unit
            }
            .to_owned(),
            unit: String::new(),
        };
        for (panel, scale) in panels.iter().zip(scales(panels)) {
            let values = distinct(panel.data.iter().map(|datum| datum.x.clone()));
            let x = Axis {
                title: drawn.across.replace('_', " "),
                unit: String::new(),
            };
            let is_ordered = values.iter().all(|value| value.parse::<f64>().is_ok());
            let drawing = if is_ordered && unit != "lost streams" {
                Across::of(x, values, drawn.across == "window_kb").draw(panel, y.clone(), scale)
            } else {
                draw_dots(panel, &values, &x, y.clone(), scale)
            };
            all.push((String::new(), drawing));
        }
    }
    let has_intervals = main
        .iter()
        .flat_map(|panel| &panel.data)
        .any(|datum| datum.interval.is_some());
    let caption = if has_intervals {
        "Whiskers are 99 % confidence intervals of the mean, by what the study prints of its spread."
    } else {
        "The study prints no spread."
    };
    (!all.is_empty()).then(|| Figure {
        caption: caption.to_owned(),
        reading: String::new(),
        legend: legend(&main),
        panels: all,
    })
}

fn panels(drawn: &Drawn, table: &Table) -> Vec<Panel> {
    let chosen = |cell: &&Cell| {
        let is =
            |(name, values): (&String, &Vec<String>)| cell.at.get(name).is_some_and(|value| values.contains(value));
        drawn.at.iter().all(is)
    };
    let series = distinct(
        table
            .cells
            .iter()
            .filter(chosen)
            .filter_map(|cell| cell.at.get(&drawn.series).cloned()),
    );
    let mut panels = Vec::new();
    for cell in table.cells.iter().filter(chosen) {
        let mut rest = cell.at.clone();
        let (Some(x), Some(of)) = (rest.remove(&drawn.across), rest.remove(&drawn.series)) else {
            continue;
        };
        let named =
            |(name, value): (&String, &String)| format!("{} {}", name.replace('_', " "), value.replace('_', " "));
        let title = rest.iter().map(named).collect::<Vec<_>>().join(", ");
        let place = series.iter().position(|known| *known == of).unwrap_or(0);
        panel(&mut panels, title, "").data.push(Datum {
            x,
            series: (place, key(&of, place)),
            value: cell.value.mean(),
            interval: interval(cell.value.estimate, LEVEL, true),
            raw: Vec::new(),
            reference: None,
        });
    }
    panels
}

/// What can be measured here looks as it does in our figures; what cannot has a look of its own.
fn key(name: &str, place: usize) -> Key {
    const LOOKS: usize = 7;
    let look = match name {
        "Open vSwitch" | "ovs" => looks::of_system("ovs-kernel"),
        "linux_bridge" => looks::of_system("bridge"),
        _ => (format!("h{}", place % LOOKS), place),
    };
    let name = match name {
        "ovs" => "Open vSwitch".to_owned(),
        "linux_bridge" => "Linux bridge".to_owned(),
        other => other.replace('_', " "),
    };
    Key {
        look,
        name,
        of: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::exhibits::Exhibits;

    #[test]
    fn every_printed_number_of_an_exhibit_is_a_mark_in_its_drawing() {
        let exhibits = Exhibits::published().unwrap();
        let mut tables = crate::findings::published().unwrap().printed().unwrap();
        tables.extend(exhibits.tables().unwrap());
        for exhibit in &exhibits.exhibit {
            let Some(drawn) = &exhibit.drawn else { continue };
            let figure = study(drawn, &tables).unwrap();
            let marks: usize = figure
                .panels
                .iter()
                .map(|(_, drawing)| drawing.body().matches("\"dot h").count())
                .sum();
            let others: usize = figure
                .panels
                .iter()
                .map(|(_, drawing)| drawing.body().matches("\"dot s").count())
                .sum();
            let names: Vec<&String> = drawn.lost.iter().chain([&drawn.table]).collect();
            let chosen = |cell: &&Cell| drawn.at.iter().all(|(name, values)| values.contains(&cell.at[name]));
            let cells: usize = names
                .iter()
                .map(|name| tables[*name].cells.iter().filter(chosen).count())
                .sum();
            assert_eq!(marks + others, cells, "{} {}", exhibit.study, exhibit.number);
        }
    }
}
