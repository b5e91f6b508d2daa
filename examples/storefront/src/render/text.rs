//! Text as outlines: lines of a vector font that comes with a crate, kerned, measured and wrapped.

use std::sync::LazyLock;

use tiny_skia::{Path, PathBuilder};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// The three cuts a card uses.
#[derive(Debug)]
pub struct Fonts {
    pub bold: Font,
    pub plain: Font,
    pub condensed: Font,
}

/// The fonts, parsed once.
///
/// # Panics
///
/// If a font that is compiled in is no font, which its tests would have found.
pub fn fonts() -> &'static Fonts {
    static FONTS: LazyLock<Fonts> = LazyLock::new(|| Fonts {
        bold: Font::new(dejavu::sans::bold()),
        plain: Font::new(dejavu::sans::regular()),
        condensed: Font::new(dejavu::sans_condensed::regular()),
    });
    &FONTS
}

pub struct Font(Face<'static>);

impl std::fmt::Debug for Font {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Font")
            .field("glyphs", &self.0.number_of_glyphs())
            .finish()
    }
}

impl Font {
    fn new(bytes: &'static [u8]) -> Self {
        Self(Face::parse(bytes, 0).expect("a font that is compiled in can be parsed"))
    }

    /// The outlines of a line whose baseline starts at a point, and how wide it is.
    pub fn line(&self, text: &str, size: f32, x: f32, y: f32) -> (Option<Path>, f32) {
        let scale = size / f32::from(self.0.units_per_em());
        let mut pen = Pen {
            path: PathBuilder::new(),
            scale,
            x,
            y,
        };
        let width = self.walk(text, scale, |face, glyph, offset| {
            pen.x = x + offset;
            face.outline_glyph(glyph, &mut pen);
        });
        (pen.path.finish(), width)
    }

    pub fn width(&self, text: &str, size: f32) -> f32 {
        self.walk(text, size / f32::from(self.0.units_per_em()), |_, _, _| {})
    }

    fn walk(
        &self,
        text: &str,
        scale: f32,
        mut each: impl FnMut(&Face<'static>, GlyphId, f32),
    ) -> f32 {
        let face = &self.0;
        let mut offset = 0.0;
        let mut before = None;
        for glyph in text
            .chars()
            .map(|c| face.glyph_index(c).unwrap_or_default())
        {
            offset += before.map_or(0.0, |left| self.kerning(left, glyph)) * scale;
            each(face, glyph, offset);
            offset += f32::from(face.glyph_hor_advance(glyph).unwrap_or_default()) * scale;
            before = Some(glyph);
        }
        offset
    }

    fn kerning(&self, left: GlyphId, right: GlyphId) -> f32 {
        let Some(kern) = self.0.tables().kern else {
            return 0.0;
        };
        let pairs = kern
            .subtables
            .into_iter()
            .filter(|t| t.horizontal && !t.variable);
        pairs
            .into_iter()
            .find_map(|t| t.glyphs_kerning(left, right))
            .map_or(0.0, f32::from)
    }

    /// Breaks a text at its spaces into at most `most` lines; what does not fit ends in an ellipsis.
    pub fn wrap(&self, text: &str, size: f32, width: f32, most: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            if let Some(line) = lines.last_mut() {
                let longer = format!("{line} {word}");
                if self.width(&longer, size) <= width {
                    *line = longer;
                    continue;
                }
            }
            if lines.len() == most {
                if let Some(line) = lines.last_mut() {
                    while self.width(&format!("{line}…"), size) > width && line.pop().is_some() {}
                    line.push('…');
                }
                break;
            }
            lines.push(word.to_owned());
        }
        lines
    }
}

/// Puts a glyph, whose y axis points up, on a page, whose y axis points down.
struct Pen {
    path: PathBuilder,
    scale: f32,
    x: f32,
    y: f32,
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, self.y - y * self.scale)
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps_at_spaces_and_cuts_what_is_left_over() {
        let font = &fonts().plain;
        let whole = font.wrap("one two three", 10.0, 1_000.0, 2);
        assert_eq!(whole, ["one two three"]);
        let narrow = font.wrap(
            "one two three four five six",
            10.0,
            font.width("one two", 10.0) + 1.0,
            2,
        );
        assert_eq!(narrow.len(), 2);
        assert_eq!(narrow[0], "one two");
        assert!(narrow[1].ends_with('…'), "{narrow:?}");
    }

    #[test]
    fn spaces_have_a_width_and_no_outline() {
        let (path, width) = fonts().bold.line("  ", 20.0, 0.0, 0.0);
        assert!(path.is_none() && width > 0.0);
    }
}
