//! Records of real width: every field has a value, notes have some hundred characters, and values
//! are as unevenly frequent as in a real inventory. A number makes a record, the same every time.

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::data::Customer;

#[rustfmt::skip]
const FIRST_NAMES: [&str; 32] = [
    "Anna", "Peter", "Maria", "Thomas", "Eva", "Michael", "Sabine", "Stefan", "Julia", "Andreas",
    "Petra", "Christian", "Claudia", "Martin", "Laura", "Jan", "Katharina", "Lukas", "Sofia",
    "Jonas", "Ayşe", "Mehmet", "Zoé", "Luc", "Agnieszka", "Piotr", "Svetlana", "Ivan", "Ingrid",
    "Øyvind", "Chiara", "Matteo",
];
#[rustfmt::skip]
const LAST_NAMES: [&str; 32] = [
    "Müller", "Schmidt", "Schneider", "Fischer", "Weber", "Meyer", "Wagner", "Becker", "Schulz",
    "Hoffmann", "Koch", "Bauer", "Richter", "Klein", "Wolf", "Schröder", "Neumann", "Schwarz",
    "Braun", "Zimmermann", "Krüger", "Hartmann", "Yılmaz", "Kowalski", "Rossi", "Dubois",
    "Petrov", "Lindström", "Haugen", "Novák", "Horváth", "García",
];
#[rustfmt::skip]
const DEPARTMENTS: [&str; 10] = [
    "Sales", "Service", "Accounting", "Warehouse", "Production", "Purchasing", "Human Resources",
    "Development", "Marketing", "Management",
];
/// A manufacturer, the type of the device, a model, and how its serial numbers begin.
const MODELS: [(&str, &str, &str, &str); 20] = [
    ("Lenovo", "laptop", "ThinkPad T14 Gen 4", "PF"),
    ("Dell", "laptop", "Latitude 5440", "7H"),
    ("HP", "laptop", "EliteBook 840 G10", "5CG"),
    ("Lenovo", "desktop", "ThinkCentre M70q", "MJ0"),
    ("Dell", "monitor", "UltraSharp U2723DE", "CN-0"),
    ("Apple", "phone", "iPhone 15", "F2L"),
    ("Samsung", "monitor", "ViewFinity S80", "0PX"),
    ("Samsung", "phone", "Galaxy A54", "R5C"),
    ("Logitech", "peripheral", "MX Keys", "2240SC"),
    ("Apple", "laptop", "MacBook Air M3", "C02"),
    ("Fujitsu", "desktop", "Esprimo D7012", "YLN"),
    ("Brother", "printer", "HL-L6410DN", "E78"),
    ("Cisco", "network", "Catalyst 9200L", "FCW"),
    ("Jabra", "peripheral", "Evolve2 65", "26E"),
    ("HP", "printer", "LaserJet Pro 4002", "VNB"),
    ("Microsoft", "tablet", "Surface Pro 10", "0F0"),
    ("Dell", "server", "PowerEdge R660", "JX"),
    ("Fujitsu", "server", "Primergy RX2540", "MAB"),
    ("Zebra", "other", "TC58 scanner", "S22"),
    ("Ubiquiti", "network", "UniFi U7 Pro", "D8B"),
];
#[rustfmt::skip]
const WORDS: [&str; 80] = [
    "the", "with", "and", "for", "charger", "device", "user", "office", "replaced", "battery",
    "screen", "returned", "docking", "station", "keyboard", "warranty", "repair", "ordered",
    "delivered", "invoice", "contract", "cable", "new", "installed", "updated", "phone",
    "service", "checked", "cleaned", "assigned", "room", "second", "floor", "adapter", "bag",
    "mouse", "headset", "broken", "hinge", "fan", "noise", "firmware", "image", "encrypted",
    "disk", "memory", "upgrade", "spare", "loan", "until", "reception", "warehouse", "workshop",
    "home", "travel", "label", "sticker", "scratched", "cover", "display", "flickers",
    "sometimes", "reported", "supplier", "exchange", "under", "observation", "projector",
    "conference", "licence", "migrated", "profile", "printer", "driver", "toner", "drum", "port",
    "switch", "trunk", "rack",
];
/// Makers leave out what looks like another character. Nothing contains a Q and an X beside each
/// other.
const SERIAL: [char; 32] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'J',
    'K', 'L', 'M', 'N', 'P', 'R', 'S', 'T', 'U', 'V', 'W', 'X', 'Y',
];

/// Numbers without order, the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An element of `all`, the first ones far more often than the last ones.
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let share = self.below(1 << 20) as f64 / (1 << 20) as f64;
        all[(share * share * all.len() as f64) as usize]
    }

    fn date(&mut self, first_year: u64) -> String {
        format!(
            "{}-{:02}-{:02}",
            first_year + self.below(10),
            1 + self.below(12),
            1 + self.below(28)
        )
    }

    fn notes(&mut self) -> String {
        let length = 200 + self.below(300) as usize;
        let mut text =
            format!("Handed over on {} with ticket {}.", self.date(2016), self.below(1_000_000));
        while text.len() < length {
            text.push(' ');
            text.push_str(self.of(&WORDS));
        }
        text
    }
}

/// The `n`th text of some hundred characters.
pub(crate) fn notes(n: u64) -> String {
    Random(!n).notes()
}

/// The `n`th name of a device.
pub(crate) fn name(n: u64) -> String {
    let mut random = Random(!n);
    format!("{}'s {} {}", random.of(&FIRST_NAMES), random.of(&MODELS).1, random.below(1000))
}

/// The `n`th piece of hardware. It belongs to one of the employees 1 to `employees`.
pub(crate) fn hardware(n: u64, employees: u64) -> Value {
    let mut random = Random(n);
    let (manufacturer, kind, model, prefix) = random.of(&MODELS);
    let serial = random.next();
    let serial: String =
        (0..10).map(|digit| SERIAL[(serial >> (digit * 5)) as usize % 32]).collect();
    json!({
        "name": name(n),
        "employee_id": 1 + random.below(employees),
        "type": kind,
        "manufacturer": manufacturer,
        "model": model,
        "serial_number": format!("{prefix}{serial}"),
        "asset_tag": format!("A-{n:07}"),
        "status": random.of(&["in_use", "in_stock", "in_repair", "retired", "lost"]),
        "purchase_date": random.date(2015),
        "warranty_until": random.date(2020),
        "purchase_cost_cents": 5_000 + random.below(300_000),
        "is_leased": random.below(4) == 0,
        "notes": random.notes(),
    })
}

/// The `n`th employee. He works for one of the customers 1 to `customers`.
pub(crate) fn employee(n: u64, customers: u64) -> Value {
    let mut random = Random(n);
    let (first_name, last_name) = (random.of(&FIRST_NAMES), random.of(&LAST_NAMES));
    json!({
        "customer_id": 1 + random.below(customers),
        "email": format!("{}.{n}@firm-{}.example", first_name.to_lowercase().chars().filter(char::is_ascii).collect::<String>(), random.below(customers)),
        "first_name": first_name,
        "last_name": last_name,
        "phone": format!("+49 {} {:07}", 30 + random.below(900), random.below(10_000_000)),
        "department": random.of(&DEPARTMENTS),
        "job_title": format!("{} specialist", random.of(&DEPARTMENTS)),
        "is_active": random.below(10) > 0,
        "start_date": random.date(2010),
        "end_date": random.date(2027),
        "notes": random.notes(),
    })
}

/// The `n`th customer.
pub(crate) fn customer(n: u64) -> Value {
    let mut record: Value = serde_json::from_str(&Customer::nth(n).json()).expect("it is JSON");
    record["notes"] = notes(n).into();
    record
}

/// Writes the records 0 to `count` as `import` takes them.
pub(crate) fn write_csv(path: &Path, count: u64, record: impl Fn(u64) -> Value) -> io::Result<()> {
    let mut file = csv::Writer::from_path(path)?;
    for n in 0..count {
        let record = record(n);
        let fields = record.as_object().expect("it is an object");
        if n == 0 {
            file.write_record(fields.keys())?;
        }
        file.write_record(
            fields
                .values()
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        )?;
    }
    file.flush()
}
