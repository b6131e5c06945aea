//! Values for names: `$name`, `${name}`, `= arithmetic`, and array elements that exist only `when`,
//! or `count` times, or once for each pair of a `mesh`.

use super::expression::evaluate;
use super::node::{Fault, Key, Node, Value};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;

/// Most values that one cell may have after its elements were multiplied.
const LARGEST: usize = 100_000;
/// Most elements that `count` may make.
const MOST: i64 = 1024;

/// The names with their values or possible values.
#[derive(Clone)]
pub(super) struct Names<'a> {
    values: BTreeMap<String, Node>,
    /// Of each dimension all the values that it takes somewhere.
    all: &'a BTreeMap<String, Vec<String>>,
    /// How many values may still be made.
    left: std::rc::Rc<Cell<usize>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(all: &'a BTreeMap<String, Vec<String>>) -> Names<'a> {
        Names {
            values: BTreeMap::new(),
            all,
            left: std::rc::Rc::new(Cell::new(LARGEST)),
        }
    }

    pub(super) fn with(mut self, name: &str, value: Node) -> Names<'a> {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Adds the names of `[derived]`, which may use earlier ones.
    pub(super) fn derive(mut self, derived: &Node) -> Result<Names<'a>, Fault> {
        let entries = derived
            .table()
            .ok_or_else(|| Fault::new(&derived.span, "[derived] is a table of names"))?;
        for (key, node) in entries {
            if self.values.contains_key(&key.name) {
                return Err(Fault::new(&key.span, format!("'{}' has a value already", key.name)));
            }
            let value = match node.get("by") {
                Some(by) => self.looked_up(node, by)?,
                None => self.expand(node)?,
            };
            self.values.insert(key.name.clone(), value);
        }
        Ok(self)
    }

    /// `{ by = "name", is = { value = …, … }, otherwise = … }`
    fn looked_up(&self, node: &Node, by: &Node) -> Result<Node, Fault> {
        let name = by
            .text()
            .ok_or_else(|| Fault::new(&by.span, "'by' is the name of a dimension"))?;
        let label = self.label(name, &by.span)?;
        let mut found = None;
        for (key, value) in node.table().unwrap_or_default() {
            match key.name.as_str() {
                "by" => {}
                "otherwise" => found = found.or(Some(value)),
                "is" => {
                    let is = value
                        .table()
                        .ok_or_else(|| Fault::new(&value.span, "'is' is a table: a value for each value"))?;
                    for (key, _) in is {
                        self.takes(name, &key.name, &key.span)?;
                    }
                    found = value.get(&label).or(found);
                }
                other => {
                    let message = format!("'{other}' is unknown here: 'by', 'is' and 'otherwise' are not");
                    return Err(Fault::new(&key.span, message));
                }
            }
        }
        let found = found.ok_or_else(|| {
            Fault::new(
                &node.span,
                format!("nothing is said for {name} = {label}, and there is no 'otherwise'"),
            )
        })?;
        self.expand(found)
    }

    /// Whether a dimension takes a value anywhere.
    fn takes(&self, name: &str, value: &str, span: &Range<usize>) -> Result<(), Fault> {
        match self.all.get(name) {
            Some(values) if !values.iter().any(|v| v == value) => {
                let values = values.join(", ");
                Err(Fault::new(
                    span,
                    format!("'{name}' never is {value}: its values are {values}"),
                ))
            }
            _ => Ok(()),
        }
    }

    fn value(&self, name: &str, span: &Range<usize>) -> Result<&Node, Fault> {
        self.values.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.values.keys().map(String::as_str).collect();
            let known = match known.as_slice() {
                [] => "nothing is varied or derived".to_owned(),
                known => format!("there are {}", known.join(", ")),
            };
            Fault::new(span, format!("there is no '${name}': {known}"))
        })
    }

    fn label(&self, name: &str, span: &Range<usize>) -> Result<String, Fault> {
        let value = self.value(name, span)?;
        let label = value.label();
        label.ok_or_else(|| {
            Fault::new(
                span,
                format!("'${name}' is {}: no text can be made of it", value.kind()),
            )
        })
    }

    /// A copy of a value with all names replaced by their values.
    pub(super) fn expand(&self, node: &Node) -> Result<Node, Fault> {
        let left = self.left.get();
        if left == 0 {
            return Err(Fault::new(&node.span, format!("this makes more than {LARGEST} values")));
        }
        self.left.set(left - 1);
        let value = match &node.value {
            Value::Text(text) => self.text(text, &node.span)?,
            Value::Array(items) => {
                let mut expanded = Vec::new();
                for item in items {
                    self.element(item, &mut expanded)?;
                }
                expanded.retain(|item| item.value != Value::Absent);
                Value::Array(expanded)
            }
            Value::Table(entries) => {
                let mut expanded = Vec::with_capacity(entries.len());
                for (key, value) in entries {
                    let value = self.expand(value)?;
                    if value.value != Value::Absent {
                        expanded.push((key.clone(), value));
                    }
                }
                Value::Table(expanded)
            }
            other => other.clone(),
        };
        Ok(Node {
            span: node.span.clone(),
            value,
        })
    }

    /// An element of an array: nothing, one or several.
    fn element(&self, item: &Node, into: &mut Vec<Node>) -> Result<(), Fault> {
        let mut item = item.clone();
        match (item.take("count"), item.take("mesh")) {
            (None, None) => self.once(item, into),
            (Some(count), None) => {
                let times = self.expand(&count)?;
                let Value::Integer(times @ 0..=MOST) = times.value else {
                    return Err(Fault::new(
                        &count.span,
                        format!("'count' is an integer from 0 to {MOST}"),
                    ));
                };
                for i in 1..=times {
                    let names = self.clone().with(
                        "i",
                        Node {
                            span: count.span.clone(),
                            value: Value::Integer(i),
                        },
                    );
                    names.once(item.clone(), into)?;
                }
                Ok(())
            }
            (None, Some(mesh)) => {
                let of = self.expand(&mesh)?;
                let hosts: Option<Vec<&str>> = of.array().unwrap_or_default().iter().map(Node::text).collect();
                let hosts = hosts.filter(|hosts| !hosts.is_empty());
                let hosts = hosts.ok_or_else(|| Fault::new(&mesh.span, "'mesh' is a list of hosts' names"))?;
                for from in &hosts {
                    for to in hosts.iter().filter(|to| *to != from) {
                        self.pair(&item, &mesh.span, from, to, into)?;
                    }
                }
                Ok(())
            }
            (Some(count), Some(_)) => Err(Fault::new(&count.span, "'count' and 'mesh' exclude each other")),
        }
    }

    fn pair(&self, item: &Node, at: &Range<usize>, from: &str, to: &str, into: &mut Vec<Node>) -> Result<(), Fault> {
        let text = |text: String| Node {
            span: at.clone(),
            value: Value::Text(text),
        };
        let mut item = item.clone();
        if let Value::Table(entries) = &mut item.value {
            for (key, value) in [
                ("from", from.to_owned()),
                ("to", to.to_owned()),
                ("name", format!("{from}-{to}")),
            ] {
                if entries.iter().all(|(k, _)| k.name != key) {
                    let key = Key {
                        span: at.clone(),
                        name: key.to_owned(),
                    };
                    entries.push((key, text(value)));
                }
            }
        }
        let names = self
            .clone()
            .with("from", text(from.to_owned()))
            .with("to", text(to.to_owned()));
        names.once(item, into)
    }

    /// An element, if its condition holds.
    fn once(&self, mut item: Node, into: &mut Vec<Node>) -> Result<(), Fault> {
        let holds = match item.take("when") {
            Some(when) => self.holds(&when)?,
            None => true,
        };
        if holds {
            into.push(self.expand(&item)?);
        }
        Ok(())
    }

    /// Whether all of `{ name = value, name = [one, of, these] }` is so.
    pub(super) fn holds(&self, when: &Node) -> Result<bool, Fault> {
        let conditions = when.table().ok_or_else(|| {
            Fault::new(
                &when.span,
                "'when' is a table of names and values, as { speed = 10 } or { speed = [10, 100] }",
            )
        })?;
        let mut holds = true;
        for (key, wanted) in conditions {
            let label = self.label(&key.name, &key.span)?;
            let one = std::slice::from_ref(wanted);
            let mut any = false;
            for value in wanted.array().unwrap_or(one) {
                let value_label = value.label();
                let value_label = value_label.ok_or_else(|| Fault::new(&value.span, "this is no single value"))?;
                self.takes(&key.name, &value_label, &value.span)?;
                any |= value_label == label;
            }
            holds &= any;
        }
        Ok(holds)
    }

    fn text(&self, text: &str, span: &Range<usize>) -> Result<Value, Fault> {
        if let Some(expression) = text.strip_prefix('=') {
            return self.arithmetic(expression, span);
        }
        if !text.contains('$') {
            return Ok(if text == "absent" {
                Value::Absent
            } else {
                Value::Text(text.to_owned())
            });
        }
        let mut result = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            result.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            if let Some(after) = after.strip_prefix('$') {
                result.push('$');
                rest = after;
                continue;
            }
            let (name, after) = match after.strip_prefix('{') {
                Some(inner) => inner
                    .split_once('}')
                    .ok_or_else(|| Fault::new(span, "a '}' is missing after '${'"))?,
                None => after.split_at(
                    after
                        .find(|c: char| !c.is_alphanumeric() && c != '_')
                        .unwrap_or(after.len()),
                ),
            };
            if result.is_empty() && at == 0 && after.is_empty() && rest.len() == text.len() {
                return Ok(self.value(name, span)?.value.clone());
            }
            result.push_str(&self.label(name, span)?);
            rest = after;
        }
        result.push_str(rest);
        Ok(Value::Text(result))
    }

    fn arithmetic(&self, expression: &str, span: &Range<usize>) -> Result<Value, Fault> {
        let number = |name: &str| match self.value(name, span).map_err(|fault| fault.message)?.value {
            Value::Integer(value) => Ok(value as f64),
            Value::Float(value) => Ok(value),
            _ => Err(format!("'${name}' is not a number")),
        };
        let value = evaluate(expression, &number).map_err(|message| Fault::new(span, message))?;
        // Whole numbers up to here are exact in both.
        let exact = value.fract() == 0.0 && value.abs() < 9e15;
        Ok(if exact {
            Value::Integer(value as i64)
        } else {
            Value::Float(value)
        })
    }
}
