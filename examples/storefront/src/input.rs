//! The shop's input: a catalogue and a day of events, checked whole before anything runs.
//!
//! Every complaint names the file and, where there is one, the line and the column.

mod catalogue;
mod events;

use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Product {
    pub sku: String,
    /// A position in [`Shop::brands`].
    pub brand: usize,
    pub name: String,
    pub category: String,
    pub price_cents: u32,
    pub stock: u32,
    pub colour: String,
    pub rgb: [u8; 3],
    pub description: String,
}

#[derive(Debug)]
pub struct Event {
    pub id: String,
    pub ts: String,
    /// A position in [`Shop::products`].
    pub product: usize,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    View {
        customer: String,
    },
    Cart {
        customer: String,
        quantity: u32,
    },
    Order {
        customer: String,
        quantity: u32,
        order: String,
        total_cents: u32,
    },
    Review {
        customer: String,
        stars: u32,
        text: String,
    },
    Restock {
        quantity: u32,
    },
    Price {
        price_cents: u32,
    },
}

impl Kind {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::View { .. } => "view",
            Self::Cart { .. } => "cart",
            Self::Order { .. } => "order",
            Self::Review { .. } => "review",
            Self::Restock { .. } => "restock",
            Self::Price { .. } => "price",
        }
    }

    pub fn customer(&self) -> Option<&str> {
        match self {
            Self::View { customer }
            | Self::Cart { customer, .. }
            | Self::Order { customer, .. }
            | Self::Review { customer, .. } => Some(customer),
            Self::Restock { .. } | Self::Price { .. } => None,
        }
    }

    /// What a partner is told beside product and quantity.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Order {
                order, total_cents, ..
            } => Some(format!("{order}, {total_cents} cents in all")),
            Self::Price { price_cents } => Some(format!("now {price_cents} cents")),
            Self::Review { stars, .. } => Some(format!("{stars} of 5 stars")),
            _ => None,
        }
    }

    pub const fn quantity(&self) -> Option<u32> {
        match self {
            Self::Cart { quantity, .. }
            | Self::Order { quantity, .. }
            | Self::Restock { quantity } => Some(*quantity),
            _ => None,
        }
    }
}

/// All input.
#[derive(Debug)]
pub struct Shop {
    pub brands: Vec<String>,
    pub products: Vec<Product>,
    pub events: Vec<Event>,
}

impl Shop {
    /// Reads `catalogue.csv` and `events.jsonl` from a directory.
    ///
    /// # Errors
    ///
    /// If a file is missing, is not text, or says something that makes no sense: the first such thing.
    pub fn load(dir: &Path) -> Result<Self, InputError> {
        let path = dir.join("catalogue.csv");
        let (brands, products) = catalogue::read(&text(&path)?).map_err(|e| e.of(&path))?;
        let path = dir.join("events.jsonl");
        let events = events::read(&text(&path)?, &products).map_err(|e| e.of(&path))?;
        Ok(Self {
            brands,
            products,
            events,
        })
    }

    pub fn brand_of(&self, product: &Product) -> &str {
        &self.brands[product.brand]
    }
}

/// What is wrong with the input, and where.
#[derive(Debug)]
pub struct InputError {
    path: PathBuf,
    at: Option<(usize, usize)>,
    message: String,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some((line, column)) = self.at {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for InputError {}

/// A complaint that does not know its file yet.
struct Complaint {
    at: Option<(usize, usize)>,
    message: String,
}

impl Complaint {
    fn at(line: usize, column: usize, message: impl Into<String>) -> Self {
        Self {
            at: Some((line, column)),
            message: message.into(),
        }
    }

    fn of(self, path: &Path) -> InputError {
        InputError {
            path: path.to_owned(),
            at: self.at,
            message: self.message,
        }
    }
}

fn text(path: &Path) -> Result<String, InputError> {
    let bytes = std::fs::read(path).map_err(|error| {
        let hint = if error.kind() == std::io::ErrorKind::NotFound {
            "; name the directory that holds it with --data, or make it with \
             `cargo run -p storefront --bin generate-data -- --out DIR`"
        } else {
            ""
        };
        InputError {
            path: path.to_owned(),
            at: None,
            message: format!("cannot be read: {error}{hint}"),
        }
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|&&b| b == b'\n').count();
        let last = valid.rsplit(|&b| b == b'\n').next().unwrap_or_default();
        // What lies before the error is valid text, so its characters can be counted.
        let column = 1 + String::from_utf8_lossy(last).chars().count();
        Complaint::at(line, column, "is not UTF-8 text from here on").of(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_input_is_sound() {
        let shop = Shop::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data"))).unwrap();
        assert_eq!(
            (shop.brands.len(), shop.products.len(), shop.events.len()),
            (40, 2_000, 10_000)
        );
    }
}
