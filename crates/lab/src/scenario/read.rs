//! From a file's text to a scenario with all its cells.

use super::check;
use super::de::typed;
use super::expand::Names;
use super::header::{Combine, Dimension, Fed, Figure, Header, Pace, Profile};
use super::node::{Fault, Node, Value};
use super::setup::{Cell, Setup};
use super::{Metric, Scenario};
use crate::topology::Topology;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most cells of a profile.
const MOST_CELLS: usize = 2000;
/// Most problems that are worth telling at once.
const MOST_FAULTS: usize = 20;

pub(super) fn scenario(file: &str, text: &str) -> Result<Scenario, Vec<Fault>> {
    let one = |fault: Fault| vec![fault];
    let mut root = Node::read(text).map_err(one)?;
    let template = Template {
        host: root.take("host"),
        bridge: root.take("bridge"),
        link: root.take("link"),
        background: root.take("background"),
        measure: root.take("measure"),
        observe: root.take("observe"),
        openflow: root.take("openflow"),
        systems: root.take("systems"),
        awake: root.take("awake"),
    };
    let (varied, derived, feeds, except) = (
        root.take("varied"),
        root.take("derived"),
        root.take("feeds"),
        root.take("except"),
    );
    let places = root.clone();
    let header: Header = typed(&root).map_err(one)?;
    let dimensions = match &varied {
        Some(varied) => dimensions(varied)?,
        None => Vec::new(),
    };
    check::header(&header, &dimensions, &places)?;
    let profiles = [Profile::Quick, Profile::Full].map(|profile| profile.name().to_owned());
    let mut all = BTreeMap::from([("profile".to_owned(), profiles.to_vec())]);
    for dimension in &dimensions {
        let mut values: Vec<String> = dimension.quick.iter().filter_map(Node::label).collect();
        let more: Vec<String> = dimension.full.iter().filter_map(Node::label).collect();
        values.extend(
            more.into_iter()
                .filter(|value| !dimension.quick.iter().any(|n| n.label().as_ref() == Some(value))),
        );
        all.insert(dimension.name.clone(), values);
    }
    let mut scenario = Scenario {
        id: header.id,
        study: header.study,
        title: header.title,
        about: header.about.trim().to_owned(),
        varied: dimensions.iter().map(Values::shown).collect(),
        metrics: header.metrics,
        figures: header.figures,
        source: text.to_owned(),
        file: file.to_owned(),
        quick: (header.quick, Vec::new()),
        full: (header.full, Vec::new()),
        derived,
        feeds,
        all,
    };
    let mut faults = Vec::new();
    for profile in [Profile::Quick, Profile::Full] {
        let span = places.place(&[if profile == Profile::Quick { "quick" } else { "full" }]);
        let combined = combine(&dimensions, profile, scenario.pace(profile), except.as_ref(), &scenario);
        let combined = combined.map_err(one)?;
        if combined.is_empty() {
            faults.push(Fault::new(span, "'except' leaves no cell"));
        }
        let mut cells = Vec::with_capacity(combined.len());
        for at in combined {
            match template.cell(&at, &scenario, profile) {
                Ok(cell) => cells.push(cell),
                Err(found) => faults.extend(found),
            }
            if faults.len() >= MOST_FAULTS {
                faults.truncate(MOST_FAULTS);
                return Err(faults);
            }
        }
        match profile {
            Profile::Quick => scenario.quick.1 = cells,
            Profile::Full => scenario.full.1 = cells,
        }
    }
    if faults.is_empty() {
        faults.extend(check::results(&scenario, &places));
        let cells = scenario.quick.1.iter().chain(&scenario.full.1);
        faults.extend(cells.filter_map(|cell| self::feeds(&scenario, &cell.at, "oxvs").err()));
    }
    if faults.is_empty() { Ok(scenario) } else { Err(faults) }
}

/// A dimension with its values as they stand in the file.
pub(super) struct Values {
    pub(super) name: String,
    title: String,
    unit: String,
    quick: Vec<Node>,
    full: Vec<Node>,
}

impl Values {
    fn of(&self, profile: Profile) -> &[Node] {
        match profile {
            Profile::Quick => &self.quick,
            Profile::Full => &self.full,
        }
    }

    fn shown(&self) -> Dimension {
        let labels = |nodes: &[Node]| nodes.iter().filter_map(Node::label).collect();
        Dimension {
            name: self.name.clone(),
            title: self.title.clone(),
            unit: self.unit.clone(),
            quick: labels(&self.quick),
            full: labels(&self.full),
        }
    }
}

/// Names that stand for something else.
const TAKEN: [&str; 6] = ["system", "profile", "i", "from", "to", "absent"];

fn dimensions(varied: &Node) -> Result<Vec<Values>, Vec<Fault>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Words {
        title: String,
        #[serde(default)]
        unit: String,
    }
    let entries = varied.table().ok_or_else(|| {
        vec![Fault::new(
            &varied.span,
            "'varied' holds a table for each dimension: [varied.NAME]",
        )]
    })?;
    let mut dimensions = Vec::new();
    let mut faults = Vec::new();
    for (key, node) in entries {
        if !key.name.starts_with(|c: char| c.is_ascii_alphabetic())
            || !key.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            || TAKEN.contains(&key.name.as_str())
        {
            let message = "a dimension's name is a letter, then letters, digits and '_', and not system, profile, i, from, to or absent";
            faults.push(Fault::new(&key.span, message));
        }
        let mut rest = node.clone();
        let mut values = |which: &str| match rest.take(which) {
            Some(list) => distinct(&list),
            None => Err(Fault::new(
                &key.span,
                format!("'{}' has no values for '{which}'", key.name),
            )),
        };
        match (values("quick"), values("full"), typed::<Words>(&rest)) {
            (Ok(quick), Ok(full), Ok(words)) => dimensions.push(Values {
                name: key.name.clone(),
                title: words.title,
                unit: words.unit,
                quick,
                full,
            }),
            (quick, full, words) => faults.extend([quick.err(), full.err(), words.err()].into_iter().flatten()),
        }
    }
    if faults.is_empty() { Ok(dimensions) } else { Err(faults) }
}

/// A list of single values, each once.
fn distinct(list: &Node) -> Result<Vec<Node>, Fault> {
    let items = list.array().filter(|items| !items.is_empty());
    let items = items.ok_or_else(|| Fault::new(&list.span, "a dimension has a list of at least one value"))?;
    let mut labels = Vec::new();
    for item in items {
        let label = item
            .label()
            .ok_or_else(|| Fault::new(&item.span, "a value is a number, a text, true or false"))?;
        if labels.contains(&label) {
            return Err(Fault::new(&item.span, format!("{label} stands twice")));
        }
        labels.push(label);
    }
    Ok(items.to_vec())
}

type At = BTreeMap<String, Node>;

/// The combinations of a profile, but those of `except`.
fn combine(
    dimensions: &[Values],
    profile: Profile,
    pace: &Pace,
    except: Option<&Node>,
    scenario: &Scenario,
) -> Result<Vec<At>, Fault> {
    let mut combined: Vec<At> = vec![At::new()];
    match pace.combine {
        Combine::All => {
            for dimension in dimensions {
                let values = dimension.of(profile);
                if combined.len() * values.len() > MOST_CELLS {
                    let message = format!("these are more than {MOST_CELLS} cells");
                    return Err(Fault::new(&values[0].span, message));
                }
                let extended = combined.iter().flat_map(|at| {
                    values.iter().map(|value| {
                        let mut at = at.clone();
                        at.insert(dimension.name.clone(), value.clone());
                        at
                    })
                });
                combined = extended.collect();
            }
        }
        Combine::OneByOne => {
            let first = |dimension: &Values| (dimension.name.clone(), dimension.of(profile)[0].clone());
            let base: At = dimensions.iter().map(first).collect();
            combined = vec![base.clone()];
            for dimension in dimensions {
                for value in &dimension.of(profile)[1..] {
                    let mut at = base.clone();
                    at.insert(dimension.name.clone(), value.clone());
                    combined.push(at);
                }
            }
        }
    }
    let mut kept = Vec::new();
    for at in combined {
        let names = names(&at, profile, scenario)?;
        let mut excepted = false;
        for when in except.and_then(Node::array).unwrap_or_default() {
            excepted |= names.holds(when)?;
        }
        if !excepted {
            kept.push(at);
        }
    }
    match except {
        Some(except) if except.array().is_none() => Err(Fault::new(
            &except.span,
            "'except' is a list of tables, as [{ speed = 10, size = 64 }]",
        )),
        _ => Ok(kept),
    }
}

fn names<'a>(at: &At, profile: Profile, scenario: &'a Scenario) -> Result<Names<'a>, Fault> {
    let mut names = Names::new(&scenario.all).with("profile", name_of(profile));
    for (name, value) in at {
        names = names.with(name, value.clone());
    }
    Ok(names)
}

pub(super) fn name_of(profile: Profile) -> Node {
    Node {
        span: 0..0,
        value: Value::Text(profile.name().to_owned()),
    }
}

/// The parts of a file that each cell fills in.
struct Template {
    host: Option<Node>,
    bridge: Option<Node>,
    link: Option<Node>,
    background: Option<Node>,
    measure: Option<Node>,
    observe: Option<Node>,
    openflow: Option<Node>,
    systems: Option<Node>,
    awake: Option<Node>,
}

impl Template {
    fn cell(&self, at: &At, scenario: &Scenario, profile: Profile) -> Result<Cell, Vec<Fault>> {
        let one = |fault: Fault| vec![fault];
        let mut names = names(at, profile, scenario).map_err(one)?;
        let pace = scenario.pace(profile);
        if let Some(derived) = &scenario.derived {
            // Values that depend on the system exist only when results are evaluated.
            names = names.derive(&without_system(derived)).map_err(one)?;
        }
        let expand = |node: &Option<Node>| node.as_ref().map(|node| names.expand(node)).transpose().map_err(one);
        let filled = check::Filled {
            host: expand(&self.host)?,
            bridge: expand(&self.bridge)?,
            link: expand(&self.link)?,
            background: expand(&self.background)?,
            measure: expand(&self.measure)?,
            observe: expand(&self.observe)?,
            openflow: expand(&self.openflow)?,
        };
        fn list<T: serde::de::DeserializeOwned>(node: &Option<Node>) -> Result<Vec<T>, Vec<Fault>> {
            node.as_ref()
                .map_or(Ok(Vec::new()), |node| typed(node).map_err(|fault| vec![fault]))
        }
        let setup = Setup {
            topology: Topology {
                hosts: list(&filled.host)?,
                bridges: list(&filled.bridge)?,
                links: list(&filled.link)?,
            },
            background: list(&filled.background)?,
            measured: list(&filled.measure)?,
            observed: list(&filled.observe)?,
            openflow: filled.openflow.as_ref().map(typed).transpose().map_err(one)?,
            systems: list(&expand(&self.systems)?)?,
            seconds: pace.seconds,
            warmup: pace.warmup,
            awake: expand(&self.awake)?.as_ref().map_or(Ok(true), typed).map_err(one)?,
        };
        check::setup(&setup, &filled)?;
        let label = |(name, node): (&String, &Node)| Some((name.clone(), node.label()?));
        Ok(Cell {
            at: at.iter().filter_map(label).collect(),
            setup,
        })
    }
}

/// The derived names that are the same on every system.
fn without_system(derived: &Node) -> Node {
    let mut derived = derived.clone();
    if let Value::Table(entries) = &mut derived.value {
        entries.retain(|(_, node)| node.get("by").and_then(Node::text) != Some("system"));
    }
    derived
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Feed {
    table: String,
    metric: String,
    scale: Option<f64>,
    keys: BTreeMap<String, Label>,
}

/// A value as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Label {
    Text(String),
    Integer(i64),
    Float(f64),
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Text(text) => text.fmt(f),
            Label::Integer(number) => number.fmt(f),
            Label::Float(number) => number.fmt(f),
        }
    }
}

/// See [`Scenario::feeds`]. A feed one of whose keys is absent does not take place.
pub(super) fn feeds(scenario: &Scenario, at: &BTreeMap<String, String>, system: &str) -> Result<Vec<Fed>, Fault> {
    let Some(feeds) = &scenario.feeds else {
        return Ok(Vec::new());
    };
    let items = feeds.array();
    let items = items.ok_or_else(|| Fault::new(&feeds.span, "'feeds' is a list of tables: [[feeds]]"))?;
    let system = Node {
        span: 0..0,
        value: Value::Text(system.to_owned()),
    };
    let mut names = scenario.names(at).with("system", system);
    if let Some(derived) = &scenario.derived {
        names = names.derive(derived)?;
    }
    let mut fed = Vec::new();
    for item in items {
        let mut item = item.clone();
        if let Some(when) = item.take("when")
            && !names.holds(&when)?
        {
            continue;
        }
        let wanted = item.get("keys").and_then(Node::table).map_or(0, <[_]>::len);
        let expanded = names.expand(&item)?;
        let feed: Feed = typed(&expanded)?;
        let shown = scenario.metric(&feed.metric).map(|metric: &Metric| metric.scale);
        let scale = feed.scale.or(shown).ok_or_else(|| {
            let message = format!(
                "'{}' is no [[metric]] of this file, and no 'scale' is given",
                feed.metric
            );
            Fault::new(expanded.place(&["metric"]), message)
        })?;
        if feed.keys.len() == wanted {
            fed.push(Fed {
                table: feed.table,
                metric: feed.metric,
                scale,
                keys: feed
                    .keys
                    .into_iter()
                    .map(|(key, label)| (key, label.to_string()))
                    .collect(),
            });
        }
    }
    Ok(fed)
}

/// Names of metrics, and of dimensions, that a figure uses.
pub(super) fn used(figure: &Figure) -> (Vec<&String>, Vec<&String>) {
    match figure {
        Figure::Lines {
            x,
            y,
            bound,
            series,
            panels,
            ..
        } => (
            [y].into_iter().chain(bound).collect(),
            [x].into_iter().chain(series).chain(panels).collect(),
        ),
        Figure::Bars {
            groups,
            y,
            series,
            panels,
        } => (vec![y], groups.iter().chain(series).chain(panels).collect()),
        Figure::Shares { groups, flows, panels } => {
            (flows.iter().collect(), [groups].into_iter().chain(panels).collect())
        }
        Figure::Streams { x, y, lost, panels } => (vec![y, lost], [x].into_iter().chain(panels).collect()),
        Figure::Cdf { series, panels, .. } => (vec![], series.iter().chain(panels).collect()),
        Figure::Matrix { .. } => (vec![], vec![]),
    }
}
