//! The first part of the page: what came out, in three sentences and one figure.

use crate::report::svg::{self, Effect};
use crate::report::tables::{Cell, View};
use crate::report::verdicts::{Mark, Row};
use crate::report::{looks, words};
use crate::results::Results;
use crate::scenario::Scenario;
use serde::Serialize;

use super::{KeyView, cell};
use crate::report::studies::STUDIES;

/// Claims of a study.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    title: String,
    claims: Vec<ClaimView>,
    /// Whether a claim has effects, so that an axis is needed.
    strips: bool,
}

/// A claim by switch.
#[derive(Debug, Serialize)]
struct ClaimView {
    id: String,
    says: String,
    marks: Vec<MarkView>,
    strip: String,
}

#[derive(Debug, Serialize)]
struct MarkView {
    of: String,
    class: &'static str,
    sign: &'static str,
    title: String,
}

/// The figure of all claims.
#[derive(Debug, Serialize)]
pub(super) struct Claims {
    legend: Vec<KeyView>,
    axis: String,
    groups: Vec<Group>,
    /// Those that no switch here can be judged by.
    untestable: View,
}

/// What a page calls each kind of verdict.
const KINDS: [(&str, &str, &str); 4] = [
    ("holds", "✓ holds", "hold"),
    ("refuted", "✗ refuted", "are refuted"),
    ("undecided", "? undecided", "are undecided"),
    ("not-testable", "– not testable", "cannot be tested here"),
];

/// Three sentences: the verdicts, what is refuted, what was done.
pub(super) fn sentences(rows: &[Row], systems: &[&str], results: &Results, scenarios: &[Scenario]) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(first) = systems.first() {
        let name = looks::title(first);
        let count = |class: &str| rows.iter().filter(|row| row.here[0].class == class).count();
        let counts: Vec<String> = KINDS
            .iter()
            .map(|(class, _, text)| match (count(class), *text) {
                (1, "hold") => "1 holds".to_owned(),
                (1, text) => format!("1 {}", text.replacen("are ", "is ", 1)),
                (n, text) => format!("{n} {text}"),
            })
            .collect();
        sentences.push(format!("Of {} claims, on {name} {}.", rows.len(), words::list(&counts)));
        let refuted: Vec<&Row> = rows.iter().filter(|row| row.here[0].class == "refuted").collect();
        let told = |row: &&Row| format!("{} (“{}”)", row.id, row.says.trim_end_matches('.'));
        sentences.push(match refuted.len() {
            0 => format!("Nothing that a study claims is refuted on {name}."),
            n @ 1..=3 => format!(
                "Refuted {} {}.",
                if n == 1 { "is" } else { "are" },
                words::list(&refuted.iter().map(told).collect::<Vec<_>>())
            ),
            n => {
                let shown: Vec<String> = refuted.iter().take(2).map(told).collect();
                format!("Refuted are {}, and {} more.", shown.join(", "), n - 2)
            }
        });
    }
    sentences.push(words::summary(results, scenarios));
    sentences
}

/// All claims, by study; those of no switch here are named only.
pub(super) fn claims(rows: &[Row], systems: &[&str]) -> Claims {
    let is_testable = |row: &&Row| row.here.iter().any(|mark| mark.class != "not-testable");
    let of_study = |id: &str| {
        let prefix = format!("{id}.");
        let own = rows.iter().filter(move |row| row.id.starts_with(&prefix));
        own.filter(is_testable)
            .map(|row| claim(row, systems))
            .collect::<Vec<_>>()
    };
    let groups = STUDIES.iter().map(|study| {
        let claims = of_study(study.id);
        Group {
            title: format!("{} {}", study.id, study.title),
            strips: claims.iter().any(|claim| !claim.strip.is_empty()),
            claims,
        }
    });
    let rest = rows.iter().filter(|row| !is_testable(row)).map(|row| {
        let id = linked(&row.id);
        let missing = row.here.iter().flat_map(|mark| &mark.evidence).next();
        let texts = missing.map(|line| &line.text).into_iter().chain([&row.why]);
        let why: Vec<&str> = texts.map(String::as_str).filter(|text| !text.is_empty()).collect();
        vec![id, cell("claim", row.says.clone()), cell("claim", why.join("; "))]
    });
    Claims {
        legend: systems.iter().map(|system| KeyView::of_system(system)).collect(),
        axis: svg::strip_axis().inline(),
        groups: groups.filter(|group| !group.claims.is_empty()).collect(),
        untestable: View {
            head: vec![cell("key", ""), cell("", "claim"), cell("", "why")],
            rows: rest.collect(),
            ..View::default()
        },
    }
}

fn linked(id: &str) -> Cell {
    Cell {
        link: format!("#f-{id}"),
        ..cell("key", id)
    }
}

fn claim(row: &Row, systems: &[&str]) -> ClaimView {
    let both = || row.here.iter().zip(systems);
    let mark = |(mark, system): (&Mark, &&str)| MarkView {
        of: (*system).to_owned(),
        class: mark.class,
        sign: mark.sign,
        title: format!("{}: {}", mark.system, mark.text),
    };
    let effect = |(mark, system): (&Mark, &&str)| {
        let effect = mark.effect.as_ref()?;
        Some(Effect {
            look: looks::of_system(system),
            of: (*system).to_owned(),
            value: effect.value,
            interval: effect.interval,
            allowed: effect.allowed,
            title: format!("{}: {}", mark.system, effect.told),
        })
    };
    let effects: Vec<Effect> = both().filter_map(effect).collect();
    ClaimView {
        id: row.id.clone(),
        says: row.says.clone(),
        marks: both().map(mark).collect(),
        strip: if effects.is_empty() {
            String::new()
        } else {
            svg::strip(&effects, &format!("Effects of {}", row.id)).inline()
        },
    }
}

/// How many verdicts of each kind, by switch.
pub(super) fn totals(rows: &[Row], systems: &[&str]) -> View {
    let count = |marks: Vec<&Mark>| {
        KINDS.map(|(kind, ..)| {
            let n = marks.iter().filter(|mark| mark.class == kind).count();
            cell(
                &format!("number {}", if n > 0 { kind } else { "not-testable" }),
                n.to_string(),
            )
        })
    };
    let head = KINDS.iter().map(|(_, title, _)| cell("number", *title));
    let own =
        std::iter::once(cell("key", "the studies' own tables")).chain(count(rows.iter().map(|row| &row.own).collect()));
    let mut lines: Vec<Vec<Cell>> = vec![own.collect()];
    for (n, system) in systems.iter().enumerate() {
        let marks: Vec<&Mark> = rows.iter().filter_map(|row| row.here.get(n)).collect();
        let line = std::iter::once(cell("key", looks::title(system))).chain(count(marks));
        lines.push(line.map(|cell| cell.of(system)).collect());
    }
    View {
        title: format!("Verdicts on {} claims, by whose results", rows.len()),
        head: std::iter::once(cell("key", "results of")).chain(head).collect(),
        rows: lines,
        notes: Vec::new(),
    }
}
