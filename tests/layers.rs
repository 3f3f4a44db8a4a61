//! The layers of ARCHITECTURE.md. A module names only modules in lower rows of the table. A crate
//! in the last column is named only in its rows. Unit tests are exempt.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn every_module_names_only_modules_below_it_and_its_own_crates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, table) = document.split_once("| module | responsibility | may name |\n").unwrap();
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('|').collect()).collect();
    let row_of = |module: &str| rows.iter().position(|row| names(row[1]).contains(&module));
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let (mut sources, mut faults) = (Vec::new(), Vec::new());
    add_sources(&root.join("src"), &mut sources);
    for path in sources {
        let file = path.strip_prefix(root.join("src")).unwrap().to_str().unwrap();
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
