//! The canvas of figures.

use std::fmt::{Display, Write};

/// The inside of an SVG, and its size.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Drawing {
    /// In CSS pixels.
    pub width: f64,
    /// In CSS pixels.
    pub height: f64,
    /// Its description for screen readers.
    pub label: String,
    /// Elements.
    pub body: String,
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
            self.body
        )
    }
}

/// How many shapes of markers there are.
pub(crate) const MARKERS: usize = 8;
/// Half the width of a marker.
pub(crate) const RADIUS: f64 = 4.0;

/// An SVG in the making.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    body: String,
}

/// The anchor of a text.
#[derive(Clone, Copy, Debug)]
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
            body: self.body,
        }
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(Number);
        self.add(format_args!(
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        ));
    }

    /// A box with a tooltip.
    pub(crate) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), radius: f64, title: &str) {
        let [x, y, w, h, r] = [at.0, at.1, size.0.max(0.0), size.1.max(0.0), radius].map(Number);
        self.add(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"{r}\">{}</rect>",
            told(title)
        ));
    }

    /// Lines from point to point.
    pub(crate) fn polyline(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut text = String::new();
        for (x, y) in points {
            let _ = write!(text, "{},{} ", Number(*x), Number(*y));
        }
        self.add(format_args!(
            "<polyline class=\"{class}\" points=\"{}\"/>",
            text.trim_end()
        ));
    }

    /// A marker of one of [`MARKERS`] shapes, with a tooltip.
    pub(crate) fn marker(&mut self, class: &str, shape: usize, at: (f64, f64), title: &str) {
        self.body.push_str(&marker(class, shape, at, RADIUS, title));
    }

    /// A marker on a bar, small.
    pub(crate) fn small_marker(&mut self, class: &str, shape: usize, at: (f64, f64), radius: f64) {
        self.body.push_str(&marker(class, shape, at, radius, ""));
    }

    /// A circle.
    pub(crate) fn circle(&mut self, class: &str, at: (f64, f64), radius: f64, title: &str) {
        let [x, y, r] = [at.0, at.1, radius].map(Number);
        self.add(format_args!(
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\">{}</circle>",
            told(title)
        ));
    }

    /// A text.
    pub(crate) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        self.turned(class, at, anchor, 0.0, text);
    }

    /// A text turned around its place, in degrees.
    pub(crate) fn turned(&mut self, class: &str, at: (f64, f64), anchor: Anchor, degrees: f64, text: &str) {
        let [x, y, a] = [at.0, at.1, degrees].map(Number);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let turn = if degrees == 0.0 {
            String::new()
        } else {
            format!(" transform=\"rotate({a} {x} {y})\"")
        };
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{turn}>{}</text>",
            escape(text)
        ));
    }

    fn add(&mut self, element: impl Display) {
        let _ = write!(self.body, "{element}");
    }
}

/// A marker's element: circle, square, triangle, diamond, the other triangle, cross, plus, star.
pub(crate) fn marker(class: &str, shape: usize, at: (f64, f64), radius: f64, title: &str) -> String {
    let (x, y) = at;
    let path = |points: &[(f64, f64)]| {
        let points: Vec<String> = points
            .iter()
            .map(|(dx, dy)| format!("{} {}", Number(x + dx * radius), Number(y + dy * radius)))
            .collect();
        points.join("L")
    };
    let closed = |points: &[(f64, f64)]| {
        format!(
            "<path class=\"{class}\" d=\"M{}Z\">{}</path>",
            path(points),
            told(title)
        )
    };
    let strokes = |pairs: &[[(f64, f64); 2]]| {
        let lines: Vec<String> = pairs.iter().map(|pair| format!("M{}", path(pair))).collect();
        format!(
            "<path class=\"{class} open\" d=\"{}\">{}</path>",
            lines.concat(),
            told(title)
        )
    };
    match shape % MARKERS {
        0 => {
            let [x, y, r] = [x, y, radius].map(Number);
            format!(
                "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{r}\">{}</circle>",
                told(title)
            )
        }
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
    }
}

fn told(title: &str) -> String {
    if title.is_empty() {
        return String::new();
    }
    format!("<title>{}</title>", escape(title))
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
            drawing.body.contains("a&lt;b &amp; &quot;c&quot;</text>"),
            "{}",
            drawing.body
        );
        assert!(drawing.body.contains("<title>&lt;/rect&gt;</title>"));
        assert!(drawing.body.contains("width=\"0\" height=\"0\""));
        assert!(!drawing.inline().contains("<script>"));
    }

    #[test]
    fn every_shape_is_another_element() {
        let shapes: std::collections::BTreeSet<String> =
            (0..MARKERS).map(|n| marker("m", n, (0.0, 0.0), 4.0, "")).collect();
        assert_eq!(shapes.len(), MARKERS);
    }
}
