//! What the shop sells and what its customers say: the vocabulary behind the shipped data.
//!
//! The goods are in `words.txt`, whose first line explains its form.

/// One shelf of the shop.
#[derive(Debug)]
pub struct Shelf {
    pub name: &'static str,
    pub care: Vec<&'static str>,
    pub goods: Vec<Good>,
}

/// One kind of thing on a shelf.
#[derive(Debug)]
pub struct Good {
    pub noun: &'static str,
    /// Prices, in whole currency units, from and to.
    pub price: (usize, usize),
    pub materials: Vec<&'static str>,
    pub sizes: Vec<&'static str>,
    pub merits: Vec<&'static str>,
}

/// Reads `words.txt`. It is part of the program, so that a mistake in it is a mistake in the program.
pub fn shelves() -> Vec<Shelf> {
    let list = |text: &'static str| text.split(';').map(str::trim).collect::<Vec<_>>();
    let mut shelves: Vec<Shelf> = Vec::new();
    for line in include_str!("words.txt")
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
    {
        let mut parts = line.trim_start_matches("# ").split(" | ");
        let mut next = || parts.next().expect("words.txt: a column is missing");
        if line.starts_with('#') {
            shelves.push(Shelf {
                name: next(),
                care: list(next()),
                goods: Vec::new(),
            });
        } else {
            let noun = next();
            let (low, high) = next()
                .split_once('-')
                .expect("words.txt: prices are low-high");
            let number = |text: &str| text.parse().expect("words.txt: a price is a number");
            let price = (number(low), number(high));
            let good = Good {
                noun,
                price,
                materials: list(next()),
                sizes: list(next()),
                merits: list(next()),
            };
            shelves
                .last_mut()
                .expect("words.txt: a shelf comes before its goods")
                .goods
                .push(good);
        }
    }
    shelves
}

/// A maker: its name, its three letters in every sku, and the shelves it fills.
#[derive(Debug)]
pub struct Brand {
    pub name: &'static str,
    pub code: &'static str,
    pub lines: &'static [&'static str],
    /// Positions in [`shelves`].
    pub shelves: &'static [usize],
}

pub const BRANDS: [Brand; 40] = [
    Brand {
        name: "Alder & Finch",
        code: "ALD",
        lines: &["Wren", "Hollow", "Copse"],
        shelves: &[9, 4],
    },
    Brand {
        name: "Bramblecroft",
        code: "BRA",
        lines: &["Hedge", "Sorrel", "Thistle"],
        shelves: &[6],
    },
    Brand {
        name: "Caldera",
        code: "CAL",
        lines: &["Basalt", "Ember", "Fumarole"],
        shelves: &[0, 4],
    },
    Brand {
        name: "Drift Theory",
        code: "DRI",
        lines: &["Eddy", "Swell", "Tidal"],
        shelves: &[7, 10],
    },
    Brand {
        name: "Eskdale Works",
        code: "ESK",
        lines: &["Foundry", "Gantry", "Rivet"],
        shelves: &[1],
    },
    Brand {
        name: "Fjordlys",
        code: "FJO",
        lines: &["Nord", "Skumring", "Vinter"],
        shelves: &[1, 9],
    },
    Brand {
        name: "Gannet Cycles",
        code: "GAN",
        lines: &["Causeway", "Headwind", "Paceline"],
        shelves: &[3],
    },
    Brand {
        name: "Hollis Audio",
        code: "HOL",
        lines: &["Cadence", "Overtone", "Reverie"],
        shelves: &[2],
    },
    Brand {
        name: "Inkwell Press",
        code: "INK",
        lines: &["Folio", "Margin", "Quarto"],
        shelves: &[5],
    },
    Brand {
        name: "Juniper Lane",
        code: "JUN",
        lines: &["Berry", "Gin", "Needle"],
        shelves: &[0, 6],
    },
    Brand {
        name: "Kestrel Gear",
        code: "KES",
        lines: &["Hover", "Stoop", "Talon"],
        shelves: &[7],
    },
    Brand {
        name: "Larkspur",
        code: "LAR",
        lines: &["Meadow", "Petal", "Spire"],
        shelves: &[9],
    },
    Brand {
        name: "Marlow Time",
        code: "MAR",
        lines: &["Escapement", "Meridian", "Regulator"],
        shelves: &[11],
    },
    Brand {
        name: "Northbound",
        code: "NOR",
        lines: &["Col", "Moraine", "Ridge"],
        shelves: &[7, 3],
    },
    Brand {
        name: "Ostrava Glass",
        code: "OST",
        lines: &["Bohem", "Kobalt", "Perla"],
        shelves: &[0, 1],
    },
    Brand {
        name: "Pebble & Pine",
        code: "PEB",
        lines: &["Cone", "Shingle", "Twig"],
        shelves: &[8],
    },
    Brand {
        name: "Quillfeather",
        code: "QUI",
        lines: &["Barb", "Down", "Vane"],
        shelves: &[5, 10],
    },
    Brand {
        name: "Rookery",
        code: "ROO",
        lines: &["Corvid", "Jackdaw", "Magpie"],
        shelves: &[10],
    },
    Brand {
        name: "Saltmarsh",
        code: "SAL",
        lines: &["Estuary", "Samphire", "Tern"],
        shelves: &[4],
    },
    Brand {
        name: "Tallow & Wick",
        code: "TAL",
        lines: &["Beacon", "Lantern", "Taper"],
        shelves: &[1],
    },
    Brand {
        name: "Umbra Studio",
        code: "UMB",
        lines: &["Eclipse", "Penumbra", "Shade"],
        shelves: &[1, 11],
    },
    Brand {
        name: "Verdigris",
        code: "VER",
        lines: &["Copperleaf", "Moss", "Patina"],
        shelves: &[6, 4],
    },
    Brand {
        name: "Wayfarer",
        code: "WAY",
        lines: &["Byway", "Milestone", "Pilgrim"],
        shelves: &[10, 7],
    },
    Brand {
        name: "Yarrow Mill",
        code: "YAR",
        lines: &["Bobbin", "Heddle", "Shuttle"],
        shelves: &[9],
    },
    Brand {
        name: "Zephyr Audio",
        code: "ZEP",
        lines: &["Breeze", "Gust", "Sirocco"],
        shelves: &[2],
    },
    Brand {
        name: "Anvil & Oak",
        code: "ANV",
        lines: &["Forge", "Hammer", "Tenon"],
        shelves: &[4],
    },
    Brand {
        name: "Bellwether",
        code: "BEL",
        lines: &["Chime", "Fold", "Shepherd"],
        shelves: &[11, 8],
    },
    Brand {
        name: "Copperline",
        code: "COP",
        lines: &["Ingot", "Still", "Wire"],
        shelves: &[0],
    },
    Brand {
        name: "Dovetail",
        code: "DOV",
        lines: &["Joiner", "Mitre", "Spline"],
        shelves: &[8, 5],
    },
    Brand {
        name: "Elmstead",
        code: "ELM",
        lines: &["Avenue", "Canopy", "Leaf"],
        shelves: &[6],
    },
    Brand {
        name: "Foxglove",
        code: "FOX",
        lines: &["Bell", "Digitalis", "Dusk"],
        shelves: &[9, 10],
    },
    Brand {
        name: "Greywacke",
        code: "GRE",
        lines: &["Outcrop", "Scree", "Tor"],
        shelves: &[7],
    },
    Brand {
        name: "Halyard",
        code: "HAL",
        lines: &["Cleat", "Jib", "Spinnaker"],
        shelves: &[10],
    },
    Brand {
        name: "Ironbark",
        code: "IRO",
        lines: &["Billet", "Grove", "Resin"],
        shelves: &[4, 6],
    },
    Brand {
        name: "Kilnhouse",
        code: "KIL",
        lines: &["Bisque", "Celadon", "Slip"],
        shelves: &[0],
    },
    Brand {
        name: "Lodestar",
        code: "LOD",
        lines: &["Azimuth", "Polaris", "Zenith"],
        shelves: &[11],
    },
    Brand {
        name: "Merrow",
        code: "MER",
        lines: &["Kelp", "Pearl", "Selkie"],
        shelves: &[2, 8],
    },
    Brand {
        name: "Papermoon",
        code: "PAP",
        lines: &["Crescent", "Gibbous", "Waxing"],
        shelves: &[5],
    },
    Brand {
        name: "Slipstream",
        code: "SLI",
        lines: &["Breakaway", "Echelon", "Sprint"],
        shelves: &[3],
    },
    Brand {
        name: "Thornfield",
        code: "THO",
        lines: &["Attic", "Moor", "Rochester"],
        shelves: &[8, 9],
    },
];

pub const COLOURS: [(&str, &str); 14] = [
    ("Ink Blue", "#27425f"),
    ("Moss", "#5f7043"),
    ("Terracotta", "#b95f3f"),
    ("Sand", "#c9ae83"),
    ("Charcoal", "#3c4043"),
    ("Cream", "#d9cbb0"),
    ("Rust", "#94472a"),
    ("Sage", "#8a9f86"),
    ("Plum", "#6b3d5b"),
    ("Ochre", "#c08a2e"),
    ("Sky", "#6fa0c0"),
    ("Rose", "#c27f86"),
    ("Pine", "#2f5747"),
    ("Slate", "#66727f"),
];

/// What customers write, by how many stars they give: 1 and 2, 3, 4 and 5. `{}` is the thing they bought.
pub const REVIEWS: [&[&str]; 3] = [
    &[
        "The {} broke after two weeks and the seam was crooked from the start.",
        "Disappointing. The {} looks cheap next to the picture, and it arrived scratched.",
        "Sent the {} back: it wobbles, and the lid does not close.",
        "The {} leaks. Support was slow and the replacement was damaged too.",
        "Far too small for the price, and the finish on the {} is already flaking.",
    ],
    &[
        "The {} is fine. Does what it says, nothing more.",
        "Good {}, but delivery was slow and the box was damaged.",
        "The {} is sturdy, although the colour is darker than in the picture.",
        "Decent {} for the money. The handle could be better.",
    ],
    &[
        "Love this {}. Beautiful, sturdy, and it arrived a day early.",
        "The {} is perfect: well made, and even better than the picture.",
        "Bought a second {} for my sister. Excellent quality and lovely colour.",
        "Exactly what I hoped for. The {} feels solid and works beautifully.",
        "A beautiful {}, great value. I use it every day.",
        "Great {}, careful packaging, fast delivery. Would buy again.",
    ],
];
