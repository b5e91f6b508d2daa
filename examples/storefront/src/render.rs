//! Product cards as PNG: real work for a processor, and the subsystem that counts itself.
//!
//! One card is some thousand path operations and one compression: a few milliseconds in release. It blocks, so it
//! belongs on a blocking thread, under a contract that says how many may run at once.

mod icons;
mod text;

use std::fmt;

use tiny_skia::{
    Color, FillRule, GradientStop, LineCap, LineJoin, LinearGradient, Mask, Paint, Path,
    PathBuilder, Pixmap, Point, RadialGradient, Rect, Shader, SpreadMode, Stroke, Transform,
};

use crate::gauge::Gauge;
use crate::input::{Product, Shop};
use icons::{Layer, Shade};
use text::Font;

/// The size of a card at scale 1, in pixels.
const WIDTH: f32 = 480.0;
const HEIGHT: f32 = 640.0;
const MARGIN: f32 = 32.0;
const PICTURE: f32 = 372.0;

/// Draws cards, and counts how many it draws at once.
#[derive(Debug, Default)]
pub struct Renderer {
    pub gauge: Gauge,
}

/// Why there is no card.
#[derive(Debug)]
pub enum RenderError {
    /// The card has no pixels: its scale is zero, or beyond what memory holds.
    Size,
    /// The encoder failed.
    Encode(png::EncodingError),
    /// The card could not be saved.
    Save(std::io::Error),
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size => f.write_str("the card has no pixels at this scale"),
            Self::Encode(error) => write!(f, "the card cannot be encoded as PNG: {error}"),
            Self::Save(error) => write!(f, "the card cannot be saved: {error}"),
        }
    }
}

impl std::error::Error for RenderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Size => None,
            Self::Encode(error) => Some(error),
            Self::Save(error) => Some(error),
        }
    }
}

impl Renderer {
    /// Draws the card of one product, `scale` times its normal size, and encodes it.
    ///
    /// # Errors
    ///
    /// If there are no pixels at that scale, or the encoder fails.
    pub fn card(&self, shop: &Shop, product: &Product, scale: f32) -> Result<Vec<u8>, RenderError> {
        let _inside = self.gauge.enter();
        let pixmap = Pixmap::new((WIDTH * scale) as u32, (HEIGHT * scale) as u32)
            .ok_or(RenderError::Size)?;
        let mut canvas = Canvas {
            pixmap,
            at: Transform::from_scale(scale, scale),
        };
        picture(&mut canvas, product);
        words(&mut canvas, shop.brand_of(product), product);
        encode(&canvas.pixmap).map_err(RenderError::Encode)
    }
}

/// A card has no transparent pixel, so three bytes a pixel say it all.
fn encode(pixmap: &Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    let rgb: Vec<u8> = pixmap
        .data()
        .chunks_exact(4)
        .flat_map(|p| [p[0], p[1], p[2]])
        .collect();
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, pixmap.width(), pixmap.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&rgb)?;
    writer.finish()?;
    Ok(out)
}

/// A pixmap and where on it we draw.
struct Canvas {
    pixmap: Pixmap,
    at: Transform,
}

impl Canvas {
    fn fill(&mut self, path: Option<&Path>, shader: Shader<'_>) {
        let paint = Paint {
            shader,
            anti_alias: true,
            ..Paint::default()
        };
        // A path without an area paints nothing, which is what it should.
        if let Some(path) = path {
            self.pixmap
                .fill_path(path, &paint, FillRule::Winding, self.at, None::<&Mask>);
        }
    }

    fn rect(&mut self, x: f32, y: f32, w: f32, h: f32, shader: Shader<'_>) {
        let path = Rect::from_xywh(x, y, w, h).map(PathBuilder::from_rect);
        self.fill(path.as_ref(), shader);
    }

    fn stroke(&mut self, path: &Path, width: f32, colour: Color) {
        let paint = Paint {
            shader: Shader::SolidColor(colour),
            anti_alias: true,
            ..Paint::default()
        };
        let stroke = Stroke {
            width,
            line_cap: LineCap::Round,
            line_join: LineJoin::Round,
            ..Stroke::default()
        };
        self.pixmap
            .stroke_path(path, &paint, &stroke, self.at, None::<&Mask>);
    }

    /// Writes one line and returns how wide it is.
    fn write(
        &mut self,
        font: &Font,
        size: f32,
        (x, y): (f32, f32),
        colour: Color,
        words: &str,
    ) -> f32 {
        let (path, width) = font.line(words, size, x, y);
        self.fill(path.as_ref(), Shader::SolidColor(colour));
        width
    }
}

/// A colour between two others.
fn mix(from: [u8; 3], to: [u8; 3], share: f32) -> Color {
    let [r, g, b] = std::array::from_fn(|i| {
        (f32::from(from[i]) * (1.0 - share) + f32::from(to[i]) * share).round() as u8
    });
    Color::from_rgba8(r, g, b, 255)
}

const WHITE: [u8; 3] = [255, 255, 255];
const BLACK: [u8; 3] = [24, 20, 16];
const PAPER: [u8; 3] = [253, 251, 247];

fn with_alpha(colour: Color, alpha: f32) -> Color {
    let mut colour = colour;
    colour.set_alpha(alpha);
    colour
}

fn vertical<'a>(top: f32, bottom: f32, from: Color, to: Color) -> Shader<'a> {
    let stops = vec![GradientStop::new(0.0, from), GradientStop::new(1.0, to)];
    LinearGradient::new(
        Point::from_xy(0.0, top),
        Point::from_xy(0.0, bottom),
        stops,
        SpreadMode::Pad,
        Transform::identity(),
    )
    .unwrap_or(Shader::SolidColor(from))
}

fn glow<'a>(centre: (f32, f32), radius: f32, inner: Color, outer: Color) -> Shader<'a> {
    let centre = Point::from_xy(centre.0, centre.1);
    let stops = vec![GradientStop::new(0.0, inner), GradientStop::new(1.0, outer)];
    RadialGradient::new(
        centre,
        0.0,
        centre,
        radius,
        stops,
        SpreadMode::Pad,
        Transform::identity(),
    )
    .unwrap_or(Shader::SolidColor(inner))
}

/// The upper part: the thing itself, on a backdrop of its colour.
fn picture(canvas: &mut Canvas, product: &Product) {
    let rgb = product.rgb;
    canvas.rect(
        0.0,
        0.0,
        WIDTH,
        HEIGHT,
        Shader::SolidColor(mix(PAPER, WHITE, 0.0)),
    );
    canvas.rect(
        0.0,
        0.0,
        WIDTH,
        PICTURE,
        vertical(0.0, PICTURE, mix(rgb, WHITE, 0.82), mix(rgb, WHITE, 0.62)),
    );
    let light = mix(rgb, WHITE, 0.94);
    let centre = (WIDTH / 2.0, 170.0);
    let round = PathBuilder::from_circle(centre.0, centre.1, 190.0);
    canvas.fill(
        round.as_ref(),
        glow(
            centre,
            190.0,
            with_alpha(light, 0.95),
            with_alpha(light, 0.0),
        ),
    );
    // The table it stands on.
    canvas.rect(
        0.0,
        312.0,
        WIDTH,
        PICTURE - 312.0,
        vertical(312.0, PICTURE, mix(rgb, WHITE, 0.52), mix(rgb, WHITE, 0.66)),
    );
    // A shadow: ellipses that grow and fade, since there is no blur here.
    for step in 0..12 {
        let spread = step as f32;
        let oval = Rect::from_xywh(
            134.0 - 5.0 * spread,
            318.0 - 1.4 * spread,
            212.0 + 10.0 * spread,
            12.0 + 2.8 * spread,
        );
        let path = oval.and_then(PathBuilder::from_oval);
        canvas.fill(
            path.as_ref(),
            Shader::SolidColor(with_alpha(mix(rgb, BLACK, 0.7), 0.035)),
        );
    }
    let outer = canvas.at;
    canvas.at = outer.pre_concat(Transform::from_row(
        1.4,
        0.0,
        0.0,
        1.4,
        WIDTH / 2.0 - 140.0,
        52.0,
    ));
    for Layer { shade, width, path } in icons::of(&product.category) {
        let colour = match shade {
            Shade::Base => mix(rgb, WHITE, 0.0),
            Shade::Dark => mix(rgb, BLACK, 0.45),
            Shade::Mid => mix(rgb, BLACK, 0.2),
            Shade::Light => mix(rgb, WHITE, 0.45),
            Shade::Pale => mix(rgb, WHITE, 0.85),
            Shade::Glow => with_alpha(mix(rgb, WHITE, 0.9), 0.55),
        };
        match width {
            Some(width) => canvas.stroke(path, *width, colour),
            None if *shade == Shade::Base => {
                canvas.fill(
                    Some(path),
                    vertical(20.0, 190.0, mix(rgb, WHITE, 0.14), mix(rgb, BLACK, 0.12)),
                );
            }
            None => canvas.fill(Some(path), Shader::SolidColor(colour)),
        }
    }
    canvas.at = outer;
}

/// The lower part: who makes it, what it is, what it costs.
fn words(canvas: &mut Canvas, brand: &str, product: &Product) {
    let fonts = text::fonts();
    let ink = mix(product.rgb, BLACK, 0.82);
    let soft = mix(product.rgb, [92, 87, 82], 0.88);
    let accent = mix(product.rgb, BLACK, 0.28);

    let spaced: String = brand
        .to_uppercase()
        .chars()
        .flat_map(|c| [c, '\u{200a}'])
        .collect();
    canvas.write(&fonts.bold, 12.0, (MARGIN, 404.0), accent, &spaced);
    let width = fonts.plain.width(&product.sku, 11.0);
    canvas.write(
        &fonts.plain,
        11.0,
        (WIDTH - MARGIN - width, 404.0),
        soft,
        &product.sku,
    );

    let mut y = 436.0;
    for line in fonts
        .bold
        .wrap(&product.name, 24.0, WIDTH - 2.0 * MARGIN, 2)
    {
        canvas.write(&fonts.bold, 24.0, (MARGIN, y), ink, &line);
        y += 30.0;
    }
    y += 2.0;
    for line in fonts
        .condensed
        .wrap(&product.description, 15.0, WIDTH - 2.0 * MARGIN, 4)
    {
        canvas.write(&fonts.condensed, 15.0, (MARGIN, y), soft, &line);
        y += 21.0;
    }

    let line = HEIGHT - 74.0;
    canvas.rect(
        MARGIN,
        line,
        WIDTH - 2.0 * MARGIN,
        1.0,
        Shader::SolidColor(mix(product.rgb, PAPER, 0.75)),
    );
    let price = format!(
        "€ {}.{:02}",
        product.price_cents / 100,
        product.price_cents % 100
    );
    let end = MARGIN + canvas.write(&fonts.bold, 26.0, (MARGIN, HEIGHT - 30.0), ink, &price);
    let dot = PathBuilder::from_circle(end + 26.0, HEIGHT - 39.0, 7.0);
    canvas.fill(
        dot.as_ref(),
        Shader::SolidColor(mix(product.rgb, WHITE, 0.0)),
    );
    canvas.write(
        &fonts.condensed,
        13.0,
        (end + 39.0, HEIGHT - 34.5),
        soft,
        &product.colour,
    );

    let (label, tint) = match product.stock {
        0 => ("sold out".to_owned(), [122, 118, 114]),
        1..=5 => (format!("only {} left", product.stock), [176, 92, 24]),
        _ => ("in stock".to_owned(), [56, 118, 78]),
    };
    let width = fonts.bold.width(&label, 12.0) + 24.0;
    let pill = icons::round_rect(WIDTH - MARGIN - width, HEIGHT - 52.0, width, 26.0, 13.0);
    canvas.fill(pill.as_ref(), Shader::SolidColor(mix(tint, WHITE, 0.86)));
    canvas.write(
        &fonts.bold,
        12.0,
        (WIDTH - MARGIN - width + 12.0, HEIGHT - 34.6),
        mix(tint, BLACK, 0.1),
        &label,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop(category: &str) -> Shop {
        let product = Product {
            sku: "ACM-0001".into(),
            brand: 0,
            name: "Skumring Floor Lamp, with dimmer".into(),
            category: category.into(),
            price_cents: 12_950,
            stock: 3,
            colour: "Moss".into(),
            rgb: [95, 112, 67],
            description: "A floor lamp in brass that dims down to the light of a candle.".into(),
        };
        Shop {
            brands: vec!["Acme".into()],
            products: vec![product],
            events: Vec::new(),
        }
    }

    #[test]
    fn a_card_is_a_png_of_its_size() {
        let shop = shop("Lighting");
        let renderer = Renderer::default();
        let png = renderer.card(&shop, &shop.products[0], 0.5).unwrap();
        let header = png::Decoder::new(std::io::Cursor::new(png))
            .read_info()
            .unwrap();
        assert_eq!(header.info().size(), (240, 320));
        assert_eq!((renderer.gauge.peak(), renderer.gauge.inside()), (1, 0));
    }

    #[test]
    fn a_category_without_a_picture_of_its_own_gets_a_box() {
        let shop = shop("Something new");
        assert!(
            Renderer::default()
                .card(&shop, &shop.products[0], 0.25)
                .is_ok()
        );
    }

    #[test]
    fn no_pixels_is_an_error() {
        let shop = shop("Audio");
        assert!(matches!(
            Renderer::default().card(&shop, &shop.products[0], 0.0),
            Err(RenderError::Size)
        ));
    }
}
