//! The OpenAPI document: `golden/interface.txt` shows each change since the last release, and no
//! promise of that release is gone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod interface;

use std::collections::BTreeSet;
use std::path::Path;

use interface::lines;
use serde_json::Value;
use tenantdesk::reference::openapi;

/// The lines that are gone since the last release, and why each of them may be.
const ANNOUNCED: [(&str, &str); 11] = [
    ("GET /changes.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    ("GET /customers.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    ("GET /employees.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    ("GET /hardware.php query cursor: string, maxLength 2048, minLength 1", "may be empty"),
    (
        r#"BatchOperation.path: string, pattern "^(/v1)?(/customers\\.php|/employees\\.php|/hardware\\.php)(\\?id=[1-9][0-9]*)?$""#,
        "may have `update_by`",
    ),
    ("Customer.email: string or null, email, maxLength 254, always", "is `idn-email`"),
    ("CustomerCreate.email: string or null, email, maxLength 254", "is `idn-email`"),
    ("CustomerUpdate.email: string or null, email, maxLength 254", "is `idn-email`"),
    ("Employee.email: string, email, maxLength 254, always", "is `idn-email`"),
    ("EmployeeCreate.email: string, email, maxLength 254", "is `idn-email`"),
    ("EmployeeUpdate.email: string, email, maxLength 254", "is `idn-email`"),
];

/// Renewed by `UPDATE_GOLDEN=1 cargo test --test openapi`. A line with `+` is new since the last
/// release, and a line with `-` is gone.
#[test]
fn the_golden_file_shows_the_changes_since_the_last_release() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/interface.txt");
    let golden = std::fs::read_to_string(&path).unwrap();
    let released = golden.lines().filter(|line| !line.starts_with('+'));
    let released: BTreeSet<String> = released.map(|line| line[2..].to_owned()).collect();
    let current = lines(&document());
    let mark = |line: &String| match (released.contains(line), current.contains(line)) {
        (true, true) => ' ',
        (true, false) => '-',
        (false, _) => '+',
    };
    let all = released.union(&current).map(|line| format!("{} {line}\n", mark(line)));
    let now = all.collect::<String>();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
    } else if let Some((old, new)) = golden.lines().zip(now.lines()).find(|(old, new)| old != new) {
        panic!(
            "tests/golden/interface.txt has {old:?} in place of {new:?}. \
             UPDATE_GOLDEN=1 cargo test --test openapi renews the file. \
             Its diff is the change of the interface."
        );
    } else {
        assert_eq!(golden, now);
    }
    let gone: BTreeSet<&str> = released.difference(&current).map(String::as_str).collect();
    let announced = BTreeSet::from(ANNOUNCED.map(|(line, _)| line));
    assert_eq!(gone, announced, "section 16 of the contract lets nothing else go");
}

fn document() -> Value {
    serde_json::from_str(&openapi::JSON).unwrap()
}
