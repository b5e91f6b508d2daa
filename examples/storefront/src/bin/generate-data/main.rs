//! Makes the two input files of the storefront: `catalogue.csv` and `events.jsonl`.
//!
//! `cargo run -p storefront --bin generate-data` writes them beside this example; `--out DIR` writes them elsewhere.
//! There is no clock and no entropy in it: the same program writes the same bytes, and a test holds it to the
//! committed files.

#![forbid(unsafe_code)]

#[path = "../../rng.rs"]
mod rng;
mod words;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use rng::Rng;
use words::{BRANDS, COLOURS, Good, REVIEWS, Shelf};

const PRODUCTS: usize = 2_000;
const EVENTS: usize = 10_000;
const CUSTOMERS: usize = 1_800;

struct Product {
    sku: String,
    brand: &'static str,
    name: String,
    noun: &'static str,
    category: &'static str,
    price_cents: usize,
    stock: usize,
    colour: &'static str,
    hex: &'static str,
    description: String,
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let out = match (args.next().as_deref(), args.next(), args.next()) {
        (None, _, _) => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/data")),
        (Some("--out"), Some(dir), None) => PathBuf::from(dir),
        _ => {
            eprintln!("usage: generate-data [--out DIR]");
            return ExitCode::from(2);
        }
    };
    let products = products(&mut Rng::new(2_024));
    let catalogue = catalogue(&products);
    let events = events(&mut Rng::new(1_009), &products);
    for (name, content) in [("catalogue.csv", catalogue), ("events.jsonl", events)] {
        let path = out.join(name);
        if let Err(error) =
            std::fs::create_dir_all(&out).and_then(|()| std::fs::write(&path, content))
        {
            eprintln!("generate-data: cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("wrote {}", path.display());
    }
    ExitCode::SUCCESS
}

/// How many products each brand has: between 30 and 70, `PRODUCTS` in all.
fn shelf_sizes(rng: &mut Rng) -> Vec<usize> {
    let mut sizes: Vec<usize> = BRANDS.iter().map(|_| rng.between(30, 70)).collect();
    let mut at = 0;
    loop {
        let total: usize = sizes.iter().sum();
        let size = &mut sizes[at % BRANDS.len()];
        match total.cmp(&PRODUCTS) {
            std::cmp::Ordering::Equal => return sizes,
            std::cmp::Ordering::Less if *size < 70 => *size += 1,
            std::cmp::Ordering::Greater if *size > 30 => *size -= 1,
            _ => {}
        }
        at += 1;
    }
}

fn products(rng: &mut Rng) -> Vec<Product> {
    let shelves = words::shelves();
    let mut products = Vec::with_capacity(PRODUCTS);
    for (brand, size) in BRANDS.iter().zip(shelf_sizes(rng)) {
        let mut seen = HashSet::new();
        let mut number = 100;
        while seen.len() < size {
            let shelf = &shelves[brand.shelves[rng.below(brand.shelves.len())]];
            let good = &shelf.goods[rng.below(shelf.goods.len())];
            let name = format!(
                "{} {}, {}",
                rng.pick(brand.lines),
                good.noun,
                rng.pick(&good.sizes)
            );
            let (colour, hex) = COLOURS[rng.below(COLOURS.len())];
            if !seen.insert((name.clone(), colour)) {
                continue;
            }
            number += rng.between(1, 9);
            products.push(Product {
                sku: format!("{}-{number:04}", brand.code),
                brand: brand.name,
                name,
                noun: good.noun,
                category: shelf.name,
                price_cents: price(rng, good.price),
                stock: stock(rng),
                colour,
                hex,
                description: description(rng, shelf, good),
            });
        }
    }
    products
}

/// Most things cost little: the square of a uniform number, then an ending that shops like.
fn price(rng: &mut Rng, (low, high): (usize, usize)) -> usize {
    let share = rng.unit() * (0.3 + 0.7 * rng.unit());
    let whole = low + (share * (high - low) as f64) as usize;
    whole * 100 + [0, 50, 90, 95, 99][rng.below(5)]
}

/// One in fourteen is sold out; the rest have a few, some have many.
fn stock(rng: &mut Rng) -> usize {
    match rng.below(14) {
        0 => 0,
        1..=3 => rng.between(60, 400),
        _ => rng.between(1, 59),
    }
}

fn description(rng: &mut Rng, shelf: &Shelf, good: &Good) -> String {
    let subject = good.noun.to_lowercase();
    let material = rng.pick(&good.materials);
    let merit = rng.pick(&good.merits);
    let care = rng.pick(&shelf.care);
    // "Headphones", "Secateurs": their merits are written for the plural.
    let plural = subject.ends_with('s');
    let first = match (rng.below(2), plural) {
        (_, true) => format!("{} in {material} that {merit}", capital(&subject)),
        (0, false) => format!("{} in {material} that {merit}", capital(&article(&subject))),
        _ => format!("Made of {material}, this {subject} {merit}"),
    };
    format!("{first}. {care}")
}

fn article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn catalogue(products: &[Product]) -> String {
    let mut out =
        String::from("sku,brand,name,category,price_cents,stock,colour,hex,description\n");
    for p in products {
        let fields = [
            p.sku.as_str(),
            p.brand,
            &p.name,
            p.category,
            &p.price_cents.to_string(),
            &p.stock.to_string(),
            p.colour,
            p.hex,
            &p.description,
        ]
        .map(quoted);
        out.push_str(&fields.join(","));
        out.push('\n');
    }
    out
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// One day of a shop: quiet before breakfast, a hump at lunch, a long evening.
const HOURS: [usize; 24] = [
    8, 5, 3, 2, 2, 4, 10, 22, 34, 42, 48, 56, 66, 58, 50, 48, 52, 60, 74, 88, 92, 78, 46, 22,
];

fn timestamps(rng: &mut Rng) -> Vec<usize> {
    let total: usize = HOURS.iter().sum();
    let mut millis: Vec<usize> = (0..EVENTS)
        .map(|_| {
            let mut at = rng.below(total);
            let hour = HOURS.iter().position(|&share| {
                let here = at < share;
                at = at.saturating_sub(if here { 0 } else { share });
                here
            });
            hour.unwrap_or(23) * 3_600_000 + rng.below(3_600_000)
        })
        .collect();
    millis.sort_unstable();
    millis
}

/// An index below `len`, small ones far more often: a few products and customers make most of the traffic.
fn popular(rng: &mut Rng, len: usize) -> usize {
    ((len as f64).powf(rng.unit()) - 1.0) as usize % len
}

fn events(rng: &mut Rng, products: &[Product]) -> String {
    // Popularity must not follow the catalogue's order, or one brand would take it all.
    let mut ranking: Vec<usize> = (0..products.len()).collect();
    for at in (1..ranking.len()).rev() {
        ranking.swap(at, rng.below(at + 1));
    }
    let mut out = String::new();
    let mut orders = 0;
    // What somebody looked at lately is what is put into carts and ordered.
    let mut recent: Vec<(usize, usize)> = Vec::new();
    for (number, at) in timestamps(rng).into_iter().enumerate() {
        let fresh = (
            ranking[popular(rng, ranking.len())],
            popular(rng, CUSTOMERS),
        );
        let chosen = if recent.is_empty() {
            fresh
        } else {
            recent[rng.below(recent.len())]
        };
        let kind = match rng.below(1000) {
            0..600 => "view",
            600..770 => "cart",
            770..850 => "order",
            850..920 => "review",
            920..970 => "restock",
            _ => "price",
        };
        let (product, customer) = if kind == "view" { fresh } else { chosen };
        if kind == "view" {
            recent.push(fresh);
            if recent.len() > 200 {
                recent.remove(0);
            }
        }
        let p = &products[product];
        let (h, m, s, ms) = (at / 3_600_000, at / 60_000 % 60, at / 1000 % 60, at % 1000);
        let _ = write!(
            out,
            r#"{{"id":"evt-{:06}","ts":"2025-11-28T{h:02}:{m:02}:{s:02}.{ms:03}Z","kind":"{kind}","sku":"{}""#,
            number + 1,
            p.sku
        );
        let customer = format!(r#","customer":"c-{:05}""#, 10_000 + customer * 7);
        let few = [1, 1, 1, 1, 1, 1, 2, 2, 3, 4][rng.below(10)];
        let _ = match kind {
            "view" => write!(out, "{customer}"),
            "cart" => write!(out, r#"{customer},"quantity":{few}"#),
            "order" => {
                orders += 1;
                let total = few * p.price_cents;
                write!(
                    out,
                    r#"{customer},"quantity":{few},"order":"o-{:05}","total_cents":{total}"#,
                    40_000 + orders
                )
            }
            "review" => {
                let stars = [1, 2, 3, 4, 4, 4, 5, 5, 5, 5][rng.below(10)];
                let pool = REVIEWS[[0, 0, 0, 1, 2, 2][stars]];
                let text = pool[rng.below(pool.len())].replace("{}", &p.noun.to_lowercase());
                write!(out, r#"{customer},"stars":{stars},"text":"{text}""#)
            }
            "restock" => write!(
                out,
                r#","quantity":{}"#,
                [6, 10, 12, 20, 24, 48][rng.below(6)]
            ),
            _ => write!(
                out,
                r#","price_cents":{}"#,
                p.price_cents * rng.between(70, 115) / 100
            ),
        };
        out.push_str("}\n");
    }
    out
}
