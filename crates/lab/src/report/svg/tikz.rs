//! Drawings as TikZ, for papers: the styles are those of `oxvs-lab.sty`.

use super::canvas::{Anchor, Drawing, Form, Number, Shape};
use std::fmt::Write;

impl Drawing {
    /// A picture to `\input`.
    pub(crate) fn tikz(&self) -> String {
        let mut text = String::from("\\begin{tikzpicture}[oxvs lab]\n");
        // The whole of it, so that pictures beside each other are level.
        let _ = writeln!(
            text,
            "\\useasboundingbox (0,0) rectangle ({},{});",
            Number(self.width),
            Number(self.height)
        );
        for shape in &self.shapes {
            text.push_str(&shape.tikz());
        }
        text + "\\end{tikzpicture}\n"
    }
}

impl Shape {
    /// A line; empty for what has no form.
    pub(crate) fn tikz(&self) -> String {
        let style = style(&self.class);
        let point = |(x, y): &(f64, f64)| format!("({},{})", Number(*x), Number(*y));
        let joined = |points: &[(f64, f64)]| points.iter().map(point).collect::<Vec<_>>().join(" -- ");
        match &self.form {
            Form::Line(from, to) => format!("\\path[{style}] {} -- {};\n", point(from), point(to)),
            Form::Rect(at, (w, h), _) => {
                format!(
                    "\\path[{style}] {} rectangle ++({},{});\n",
                    point(at),
                    Number(*w),
                    Number(*h)
                )
            }
            Form::Polyline(points) => format!("\\path[{style}] {};\n", joined(points)),
            Form::Path(parts, closed) => {
                let end = if *closed { " -- cycle" } else { "" };
                let parts: Vec<String> = parts.iter().map(|part| joined(part) + end).collect();
                format!("\\path[{style}] {};\n", parts.join(" "))
            }
            Form::Circle(at, radius) => format!("\\path[{style}] {} circle[radius={}];\n", point(at), Number(*radius)),
            Form::Text(at, anchor, degrees, text) => {
                let anchor = match anchor {
                    Anchor::Start => "base west",
                    Anchor::Middle => "base",
                    Anchor::End => "base east",
                };
                let turn = if *degrees == 0.0 {
                    String::new()
                } else {
                    // Its axis points down, that of TikZ's angles does not.
                    format!(", rotate={}", Number(-degrees))
                };
                format!(
                    "\\node[{style}, anchor={anchor}{turn}] at {} {{{}}};\n",
                    point(at),
                    escape(text)
                )
            }
            Form::Begin(_) | Form::End => String::new(),
        }
    }
}

/// The styles of a shape's class; `s0` to `s8`, `h0` to `h6` and `print` are colours.
fn style(class: &str) -> String {
    let is_colour = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next();
        word == "print" || matches!(first, Some('s' | 'h')) && letters.as_str().parse::<u8>().is_ok()
    };
    let named = class.split_whitespace().map(|word| {
        if is_colour(word) {
            format!("color=oxvs-{word}")
        } else {
            format!("lab {word}")
        }
    });
    // An outline comes after what it changes.
    let mut styles: Vec<String> = named.collect();
    styles.sort_by_key(|style| style == "lab open");
    styles.join(", ")
}

/// Text for LaTeX.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '_' | '%' => escaped.extend(['\\', c]),
            '^' => escaped.push_str("\\textasciicircum{}"),
            '~' => escaped.push_str("\\textasciitilde{}"),
            '<' => escaped.push_str("\\textless{}"),
            '>' => escaped.push_str("\\textgreater{}"),
            '×' => escaped.push_str("$\\times$"),
            '±' => escaped.push_str("$\\pm$"),
            '∞' => escaped.push_str("$\\infty$"),
            '→' => escaped.push_str("$\\to$"),
            '≥' => escaped.push_str("$\\ge$"),
            '≤' => escaped.push_str("$\\le$"),
            'µ' => escaped.push_str("\\textmu{}"),
            '†' => escaped.push_str("\\textdagger{}"),
            '·' => escaped.push_str("\\textperiodcentered{}"),
            '✓' => escaped.push('+'),
            '✗' => escaped.push_str("$\\times$"),
            '–' => escaped.push_str("--"),
            '“' => escaped.push_str("``"),
            '”' => escaped.push_str("''"),
            '’' => escaped.push('\''),
            '…' => escaped.push_str("\\dots{}"),
            c if c.is_ascii_control() => escaped.push(' '),
            // What no usual font has would end the run of LaTeX.
            c if c.is_ascii() || ('\u{c0}'..='\u{17f}').contains(&c) => escaped.push(c),
            _ => escaped.push('?'),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::{Axis, Line, Plot, Point, Scale, lines};
    use super::*;

    #[test]
    fn what_means_something_to_latex_is_escaped() {
        assert_eq!(
            escape("5 % of a_b & {c} \\x µs ✓ 漢"),
            "5 \\% of a\\_b \\& \\{c\\} \\textbackslash{}x \\textmu{}s + ?"
        );
    }

    #[test]
    fn a_plot_is_a_picture_with_every_shape_of_it() {
        let point = |x, y| Point {
            x,
            y,
            raw: vec![y],
            ..Point::default()
        };
        let drawing = lines(&Plot {
            title: "50 % of $x".into(),
            x: Axis::default(),
            names: Vec::new(),
            y: Axis::default(),
            scale: Scale::of_values([1.0, 2.0]),
            across: Scale::of_steps(&[1.0, 2.0, 3.0], 4, false),
            lines: vec![Line {
                look: ("s1".into(), 5),
                of: "bridge".into(),
                points: vec![point(1.0, 1.0), point(2.0, 2.0), point(3.0, 1.5)],
                ..Line::default()
            }],
        });
        let text = drawing.tikz();
        for part in [
            "{50 \\% of \\$x}",
            "\\path[lab line, color=oxvs-s1, lab d5]",
            "lab dot, color=oxvs-s1, lab open]",
            "lab raw, color=oxvs-s1] (",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let shapes = drawing
            .shapes
            .iter()
            .filter(|shape| !matches!(shape.form, Form::Begin(_) | Form::End));
        assert_eq!(text.lines().count(), shapes.count() + 3);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
