//! `catalogue.csv`: one product a line, below a line that names the columns.

use std::collections::HashMap;

use super::{Complaint, Product};
use crate::csv::{self, Field};

const COLUMNS: [&str; 9] = [
    "sku",
    "brand",
    "name",
    "category",
    "price_cents",
    "stock",
    "colour",
    "hex",
    "description",
];

/// Reads the catalogue: its brands, and its products with positions among these.
pub(super) fn read(text: &str) -> Result<(Vec<String>, Vec<Product>), Complaint> {
    let mut records =
        csv::records(text).map(|r| r.map_err(|e| Complaint::at(e.line, e.column, e.message)));
    let Some(header) = records.next().transpose()? else {
        return Err(Complaint::at(
            1,
            1,
            format!("is empty; it starts with the line `{}`", COLUMNS.join(",")),
        ));
    };
    let mut positions = [0; COLUMNS.len()];
    for (position, wanted) in positions.iter_mut().zip(COLUMNS) {
        *position = header
            .iter()
            .position(|f| f.text == wanted)
            .ok_or_else(|| {
                let end = header
                    .last()
                    .map_or(1, |f| f.column + f.text.chars().count());
                Complaint::at(
                    1,
                    end,
                    format!(
                        "has no column `{wanted}`; the columns are {}",
                        COLUMNS.join(", ")
                    ),
                )
            })?;
    }
    let mut brands: Vec<String> = Vec::new();
    let mut brand_at: HashMap<String, usize> = HashMap::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    let mut products = Vec::new();
    for record in records {
        let record = record?;
        if record.len() != header.len() {
            let (first, last) = (&record[0], &record[record.len() - 1]);
            let message = format!(
                "has {} fields where the first line has {}",
                record.len(),
                header.len()
            );
            return Err(Complaint::at(first.line, last.column, message));
        }
        let [
            sku,
            brand,
            name,
            category,
            price,
            stock,
            colour,
            hex,
            description,
        ] = positions.map(|p| &record[p]);
        for field in [sku, brand, name, category] {
            if field.text.trim().is_empty() {
                return Err(Complaint::at(
                    field.line,
                    field.column,
                    "is empty; every product has a sku, a brand, a name and a category",
                ));
            }
        }
        if let Some(line) = lines.insert(sku.text.clone(), sku.line) {
            let message = format!(
                "sku \"{}\" was already given to the product on line {line}",
                sku.text
            );
            return Err(Complaint::at(sku.line, sku.column, message));
        }
        let brand = *brand_at.entry(brand.text.clone()).or_insert_with(|| {
            brands.push(brand.text.clone());
            brands.len() - 1
        });
        products.push(Product {
            sku: sku.text.clone(),
            brand,
            name: name.text.clone(),
            category: category.text.clone(),
            price_cents: number(price, "price_cents")?,
            stock: number(stock, "stock")?,
            colour: colour.text.clone(),
            rgb: rgb(hex)?,
            description: description.text.clone(),
        });
    }
    if products.is_empty() {
        return Err(Complaint::at(2, 1, "has no products below its first line"));
    }
    Ok((brands, products))
}

fn number(field: &Field, name: &str) -> Result<u32, Complaint> {
    field.text.parse().map_err(|_| {
        let message = format!(
            "{name} is \"{}\", which is not a whole number from 0 to {}",
            field.text,
            u32::MAX
        );
        Complaint::at(field.line, field.column, message)
    })
}

fn rgb(field: &Field) -> Result<[u8; 3], Complaint> {
    let parsed = field
        .text
        .strip_prefix('#')
        .filter(|d| d.len() == 6 && d.is_ascii());
    parsed
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .map_or_else(
            || {
                let message = format!(
                    "hex is \"{}\", which is not a colour such as #5f7043",
                    field.text
                );
                Err(Complaint::at(field.line, field.column, message))
            },
            |value| Ok([(value >> 16) as u8, (value >> 8) as u8, value as u8]),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "sku,brand,name,category,price_cents,stock,colour,hex,description\n";

    fn complaint(rows: &str) -> (Option<(usize, usize)>, String) {
        let error = read(&format!("{HEADER}{rows}")).err().unwrap();
        (error.at, error.message)
    }

    #[test]
    fn a_bad_number_is_located() {
        let (at, message) = complaint("A-1,Acme,\"Lamp, red\",Lighting,12.50,3,Red,#aa0000,x\n");
        assert_eq!(at, Some((2, 31)));
        assert!(message.contains("price_cents is \"12.50\""), "{message}");
    }

    #[test]
    fn a_bad_colour_is_located() {
        let (at, message) = complaint("A-1,Acme,Lamp,Lighting,1,3,Red,#aa000g,x\n");
        assert_eq!(at, Some((2, 32)));
        assert!(message.contains("#aa000g"), "{message}");
    }

    #[test]
    fn a_short_record_is_located() {
        let (at, message) = complaint("A-1,Acme,Lamp,Lighting,1\n");
        assert_eq!(at, Some((2, 24)));
        assert_eq!(message, "has 5 fields where the first line has 9");
    }

    #[test]
    fn columns_may_come_in_any_order() {
        let text = "hex,description,sku,brand,name,category,price_cents,stock,colour\n#010203,d,A-1,Acme,Lamp,L,5,6,Red\n";
        let (brands, products) = read(text).map_err(|e| e.message).unwrap();
        assert_eq!(brands, ["Acme"]);
        assert_eq!((products[0].rgb, products[0].stock), ([1, 2, 3], 6));
    }
}
