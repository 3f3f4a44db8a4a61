//! The documents agree with the service: the table of errors in `docs/api.md`, and the paths of
//! files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use tenantdesk::http::ErrorCode;
use tenantdesk::model::FieldCode;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The lines of section 6 of the contract.
fn errors_section() -> Vec<String> {
    let text = read("docs/api.md");
    let section = text.lines().skip_while(|line| *line != "## 6. Errors").skip(1);
    section.take_while(|line| !line.starts_with("## ")).map(str::to_owned).collect()
}

/// Returns each text in backticks in `text`.
fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Code and status of a row `| number | code | status | also |` or `| code | status | also |`.
fn error_code(row: &str) -> Option<(&str, u16)> {
    let cells: Vec<&str> = row.strip_prefix('|')?.split('|').map(str::trim).collect();
    let rest = if cells.first()?.starts_with('`') { cells.as_slice() } else { cells.get(1..)? };
    let [code, status, ..] = rest else { return None };
    Some((code.strip_prefix('`')?.strip_suffix('`')?, status.parse().ok()?))
}

#[test]
fn the_contract_lists_the_conditions_of_the_catalogue() {
    let text = read("docs/api.md");
    let mut listed: Vec<(&str, u16)> = text.lines().filter_map(error_code).collect();
    let mut catalogue: Vec<(&str, u16)> = ErrorCode::all()
        .map(ErrorCode::describe)
        .map(|described| (described.code, described.status))
        .collect();
    listed.sort_unstable();
    catalogue.sort_unstable();
    assert_eq!(listed, catalogue);
}

#[test]
fn the_contract_lists_the_codes_of_fields() {
    let section = errors_section();
    let line = section.iter().find(|line| line.starts_with("The field codes are: ")).unwrap();
    assert_eq!(code_spans(line), FieldCode::ALL.map(|(code, _)| code.as_str()));
}

/// The documents that name files of the repository.
const DOCUMENTS: [&str; 17] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "lab/README.md",
    "docs/api.md",
    "docs/commands.md",
    "docs/decisions.md",
    "docs/operations.md",
    "docs/recovery.md",
    "release/README.md",
    "lab/results.md",
    "schema.sql",
    "src/store/registry/schema.sql",
    "tests/README.md",
    "tests/crash/README.md",
    "tests/fixtures/README.md",
];

/// Returns the paths in `text`. A word is a path if it begins with `src/`, or if it contains a
/// slash and ends like a source file or document. A path of the service, such as `/docs/api.md`, is
/// none.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)));
    let is_source = |word: &str| [".rs", ".md", "schema.sql"].iter().any(|end| word.ends_with(end));
    words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| !word.starts_with('/'))
        .filter(move |word| word.starts_with("src/") || word.contains('/') && is_source(word))
}

#[test]
fn the_documents_name_files_that_exist() {
    for document in DOCUMENTS {
        let text = read(document);
        let directory = root().join(document).parent().unwrap().to_owned();
        let bases = [root().to_owned(), root().join("src"), root().join("tests"), directory];
        for path in paths(&text) {
            assert!(bases.iter().any(|base| base.join(path).exists()), "{document} names {path}");
        }
    }
    assert!(paths(&read("schema.sql")).any(|path| path == "src/model"), "paths are recognised");
}
