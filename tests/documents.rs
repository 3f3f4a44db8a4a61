//! The documents agree with the service and its code: the table of errors in `docs/api.md`, the paths
//! of files, and the layers of ARCHITECTURE.md.

use std::fs;
use std::path::{Path, PathBuf};

use tenantdesk::http::ErrorCode;
use tenantdesk::model::FieldCode;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
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

/// Code and status of a row `| number | check | code | status | also |`.
fn error_code(row: &str) -> Option<(&str, u16)> {
    let cells: Vec<&str> = row.strip_prefix('|')?.split('|').map(str::trim).collect();
    let [_, _, code, status, ..] = cells.as_slice() else { return None };
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
    listed.dedup(); // several checks have the code `bad_request`
    catalogue.sort_unstable();
    assert_eq!(listed, catalogue);
}

#[test]
fn the_contract_lists_the_codes_of_fields() {
    let section = errors_section();
    let line = section.iter().find(|line| line.starts_with("The field codes are: ")).unwrap();
    assert_eq!(code_spans(line), FieldCode::ALL.map(FieldCode::as_str));
}

/// The documents that name files of the repository.
const DOCUMENTS: &str = "
    ARCHITECTURE.md CONTRIBUTING.md README.md SECURITY.md lab/README.md docs/api.md
    docs/commands.md docs/decisions.md docs/operations.md docs/recovery.md release/README.md
    lab/results.md tests/README.md
";

/// The paths in `text`: words with a slash that end like a source file or document. A path of the
/// service, such as `/docs/api.md`, is none. So is one below `src/`: whoever moves a module changes
/// no page because of a test.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-".contains(c)));
    let is_inside = |word: &str| {
        let folder = word.trim_start_matches("src/").split('/').next().unwrap();
        root().join("src").join(folder).exists()
    };
    words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.contains('/') && !word.starts_with('/'))
        .filter(|word| word.ends_with(".rs") || word.ends_with(".md"))
        .filter(move |word| !is_inside(word))
}

#[test]
fn the_documents_name_files_that_exist() {
    let mut found = 0;
    for document in DOCUMENTS.split_whitespace() {
        let text = read(document);
        let directory = root().join(document).parent().unwrap().to_owned();
        let bases = [root().to_owned(), root().join("tests"), directory];
        for path in paths(&text) {
            assert!(bases.iter().any(|base| base.join(path).exists()), "{document} names {path}");
            found += 1;
        }
    }
    assert!(found > 50, "paths are recognised: {found}");
}

/// The Rust files below `directory`, except files of unit tests.
fn add_sources(directory: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_sources(&path, sources);
        } else if path.extension().is_some_and(|end| end == "rs")
            && !path.to_str().unwrap().ends_with("tests.rs")
        {
            sources.push(path);
        }
    }
}

/// The names in a cell: `api/` is `api`, and `clock.rs` is `clock`.
fn names(cell: &str) -> Vec<&str> {
    let names = cell.split(", ").map(|name| name.trim_matches(['`', ' ', '/']));
    names.map(|name| name.trim_end_matches(".rs")).collect()
}

/// A module names only modules in lower rows of the table. A crate in the last column is named only
/// in its rows. Unit tests are exempt.
#[test]
fn every_module_names_only_modules_below_it_and_its_own_crates() {
    let document = read("ARCHITECTURE.md");
    let (_, table) = document.split_once("| module | responsibility | may name |\n").unwrap();
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('|').collect()).collect();
    let row_of = |module: &str| rows.iter().position(|row| names(row[1]).contains(&module));
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut sources, mut faults) = (Vec::new(), Vec::new());
    add_sources(&root().join("src"), &mut sources);
    for path in sources {
        let file = path.strip_prefix(root().join("src")).unwrap().to_str().unwrap();
        let module = file.split(['/', '.']).next().unwrap();
        let own = row_of(module).unwrap_or_else(|| panic!("{file} is not in the table"));
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for used in line.split("crate::").skip(1) {
                let used = used.split(|letter| !is_word(letter)).next().unwrap();
                if used != module && row_of(used).is_none_or(|row| row <= own) {
                    faults.push(format!("{file} names `{used}`, which is not below it: {line}"));
                }
            }
            for name in rows.iter().flat_map(|row| names(row[3])).filter(|name| !name.is_empty()) {
                let path = format!("{}::", name.replace('-', "_"));
                let found =
                    line.split_once(&path).is_some_and(|(before, _)| !before.ends_with(is_word));
                if found && !names(rows[own][3]).contains(&name) {
                    faults.push(format!("{file} names the crate `{name}`: {line}"));
                }
            }
            let is_top = file == format!("{module}/mod.rs");
            if line.contains(if is_top { "super::" } else { "super::super::" }) {
                faults.push(format!("{file} reaches upward; begin the path with `crate`: {line}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
