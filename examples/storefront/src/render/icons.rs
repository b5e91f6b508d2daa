//! What is on the shelves, drawn: layers of simple paths on a square of 200 units.
//!
//! A path is text, as in SVG, with absolute coordinates only: `M` move, `L` line, `Q` and `C` curves, `Z` close, and three
//! shapes of our own: `O x y r` a circle, `E x y rx ry` an ellipse, `R x y w h r` a rectangle with round corners.

use std::collections::HashMap;
use std::sync::LazyLock;

use tiny_skia::{Path, PathBuilder, Rect};

/// How a layer's colour follows from the product's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shade {
    Base,
    Mid,
    Dark,
    Light,
    Pale,
    Glow,
}

#[derive(Debug)]
pub struct Layer {
    pub shade: Shade,
    /// The width of the line; none fills the path.
    pub width: Option<f32>,
    pub path: Path,
}

/// The picture for a category; a parcel for one that has no picture.
pub fn of(category: &str) -> &'static [Layer] {
    static ICONS: LazyLock<HashMap<&str, Vec<Layer>>> = LazyLock::new(parse);
    ICONS
        .get(category)
        .or_else(|| ICONS.get("Parcel"))
        .map_or(&[], Vec::as_slice)
}

/// Reads `icons.txt`: a line `# Name`, then one layer a line: shade, width or `fill`, path. Part of the program, so a
/// mistake in it is a mistake in the program; a test reads it.
fn parse() -> HashMap<&'static str, Vec<Layer>> {
    let mut icons: HashMap<&str, Vec<Layer>> = HashMap::new();
    let mut name = "";
    for line in include_str!("icons.txt")
        .lines()
        .filter(|line| !line.trim().is_empty())
    {
        if let Some(next) = line.strip_prefix("# ") {
            name = next;
            continue;
        }
        icons.entry(name).or_default().extend(layer(line));
    }
    icons
}

fn layer(line: &str) -> Option<Layer> {
    let mut words = line.split_whitespace();
    let shade = match words.next()? {
        "base" => Shade::Base,
        "mid" => Shade::Mid,
        "dark" => Shade::Dark,
        "light" => Shade::Light,
        "pale" => Shade::Pale,
        "glow" => Shade::Glow,
        _ => return None,
    };
    let width = match words.next()? {
        "fill" => None,
        width => Some(width.parse().ok()?),
    };
    let mut path = PathBuilder::new();
    let mut words = words.peekable();
    while let Some(verb) = words.next() {
        let mut numbers = [0.0; 6];
        let mut count = 0;
        while let Some(number) = words.peek().and_then(|word| word.parse().ok()) {
            *numbers.get_mut(count)? = number;
            count += 1;
            words.next();
        }
        let [a, b, c, d, e, f] = numbers;
        match (verb, count) {
            ("M", 2) => path.move_to(a, b),
            ("L", 2) => path.line_to(a, b),
            ("Q", 4) => path.quad_to(a, b, c, d),
            ("C", 6) => path.cubic_to(a, b, c, d, e, f),
            ("Z", 0) => path.close(),
            ("O", 3) => path.push_circle(a, b, c),
            ("E", 4) => path.push_oval(Rect::from_xywh(a - c, b - d, 2.0 * c, 2.0 * d)?),
            ("R", 5) => push_round_rect(&mut path, a, b, c, d, e),
            _ => return None,
        }
    }
    Some(Layer {
        shade,
        width,
        path: path.finish()?,
    })
}

/// A rectangle with round corners.
pub fn round_rect(x: f32, y: f32, w: f32, h: f32, r: f32) -> Option<Path> {
    let mut path = PathBuilder::new();
    push_round_rect(&mut path, x, y, w, h, r);
    path.finish()
}

fn push_round_rect(path: &mut PathBuilder, x: f32, y: f32, w: f32, h: f32, r: f32) {
    // How far the handles of a cubic lie from a corner that is to look like a quarter of a circle.
    let k = r * (1.0 - 0.552_284_8);
    let (right, bottom) = (x + w, y + h);
    path.move_to(x + r, y);
    path.line_to(right - r, y);
    path.cubic_to(right - k, y, right, y + k, right, y + r);
    path.line_to(right, bottom - r);
    path.cubic_to(right, bottom - k, right - k, bottom, right - r, bottom);
    path.line_to(x + r, bottom);
    path.cubic_to(x + k, bottom, x, bottom - k, x, bottom - r);
    path.line_to(x, y + r);
    path.cubic_to(x, y + k, x + k, y, x + r, y);
    path.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_pictures_is_a_layer() {
        let lines = include_str!("icons.txt")
            .lines()
            .filter(|l| !l.trim().is_empty());
        let layers: usize = parse().values().map(Vec::len).sum();
        let names = parse().len();
        assert_eq!(lines.count(), layers + names);
        assert_eq!(names, 13);
    }
}
