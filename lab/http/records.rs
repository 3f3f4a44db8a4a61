//! Customers with a value in every field. A number makes a record, the same every time. Some words
//! are far more frequent than others.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Value, json};

#[rustfmt::skip]
const NAMES: [&str; 16] = [
    "Alder", "Birch", "Cedar", "Dogwood", "Elm", "Fir", "Gorse", "Hazel", "Ivy", "Juniper",
    "Larch", "Maple", "Oak", "Pine", "Rowan", "Spruce",
];
const TRADES: [&str; 8] =
    ["Bakery", "Garage", "Pharmacy", "Bookshop", "Brewery", "Nursery", "Foundry", "Press"];
const CITIES: [&str; 8] =
    ["Leipzig", "Kassel", "Zürich", "Graz", "Bremen", "Lyon", "Oslo", "Porto"];
#[rustfmt::skip]
const WORDS: [&str; 40] = [
    "the", "with", "and", "for", "charger", "device", "user", "office", "replaced", "battery",
    "screen", "returned", "docking", "station", "keyboard", "warranty", "repair", "ordered",
    "delivered", "invoice", "contract", "cable", "installed", "updated", "service", "checked",
    "assigned", "room", "floor", "adapter", "headset", "firmware", "encrypted", "memory",
    "workshop", "label", "display", "observation", "licence", "rack",
];

/// Numbers without order, the same for the same seed (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    /// An element of `all`, the first ones far more often than the last ones.
    fn of(&mut self, all: &[&'static str]) -> &'static str {
        let share = self.below(1 << 20) as f64 / (1 << 20) as f64;
        all[(share * share * all.len() as f64) as usize]
    }
}

/// The `n`th customer, without notes.
pub(crate) fn customer(n: u64) -> Value {
    let mut random = Random(n);
    let (name, trade) = (random.of(&NAMES), random.of(&TRADES));
    let city = random.of(&CITIES);
    let (month, day) = (1 + random.below(12), 1 + random.below(28));
    json!({
        "name": format!("{name} {trade} {city}"),
        "customer_number": format!("C-{n:07}"),
        "email": format!("{}.{n}@{}.example", name.to_lowercase(), trade.to_lowercase()),
        "phone": format!("+49 341 {:07}", random.below(10_000_000)),
        "street": format!("{name}weg {}", random.below(200)),
        "postal_code": format!("{:05}", random.below(100_000)),
        "city": city,
        "country": random.of(&["DE", "CH", "AT", "FR"]),
        "status": random.of(&["active", "inactive", "prospect"]),
        "customer_since": format!("20{:02}-{month:02}-{day:02}", random.below(26)),
    })
}

/// The `n`th customer with notes of 200 to 500 characters.
pub(crate) fn wide_customer(n: u64) -> Value {
    let mut customer = customer(n);
    customer["notes"] = notes(n).into();
    customer
}

pub(crate) fn notes(n: u64) -> String {
    let mut random = Random(!n);
    let length = 200 + random.below(300) as usize;
    let mut text = format!("Ticket {}.", random.below(1_000_000));
    while text.len() < length {
        text = text + " " + random.of(&WORDS);
    }
    text
}

/// Writes the records 0 to `count` as JSON Lines.
pub(crate) fn write(path: &Path, count: u64, record: impl Fn(u64) -> Value) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for n in 0..count {
        writeln!(file, "{}", record(n))?;
    }
    file.flush()
}
