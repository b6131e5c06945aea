//! The canvas of figures: shapes, and what they are in SVG.

use std::fmt::{Display, Write};

/// A finished drawing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drawing {
    /// In CSS pixels.
    pub width: f64,
    /// In CSS pixels.
    pub height: f64,
    /// Its description for screen readers.
    pub label: String,
    /// From the back to the front.
    pub shapes: Vec<Shape>,
}

/// A part of a drawing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Names of its styles.
    pub class: String,
    /// Its tooltip; empty: none.
    pub title: String,
    /// What it is.
    pub form: Form,
}

/// What a shape is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// A straight line.
    Line((f64, f64), (f64, f64)),
    /// A box: its corner, its size, the radius of its corners.
    Rect((f64, f64), (f64, f64), f64),
    /// Lines from point to point.
    Polyline(Vec<(f64, f64)>),
    /// Several of them; closed: areas.
    Path(Vec<Vec<(f64, f64)>>, bool),
    /// A circle: its centre and its radius.
    Circle((f64, f64), f64),
    /// A text: its place, its anchor, its turn in degrees.
    Text((f64, f64), Anchor, f64, String),
    /// What follows, up to [`Form::End`], is a result of this switch.
    Begin(String),
    /// See [`Form::Begin`].
    End,
}

impl Drawing {
    /// An element for an HTML page, which has the style sheet. It is never wider than the page, nor
    /// narrower than its text can be read.
    pub(crate) fn inline(&self) -> String {
        let (width, height) = (Number(self.width), Number(self.height));
        let least = Number((self.width * 0.8).min(self.width.max(320.0)));
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" style=\"max-width:{width}px;min-width:min({least}px,{width}px)\" role=\"img\" aria-label=\"{}\">{}</svg>",
            escape(&self.label),
            self.body()
        )
    }

    /// Its elements.
    pub(crate) fn body(&self) -> String {
        self.shapes.iter().map(Shape::svg).collect()
    }
}

impl Shape {
    /// Its element.
    pub(crate) fn svg(&self) -> String {
        let class = escape(&self.class);
        let title = if self.title.is_empty() {
            String::new()
        } else {
            format!("<title>{}</title>", escape(&self.title))
        };
        let points = |points: &[(f64, f64)], between: &str| {
            let points = points.iter().map(|(x, y)| format!("{} {}", Number(*x), Number(*y)));
            points.collect::<Vec<_>>().join(between)
        };
        match &self.form {
            Form::Line(from, to) => {
                let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(Number);
                format!("<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>")
            }
            Form::Rect(at, size, radius) => {
                let [x, y, w, h, r] = [at.0, at.1, size.0, size.1, *radius].map(Number);
                format!(
                    "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"{r}\">{title}</rect>"
                )
            }
            Form::Polyline(all) => format!("<polyline class=\"{class}\" points=\"{}\"/>", points(all, " ")),
            Form::Path(parts, closed) => {
                let mut path = String::new();
                for part in parts {
                    let _ = write!(path, "M{}{}", points(part, "L"), if *closed { "Z" } else { "" });
                }
                format!("<path class=\"{class}\" d=\"{path}\">{title}</path>")
            }
            Form::Circle(at, radius) => {
                let [x, y, r] = [at.0, at.1, *radius].map(Number);
                format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\">{title}</circle>")
            }
            Form::Text(at, anchor, degrees, text) => {
                let [x, y, a] = [at.0, at.1, *degrees].map(Number);
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let turn = if *degrees == 0.0 {
                    String::new()
                } else {
                    format!(" transform=\"rotate({a} {x} {y})\"")
                };
                let text = escape(text);
                format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{turn}>{text}</text>")
            }
            Form::Begin(switch) => format!("<g data-s=\"{}\">", escape(switch)),
            Form::End => "</g>".into(),
        }
    }
}

/// How many shapes of markers there are.
pub(crate) const MARKERS: usize = 8;
/// Half the width of a marker.
pub(crate) const RADIUS: f64 = 4.0;

/// The shapes of a drawing, in the order in which they are drawn.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    shapes: Vec<Shape>,
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Anchor {
    /// It begins there.
    Start,
    /// It has its middle there.
    Middle,
    /// It ends there.
    End,
}

impl Canvas {
    /// The finished drawing.
    pub(crate) fn done(self, width: f64, height: f64, label: impl Into<String>) -> Drawing {
        Drawing {
            width,
            height,
            label: label.into(),
            shapes: self.shapes,
        }
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.add(class, "", Form::Line(from, to));
    }

    /// A box with a tooltip.
    pub(crate) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), radius: f64, title: &str) {
        let size = (size.0.max(0.0), size.1.max(0.0));
        self.add(class, title, Form::Rect(at, size, radius));
    }

    /// Lines from point to point.
    pub(crate) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        self.add(class, "", Form::Polyline(points.to_vec()));
    }

    /// An area with a tooltip.
    pub(crate) fn area(&mut self, class: &str, points: &[(f64, f64)], title: &str) {
        self.add(class, title, Form::Path(vec![points.to_vec()], true));
    }

    /// A marker of one of [`MARKERS`] shapes, with a tooltip.
    pub(crate) fn marker(&mut self, class: &str, shape: usize, at: (f64, f64), title: &str) {
        self.shapes.push(marker(class, shape, at, RADIUS, title));
    }

    /// A circle.
    pub(crate) fn circle(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        self.add(class, title, Form::Circle(at, radius));
    }

    /// A text.
    pub(crate) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        self.turned(class, at, anchor, 0.0, text);
    }

    /// A text turned around its place, in degrees.
    pub(crate) fn turned(&mut self, class: &str, at: (f64, f64), anchor: Anchor, degrees: f64, text: &str) {
        self.add(class, "", Form::Text(at, anchor, degrees, text.to_owned()));
    }

    /// Draws results of a switch; an empty name: of nothing that can be chosen.
    pub(crate) fn of(&mut self, switch: &str, draw: impl FnOnce(&mut Canvas)) {
        if switch.is_empty() {
            return draw(self);
        }
        self.add("", "", Form::Begin(switch.to_owned()));
        draw(self);
        self.add("", "", Form::End);
    }

    fn add(&mut self, class: &str, title: &str, form: Form) {
        self.shapes.push(Shape {
            class: class.to_owned(),
            title: title.to_owned(),
            form,
        });
    }
}

/// A marker: circle, square, triangle, diamond, the other triangle, cross, plus, star.
pub(crate) fn marker(class: &str, shape: usize, at: (f64, f64), radius: f64, title: &str) -> Shape {
    let at = |(dx, dy): &(f64, f64)| (at.0 + dx * radius, at.1 + dy * radius);
    let closed = |points: &[(f64, f64)]| (String::new(), Form::Path(vec![points.iter().map(at).collect()], true));
    let strokes = |pairs: &[[(f64, f64); 2]]| {
        let lines = pairs.iter().map(|pair| pair.iter().map(at).collect());
        (" open".to_owned(), Form::Path(lines.collect(), false))
    };
    let (open, form) = match shape % MARKERS {
        0 => (String::new(), Form::Circle(at(&(0.0, 0.0)), radius)),
        1 => closed(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => closed(&[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]),
        3 => closed(&[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)]),
        4 => closed(&[(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)]),
        5 => strokes(&[[(-0.9, -0.9), (0.9, 0.9)], [(-0.9, 0.9), (0.9, -0.9)]]),
        6 => strokes(&[[(0.0, -1.2), (0.0, 1.2)], [(-1.2, 0.0), (1.2, 0.0)]]),
        _ => strokes(&[
            [(0.0, -1.2), (0.0, 1.2)],
            [(-1.04, -0.6), (1.04, 0.6)],
            [(-1.04, 0.6), (1.04, -0.6)],
        ]),
    };
    Shape {
        class: class.to_owned() + &open,
        title: title.to_owned(),
        form,
    }
}

/// Text that can stand in an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // Not allowed in XML at all.
            c if c < ' ' && c != '\n' && c != '\t' => {}
            c => escaped.push(c),
        }
    }
    escaped
}

/// A coordinate: two decimals, none that are not needed.
pub(crate) struct Number(pub f64);

impl Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = (self.0 * 100.0).round() / 100.0;
        write!(f, "{}", if rounded.is_finite() { rounded } else { 0.0 })
    }
}

/// About how wide a text is in a sans-serif face of this size.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let wide = |c: char| match c {
        'i' | 'l' | 'j' | '.' | ',' | ':' | '\'' | '|' | ' ' | 't' | 'f' | 'I' | '/' => 0.32,
        'm' | 'w' | 'M' | 'W' => 0.86,
        'A'..='Z' => 0.68,
        _ => 0.56,
    };
    text.chars().map(wide).sum::<f64>() * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_cannot_break_out_of_its_element() {
        let mut canvas = Canvas::default();
        canvas.text("l", (0.0, 1.005), Anchor::Middle, "a<b & \"c\"\u{1}");
        canvas.rect("x", (0.0, 0.0), (-1.0, f64::NAN), 0.0, "</rect>");
        let drawing = canvas.done(10.0, 20.0, "<script>");
        assert!(
            drawing.body().contains("a&lt;b &amp; &quot;c&quot;</text>"),
            "{}",
            drawing.body()
        );
        assert!(drawing.body().contains("<title>&lt;/rect&gt;</title>"));
        assert!(drawing.body().contains("width=\"0\" height=\"0\""));
        assert!(!drawing.inline().contains("<script>"));
    }

    #[test]
    fn every_shape_is_another_element() {
        let shapes: std::collections::BTreeSet<String> = (0..MARKERS)
            .map(|n| marker("m", n, (0.0, 0.0), 4.0, "").svg())
            .collect();
        assert_eq!(shapes.len(), MARKERS);
    }
}
