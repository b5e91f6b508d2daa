//! Plots of curves, as SVG: how many items on a logarithmic axis, the figure on a linear one that begins at zero.
//!
//! Text and lines take the colour of the page around them where it is dark, so that the plot reads on either.

use std::fmt::Write;

use crate::growth::Curve;
use crate::report::figure;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 176.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 44.0;

/// Told apart by those who see no red from green as well.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

const STYLE: &str = "\
    text { font: 12px system-ui, sans-serif; fill: #333 }\n    \
    .title { font-size: 14px; font-weight: 600 }\n    \
    .grid { stroke: #999; stroke-opacity: .35; stroke-width: 1 }\n    \
    .line { fill: none; stroke-width: 2 }\n    \
    @media (prefers-color-scheme: dark) { text { fill: #ddd } }\n";

/// The plot of one curve.
#[must_use]
pub fn plot(curve: &Curve) -> String {
    let figures = curve.series.iter().flat_map(|series| &series.figures);
    let step = step(figures.copied().fold(0.0, f64::max));
    let figures = curve.series.iter().flat_map(|series| &series.figures);
    let top = (figures.copied().fold(0.0, f64::max) / step)
        .ceil()
        .max(1.0)
        * step;
    let (first, last) = match (curve.sizes.first(), curve.sizes.last()) {
        (Some(first), Some(last)) => (f64::from(*first).log10(), f64::from(*last).log10()),
        _ => (0.0, 1.0),
    };
    let x = |size: u32| {
        let along = (f64::from(size).log10() - first) / (last - first).max(f64::EPSILON);
        LEFT + along * (WIDTH - LEFT - RIGHT)
    };
    let y = |figure: f64| HEIGHT - BOTTOM - figure / top * (HEIGHT - TOP - BOTTOM);

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n  \
         <title>{0}</title>\n  <style>\n{STYLE}  </style>\n  \
         <text class=\"title\" x=\"{LEFT}\" y=\"20\">{0}</text>\n  \
         <text x=\"{LEFT}\" y=\"36\">{1}</text>\n",
        escape(curve.title),
        escape(curve.unit)
    );
    for line in 0..=(top / step).round() as u32 {
        let at = f64::from(line) * step;
        let (right, up) = (WIDTH - RIGHT, y(at));
        let _ = writeln!(
            out,
            "  <line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{up:.1}\" y2=\"{up:.1}\"/>"
        );
        let _ = writeln!(
            out,
            "  <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            up + 4.0,
            figure(at)
        );
    }
    for size in &curve.sizes {
        let _ = writeln!(
            out,
            "  <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(*size),
            HEIGHT - BOTTOM + 18.0,
            figure(f64::from(*size))
        );
    }
    let mut labels = Vec::new();
    for (series, colour) in curve.series.iter().zip(COLOURS.iter().cycle()) {
        let points = curve.sizes.iter().zip(&series.figures);
        let mut path = String::new();
        for (size, figure) in points.clone() {
            let _ = write!(path, "{:.1},{:.1} ", x(*size), y(*figure));
        }
        let _ = writeln!(
            out,
            "  <polyline class=\"line\" stroke=\"{colour}\" points=\"{}\"/>",
            path.trim_end()
        );
        for (size, figure) in points {
            let _ = writeln!(
                out,
                "  <circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                x(*size),
                y(*figure)
            );
        }
        if let Some(end) = series.figures.last() {
            labels.push((y(*end), series.name, *colour));
        }
    }
    for (at, name, colour) in apart(labels) {
        let _ = writeln!(
            out,
            "  <text x=\"{:.1}\" y=\"{:.1}\" style=\"fill: {colour}\">{}</text>",
            WIDTH - RIGHT + 10.0,
            at + 4.0,
            escape(name)
        );
    }
    out.push_str("</svg>\n");
    out
}

/// A round step that divides the axis into about five parts.
fn step(most: f64) -> f64 {
    let rough = (most / 5.0).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|of| of * power);
    steps
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(power * 10.0)
}

/// Labels moved down until none lies on another.
fn apart<T: Copy>(mut labels: Vec<(f64, T, &'static str)>) -> Vec<(f64, T, &'static str)> {
    const LINE: f64 = 16.0;
    labels.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = 0.0;
    for label in &mut labels {
        label.0 = label.0.max(free);
        free = label.0 + LINE;
    }
    labels
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::Series;

    fn curve() -> Curve {
        Curve {
            id: "keys",
            title: "Keys < all",
            unit: "ns a call",
            sizes: vec![1, 10, 100],
            series: vec![
                Series {
                    name: "subject",
                    figures: vec![20.0, 21.0, 22.0],
                },
                Series {
                    name: "peer",
                    figures: vec![21.0, 22.0, 23.0],
                },
            ],
        }
    }

    #[test]
    fn each_contender_has_a_line_and_a_point_for_each_size() {
        let plot = plot(&curve());
        assert_eq!(plot.matches("<polyline").count(), 2);
        assert_eq!(plot.matches("<circle").count(), 6);
        assert!(plot.contains("Keys &lt; all"));
        assert_eq!(
            plot.matches("<text").count(),
            plot.matches("</text>").count()
        );
    }

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let moved = apart(vec![(20.0, "b", ""), (10.0, "a", ""), (100.0, "c", "")]);
        assert_eq!(
            moved.iter().map(|label| label.0).collect::<Vec<_>>(),
            [10.0, 26.0, 100.0]
        );
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([23.0, 100.0, 7.0].map(step), [5.0, 20.0, 2.0]);
    }
}
