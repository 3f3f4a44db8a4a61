//! The records: a number makes a piece of hardware, the same every time, about 500 bytes as JSON.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use jiff::ToSpan as _;
use jiff::civil::{Date, date};
use tenantdesk::model::{HARDWARE, Kind};

/// Every column that a list can be sorted by, but the timestamps, which all records have in common.
pub(crate) const COLUMNS: [&str; 14] = [
    "id",
    "name",
    "employee_id",
    "customer_id",
    "type",
    "manufacturer",
    "model",
    "serial_number",
    "asset_tag",
    "status",
    "purchase_date",
    "warranty_until",
    "purchase_cost_cents",
    "is_leased",
];

/// The custom fields.
pub(crate) const CUSTOM: [&str; 5] =
    ["custom.contract", "custom.mac", "custom.os", "custom.room", "custom.socket"];

/// Employees that hardware belongs to.
pub(crate) const EMPLOYEES: i64 = 100;

const MAKERS: [&str; 8] =
    ["Lenovo", "Dell", "Fujitsu", "Apple", "Cisco", "Samsung", "Brother", "Jabra"];
const SYSTEMS: [&str; 4] = ["Debian 13", "Windows 11", "macOS 26", "none"];
const USES: [&str; 6] =
    ["office", "warehouse", "reception", "workshop", "meeting room", "home office"];

/// A value as lists sort it: null first, then numbers, then text by code point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Null,
    Integer(i64),
    Text(String),
}

impl Key {
    /// As CSV has it; null is an empty cell.
    pub(crate) fn cell(&self) -> String {
        match self {
            Key::Null => String::new(),
            Key::Integer(number) => number.to_string(),
            Key::Text(text) => text.clone(),
        }
    }
}

/// A number without order in it, below 2^32. Different `n` below 2^32 have different ones.
fn scattered(n: i64) -> i64 {
    n.wrapping_mul(2_654_435_761) & 0xFFFF_FFFF
}

fn of(words: &[&str], n: i64) -> String {
    words[usize::try_from(n).unwrap() % words.len()].to_owned()
}

/// The values that a column can have.
fn choices(column: &str) -> &'static [&'static str] {
    match HARDWARE.field(column).map(|field| field.kind) {
        Some(Kind::Choice(names)) => names,
        kind => panic!("{column} is {kind:?}"),
    }
}

fn purchase_date(n: i64) -> Option<Date> {
    (n % 17 != 0).then(|| date(2015, 1, 1) + (scattered(n) % 4_000).days())
}

/// The value of a column in the record `n`, which has the id `n`.
pub(crate) fn value(n: i64, column: &str) -> Key {
    let some = |there: bool, text: String| if there { Key::Text(text) } else { Key::Null };
    let day = |date: Option<Date>| date.map_or(Key::Null, |date| Key::Text(date.to_string()));
    match column {
        "id" => Key::Integer(n),
        "name" => Key::Text(format!("{} {} {n}", of(&MAKERS, n / 7), of(choices("type"), n))),
        "employee_id" | "customer_id" if n % (EMPLOYEES + 1) == 0 => Key::Null,
        "employee_id" => Key::Integer(n % (EMPLOYEES + 1)),
        // All employees are the first customer's.
        "customer_id" => Key::Integer(1),
        "type" => Key::Text(of(choices("type"), n)),
        "manufacturer" => some(n % 11 != 0, of(&MAKERS, n / 7)),
        "model" => some(n % 13 != 0, format!("{} {}", of(&MAKERS, n / 7), scattered(n) % 5_000)),
        "serial_number" => Key::Text(format!("SN-{:08X}", scattered(n))),
        "asset_tag" => Key::Text(format!("AT{n:07}")),
        "status" => Key::Text(of(choices("status"), n / 3)),
        "purchase_date" => day(purchase_date(n)),
        "warranty_until" => {
            day(purchase_date(n).filter(|_| n % 5 != 0).map(|date| date + 3.years()))
        }
        "purchase_cost_cents" if n % 23 == 0 => Key::Null,
        "purchase_cost_cents" => Key::Integer(scattered(n) % 300_000),
        "is_leased" => Key::Integer(i64::from(n % 3 == 0)),
        "notes" => Key::Text(format!(
            "Bought for the {}, handed over with charger, bag and docking station; contract {}",
            of(&USES, n / 5),
            scattered(n) % 10_000
        )),
        "custom.contract" => some(n % 3 != 0, format!("V-{}", scattered(n) % 10_000)),
        "custom.mac" => some(n % 19 != 0, format!("{:012x}", scattered(n) << 8)),
        "custom.os" => some(n % 7 != 0, of(&SYSTEMS, n / 11)),
        "custom.room" => some(n % 9 != 0, format!("{}.{}", n % 5, n % 97)),
        "custom.socket" => some(n % 4 != 0, (n % 2_000).to_string()),
        other => panic!("there is no column {other}"),
    }
}

/// Writes records 1 to `count` as `import` takes them.
pub(crate) fn write_csv(path: &Path, count: i64) {
    let columns: Vec<&str> = COLUMNS.into_iter().chain(["notes"]).chain(CUSTOM).collect();
    let mut file = BufWriter::new(File::create_new(path).unwrap());
    writeln!(file, "{}", columns.join(",")).unwrap();
    for n in 1..=count {
        // The notes have commas.
        let cells: Vec<String> =
            columns.iter().map(|column| format!("\"{}\"", value(n, column).cell())).collect();
        writeln!(file, "{}", cells.join(",")).unwrap();
    }
    file.flush().unwrap();
}
