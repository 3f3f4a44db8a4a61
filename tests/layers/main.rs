//! The layers of ARCHITECTURE.md: which module uses which, and which crate is named where.
//!
//! The order of the rows in the table of modules is the layering: a module uses only modules below
//! it. A crate that a row lists is named in the rows that list it and nowhere else. Unit tests are
//! exempt.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod cycles;
mod source;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use source::Source;
use table::Table;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

fn table() -> Table {
    Table::parse(&read("ARCHITECTURE.md"))
}

/// The Rust files below `directory`.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Every source file that is shipped, that is, without the files of unit tests.
fn sources() -> Vec<Source> {
    let directory = root().join("src");
    let paths = rust_files(&directory)
        .into_iter()
        .map(|path| path.strip_prefix(&directory).unwrap().to_owned());
    let shipped = paths.filter(|path| !path.to_str().unwrap().ends_with("tests.rs"));
    shipped
        .map(|path| Source::parse(&path, &fs::read_to_string(directory.join(&path)).unwrap()))
        .collect()
}

/// The modules directly below `src`.
fn modules() -> Vec<String> {
    let entries = fs::read_dir(root().join("src")).unwrap().map(|entry| entry.unwrap().path());
    let is_module = |path: &PathBuf| {
        path.is_dir() || path.extension().is_some_and(|extension| extension == "rs")
    };
    let mut modules: Vec<String> = entries
        .filter(is_module)
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    modules.sort();
    modules
}

#[test]
fn the_table_lists_every_module_once() {
    let mut listed: Vec<String> = table().modules().map(str::to_owned).collect();
    listed.sort();
    assert_eq!(listed, modules());
}

#[test]
fn the_table_lists_crates_that_are_dependencies() {
    let manifest = read("Cargo.toml");
    let table = table();
    let unknown: Vec<&str> =
        table.crates().filter(|name| !manifest.contains(&format!("\n{name} = "))).collect();
    assert!(unknown.is_empty(), "no dependencies: {unknown:?}");
}

#[test]
fn every_module_uses_only_modules_below_it_and_its_own_crates() {
    let table = table();
    let violations: Vec<String> =
        sources().iter().flat_map(|source| table.violations(source)).collect();
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn the_files_of_a_directory_form_no_cycle() {
    let sources = sources();
    let directories: BTreeSet<&[String]> = sources
        .iter()
        .flat_map(|source| (1..source.module.len()).map(|depth| &source.module[..depth]))
        .collect();
    for directory in directories {
        let cycles = cycles::within(directory, &sources);
        assert!(cycles.is_empty(), "{directory:?}: {cycles:#?}");
    }
}

/// A table of three layers, to show that a violation is found.
const EXAMPLE: &str = "
| module | responsibility | may name |
|---|---|---|
| `api/` | the API | governor |
| `store/` | the databases | rusqlite, r2d2 |
| `clock.rs`, `secret.rs` | foundations | tokio-rustls |

Text after the table.
";

#[track_caller]
fn check(path: &str, text: &str, expected: &[&str]) {
    let source = Source::parse(Path::new(path), text);
    assert_eq!(Table::parse(EXAMPLE).violations(&source), expected, "{text}");
}

#[test]
fn what_the_table_allows_is_no_violation() {
    check("api/mod.rs", "use crate::store::{Tenant, writer::Writer};\nuse governor::Quota;", &[]);
    check(
        "store/writer.rs",
        "use super::tenants;\nuse crate::clock;\nuse serde_json::Value;\nuse rusqlite::params;",
        &[],
    );
    check(
        "store/mod.rs",
        "// crate::api::answer\n/// [`crate::api`]\nconst TEXT: &str = \"crate::api::answer\";",
        &[],
    );
    check("store/mod.rs", "#[cfg(test)]\nmod tests { use crate::api::answer; }\n", &[]);
    check(
        "store/mod.rs",
        "#[cfg(test)]\n#[path = \"x.rs\"]\nmod x;\n#[cfg(test)]\nfn a() { crate::api::answer() }",
        &[],
    );
}

#[test]
fn a_use_of_a_module_above_is_a_violation() {
    let upward = ["store/writer.rs uses `api`, which is not below it"];
    check("store/writer.rs", "use crate::api::answer;", &upward);
    check("store/writer.rs", "use crate::{clock, api::{self, answer}};", &upward);
    check("store/writer.rs", "use super::super::api;", &upward);
    check("store/writer.rs", "fn a() { crate::api::answer() }", &upward);
    check("store/writer.rs", "fn a() { println!(\"{}\", crate::api::answer()) }", &upward);
    check("store/writer.rs", "fn a(x: Vec<&'static crate::api::Answer>) {}", &upward);
    check("store/writer.rs", "#[cfg(test)]\nmod tests {}\nuse crate::api;", &upward);
    check("clock.rs", "use crate::secret;", &["clock.rs uses `secret`, which is not below it"]);
    check("lib.rs", "", &["lib.rs is not in the table"]);
}

#[test]
fn a_crate_of_another_module_is_a_violation() {
    let foreign = ["api/list.rs names the crate `rusqlite`"];
    check("api/list.rs", "use rusqlite::Connection;", &foreign);
    check("api/list.rs", "use {governor::Quota, rusqlite as sql};", &foreign);
    check("api/list.rs", "fn a() -> ::rusqlite::Result<()> { Ok(()) }", &foreign);
    check("api/list.rs", "#[derive(rusqlite::Derived)] struct A;", &foreign);
    check(
        "store/mod.rs",
        "use tokio_rustls::rustls;",
        &["store/mod.rs names the crate `tokio-rustls`"],
    );
}

#[test]
fn a_cycle_between_files_is_found() {
    let parse = |path: &str, text: &str| Source::parse(Path::new(path), text);
    let within = |directory: &str, sources: &[Source]| {
        let path: Vec<String> = directory.split('/').map(str::to_owned).collect();
        cycles::within(&path, sources)
    };
    let root = parse("store/mod.rs", "mod a; mod b; mod c; pub use a::First;");
    let (a, c) =
        (parse("store/a.rs", "use super::b::Second;"), parse("store/c/mod.rs", "use super::a;"));
    let b = parse("store/b.rs", "use crate::store::c;");
    assert_eq!(within("store", &[root, a, b, c]), [["a", "b", "c"]]);
    let root = parse("store/mod.rs", "mod a; mod b; pub use a::First;");
    let (a, b) =
        (parse("store/a.rs", "use super::b::Second;"), parse("store/b.rs", "use super::First;"));
    assert_eq!(within("store", &[root, a, b]), [["a", "b"]], "a re-export is its file");
    let a = parse("store/keys/a.rs", "use super::b::Second;");
    let b = parse("store/keys/b.rs", "use crate::store::keys::a;");
    assert_eq!(within("store/keys", &[a, b]), [["a", "b"]]);
}

#[test]
fn no_file_is_a_collection_of_leftovers() {
    for directory in ["src", "tests"] {
        for path in rust_files(&root().join(directory)) {
            let is_leftovers = path.components().any(|part| {
                let name =
                    Path::new(part.as_os_str()).file_stem().unwrap_or_default().to_str().unwrap();
                ["utils", "util", "helpers", "common", "manager", "misc"].contains(&name)
            });
            assert!(!is_leftovers, "{}", path.display());
        }
    }
}
