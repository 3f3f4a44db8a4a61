//! The documents agree with the service: the tables of errors in `docs/contract.md`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use tenantdesk::http::condition::CATALOGUE;
use tenantdesk::model::FieldCode;

fn contract() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/contract.md");
    std::fs::read_to_string(path).unwrap()
}

/// The lines of section 6 of the contract.
fn errors_section() -> Vec<String> {
    let text = contract();
    let section = text.lines().skip_while(|line| *line != "## 6. Errors").skip(1);
    section.take_while(|line| !line.starts_with("## ")).map(str::to_owned).collect()
}

/// What stands in backticks in `text`.
fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Code and status of a row `| number | code | status | also |`, or `| code | status | also |` of a later section.
fn condition(row: &str) -> Option<(&str, u16)> {
    let cells: Vec<&str> = row.strip_prefix('|')?.split('|').map(str::trim).collect();
    let is_code = |cell: &str| cell.len() > 2 && cell.starts_with('`') && cell.ends_with('`');
    let (code, status) = cells.iter().zip(cells.iter().skip(1)).find(|(cell, _)| is_code(cell))?;
    Some((code.trim_matches('`'), status.parse().ok()?))
}

#[test]
fn the_contract_lists_the_conditions_of_the_catalogue() {
    let text = contract();
    let mut listed: Vec<(&str, u16)> = text.lines().filter_map(condition).collect();
    let mut catalogue: Vec<(&str, u16)> =
        CATALOGUE.iter().map(|described| (described.code, described.status)).collect();
    listed.sort_unstable();
    catalogue.sort_unstable();
    assert_eq!(listed, catalogue);
}

#[test]
fn the_contract_lists_the_codes_of_fields() {
    let section = errors_section();
    let line = section.iter().find(|line| line.starts_with("Field codes, exactly these: ")).unwrap();
    assert_eq!(code_spans(line), FieldCode::ALL.map(|(code, _)| code.as_str()));
}
