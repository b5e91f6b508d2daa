//! How much of the input one run works through.

use crate::input::{Event, Kind, Shop};

/// The work of one run.
#[derive(Debug)]
pub struct Plan {
    pub events: usize,
    pub cards: usize,
    /// The brand of each catalogue replacement, in the order in which feeds come in.
    pub feeds: Vec<usize>,
    /// How many of the events end in a webhook, and in a review to be scored.
    pub webhooks: usize,
    pub reviews: usize,
}

/// How many feeds bring the same brand in a row. More than one, or nothing would contend for the brand.
const FEEDS: usize = 3;

impl Plan {
    /// A share, or a multiple, of the input. However small, something of each kind is left to do.
    pub fn new(shop: &Shop, scale: f64) -> Self {
        let scaled = |len: usize, least: usize| ((len as f64 * scale).ceil() as usize).max(least);
        let events = scaled(shop.events.len(), 60);
        let brands = scaled(shop.brands.len(), 6).min(shop.brands.len());
        let feeds = scaled(FEEDS, FEEDS);
        let kinds = || (0..events).map(|n| &shop.events[n % shop.events.len()].kind);
        Self {
            events,
            cards: scaled(shop.products.len(), 16),
            feeds: (0..brands)
                .flat_map(|brand| std::iter::repeat_n(brand, feeds))
                .collect(),
            webhooks: kinds()
                .filter(|k| {
                    matches!(
                        k,
                        Kind::Order { .. } | Kind::Restock { .. } | Kind::Price { .. }
                    )
                })
                .count(),
            reviews: kinds().filter(|k| matches!(k, Kind::Review { .. })).count(),
        }
    }

    /// The product of the n-th card: all brands early, and all products before any comes again.
    pub fn card(&self, shop: &Shop, n: usize) -> usize {
        let len = shop.products.len();
        // A stride without a common divisor visits everything once a round.
        let mut stride = (len / 40).max(1) + 1;
        while gcd(stride, len) != 1 {
            stride += 1;
        }
        n * stride % len
    }

    /// The n-th event and its id; in a second pass over the input the same event is a new one.
    pub fn event<'a>(&self, shop: &'a Shop, n: usize) -> (String, &'a Event) {
        let event = &shop.events[n % shop.events.len()];
        match n / shop.events.len() {
            0 => (event.id.clone(), event),
            pass => (format!("{}+{pass}", event.id), event),
        }
    }
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::path::Path;

    #[test]
    fn a_small_run_still_has_work_of_every_kind() {
        let shop = Shop::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data"))).unwrap();
        let plan = Plan::new(&shop, 0.001);
        assert!(plan.webhooks > 0 && plan.reviews > 0, "{plan:?}");
        assert_eq!((plan.events, plan.cards, plan.feeds.len()), (60, 16, 18));
    }

    #[test]
    fn every_product_gets_a_card_and_the_first_ones_are_of_many_brands() {
        let shop = Shop::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data"))).unwrap();
        let plan = Plan::new(&shop, 1.0);
        let all: HashSet<_> = (0..plan.cards).map(|n| plan.card(&shop, n)).collect();
        assert_eq!(all.len(), shop.products.len());
        let brands: HashSet<_> = (0..40)
            .map(|n| shop.products[plan.card(&shop, n)].brand)
            .collect();
        assert!(brands.len() > 30, "{}", brands.len());
    }

    #[test]
    fn a_second_pass_brings_new_events() {
        let shop = Shop::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data"))).unwrap();
        let plan = Plan::new(&shop, 2.0);
        let ids: HashSet<_> = (0..plan.events).map(|n| plan.event(&shop, n).0).collect();
        assert_eq!(ids.len(), 20_000);
    }
}
