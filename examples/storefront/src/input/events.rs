//! `events.jsonl`: one event a line, each a JSON object.

use std::collections::HashMap;

use serde::Deserialize;

use super::{Complaint, Event, Kind, Product};

/// One line of `events.jsonl` as it is written; which fields it needs depends on its kind.
#[derive(Deserialize)]
struct Line {
    id: String,
    ts: String,
    kind: String,
    sku: String,
    customer: Option<String>,
    quantity: Option<u32>,
    order: Option<String>,
    total_cents: Option<u32>,
    stars: Option<u32>,
    text: Option<String>,
    price_cents: Option<u32>,
}

/// Reads the events, each about a product that there is.
pub(super) fn read(text: &str, products: &[Product]) -> Result<Vec<Event>, Complaint> {
    let by_sku: HashMap<&str, usize> = products
        .iter()
        .enumerate()
        .map(|(i, p)| (p.sku.as_str(), i))
        .collect();
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut events = Vec::new();
    for (index, source) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let number = index + 1;
        let wrong =
            |field: &str, message: String| Complaint::at(number, column(source, field), message);
        let line: Line = serde_json::from_str(source).map_err(|error| {
            let message = error.to_string();
            // The place it appends is a place in this one line.
            let message = message.split(" at line ").next().unwrap_or_default();
            Complaint::at(
                number,
                error.column().max(1),
                format!("is not an event: {message}"),
            )
        })?;
        let Some(&product) = by_sku.get(line.sku.as_str()) else {
            return Err(wrong(
                "sku",
                format!("sku \"{}\" is not in the catalogue", line.sku),
            ));
        };
        if let Some(first) = lines.insert(line.id.clone(), number) {
            return Err(wrong(
                "id",
                format!(
                    "id \"{}\" was already given to the event on line {first}",
                    line.id
                ),
            ));
        }
        let kind = kind(&line).map_err(|problem| match problem {
            Problem::Unknown => wrong(
                "kind",
                format!(
                    "kind is \"{}\"; it is view, cart, order, review, restock or price",
                    line.kind
                ),
            ),
            Problem::Lacks(field) => wrong(
                "kind",
                format!(
                    "an event of kind \"{}\" needs the field \"{field}\"",
                    line.kind
                ),
            ),
        })?;
        events.push(Event {
            id: line.id,
            ts: line.ts,
            product,
            kind,
        });
    }
    if events.is_empty() {
        return Err(Complaint::at(1, 1, "is empty; it has one event a line"));
    }
    Ok(events)
}

enum Problem {
    Unknown,
    Lacks(&'static str),
}

fn kind(line: &Line) -> Result<Kind, Problem> {
    let text = |value: &Option<String>, name| value.clone().ok_or(Problem::Lacks(name));
    let number = |value: Option<u32>, name| value.ok_or(Problem::Lacks(name));
    let customer = || text(&line.customer, "customer");
    let quantity = || number(line.quantity, "quantity");
    Ok(match line.kind.as_str() {
        "view" => Kind::View {
            customer: customer()?,
        },
        "cart" => Kind::Cart {
            customer: customer()?,
            quantity: quantity()?,
        },
        "order" => Kind::Order {
            customer: customer()?,
            quantity: quantity()?,
            order: text(&line.order, "order")?,
            total_cents: number(line.total_cents, "total_cents")?,
        },
        "review" => Kind::Review {
            customer: customer()?,
            stars: number(line.stars, "stars")?,
            text: text(&line.text, "text")?,
        },
        "restock" => Kind::Restock {
            quantity: quantity()?,
        },
        "price" => Kind::Price {
            price_cents: number(line.price_cents, "price_cents")?,
        },
        _ => return Err(Problem::Unknown),
    })
}

/// The column, in characters, where a field of an object starts; 1 if it is not to be found.
fn column(line: &str, field: &str) -> usize {
    line.find(&format!("\"{field}\""))
        .map_or(1, |at| 1 + line[..at].chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_lacking_a_field_of_its_kind_is_located() {
        let product = Product {
            sku: "A-1".into(),
            brand: 0,
            name: "Lamp".into(),
            category: "Lighting".into(),
            price_cents: 1,
            stock: 3,
            colour: "Red".into(),
            rgb: [170, 0, 0],
            description: String::new(),
        };
        let error = read(
            r#"{"id":"e","ts":"t","kind":"restock","sku":"A-1"}"#,
            &[product],
        )
        .err()
        .unwrap();
        assert_eq!(error.at, Some((1, 20)));
        assert_eq!(
            error.message,
            "an event of kind \"restock\" needs the field \"quantity\""
        );
    }
}
