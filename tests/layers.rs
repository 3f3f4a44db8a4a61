//! The house rules that the sources keep: what may be named where, and that no layer calls upward (ARCHITECTURE.md).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

/// A source file: its path below the folder asked for, and its lines without comments and unit tests.
struct Source {
    path: String,
    code: String,
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(rust_files(&path)),
            false if path.extension().is_some_and(|extension| extension == "rs") => found.push(path),
            false => (),
        }
    }
    found
}

/// Whether the line is a comment and nothing else: prose may name what it likes.
fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        // What a unit test reaches for is no layer's business.
        let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: Vec<&str> = shipped.lines().filter(|line| !is_comment(line)).collect();
        let path = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        Source { path, code: code.join("\n") }
    };
    let files = rust_files(&root);
    assert!(files.len() > 3, "the sources are where they are looked for");
    files.into_iter().filter(|path| !path.ends_with("schema_tests.rs")).map(read).collect()
}

/// Whether `word` stands in `code` as a word of its own.
fn names(code: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[test]
fn each_outside_library_is_named_in_its_place_alone() {
    let homes: [(&str, &[&str]); 19] = [
        ("tiny_http", &["http/"]),
        ("rusqlite", &["store/"]),
        ("r2d2", &["store/"]),
        ("r2d2_sqlite", &["store/"]),
        ("scheduled_thread_pool", &["store/"]),
        ("hyper", &["edge/"]),
        ("hyper_util", &["edge/"]),
        ("http_body_util", &["edge/"]),
        ("tokio", &["edge/"]),
        ("tokio_rustls", &["edge/"]),
        ("rustls", &["edge/"]),
        ("socket2", &["edge/"]),
        ("clap", &["cli/", "main.rs"]),
        ("clap_complete", &["cli/"]),
        ("clap_mangen", &["cli/"]),
        ("anyhow", &["cli/", "main.rs"]),
        ("comfy_table", &["cli/"]),
        ("indicatif", &["cli/"]),
        ("askama", &["panel/", "reference/docs/"]),
    ];
    let mut strays = Vec::new();
    for source in sources("src") {
        for (library, homes) in homes {
            let at_home = homes.iter().any(|home| source.path.starts_with(home));
            let uses = format!("{library}::");
            if !at_home && source.code.split(&uses).count() > 1 && names(&source.code, library) {
                strays.push(format!("{} names {library}, which belongs under {homes:?}", source.path));
            }
        }
    }
    assert!(strays.is_empty(), "{strays:#?}");
}

/// What each layer must not reach for: everything that stands above it, or beside it.
const ABOVE: [(&str, &[&str]); 7] = [
    ("model/", &["store", "api", "panel", "cli", "edge", "app", "server"]),
    ("store/", &["http", "api", "panel", "cli", "edge", "app", "server"]),
    ("http/", &["store", "api", "panel", "cli", "edge", "app", "server"]),
    // The table of routes has the panel's too, so `api` may name it.
    ("api/", &["cli", "edge", "server"]),
    ("panel/", &["api", "cli", "edge", "server"]),
    ("edge/", &["store", "api", "panel", "cli", "app", "server"]),
    ("clock.rs", &["http", "store", "api", "panel", "cli", "edge", "app", "server", "error", "model"]),
];

/// Whether `code` reaches for a module of the crate, in a path or in a list of imports.
fn reaches(code: &str, module: &str) -> bool {
    let in_a_list = |list: &str| list.split(';').next().is_some_and(|list| names(list, module));
    names(code, &format!("crate::{module}")) || code.split("crate::{").skip(1).any(in_a_list)
}

#[test]
fn no_layer_calls_upward() {
    let mut strays = Vec::new();
    for source in sources("src") {
        for (layer, above) in ABOVE {
            for other in above.iter().filter(|_| source.path.starts_with(layer)) {
                if reaches(&source.code, other) {
                    strays.push(format!("{} reaches for crate::{other}", source.path));
                }
            }
        }
    }
    assert!(strays.is_empty(), "{strays:#?}");
}

#[test]
fn the_command_line_is_named_by_main_alone() {
    for source in sources("src") {
        let is_its_own = source.path.starts_with("cli/") || source.path == "main.rs" || source.path == "lib.rs";
        assert!(is_its_own || !reaches(&source.code, "cli"), "{}", source.path);
    }
}

#[test]
fn nothing_is_allowed_without_a_reason() {
    for folder in ["src", "tests"] {
        for source in sources(folder) {
            let allow = ["#[al", "low("].concat();
            assert!(
                !source.code.contains(&allow) && !source.code.contains(&allow.replace("#[", "#![")),
                "{}",
                source.path
            );
        }
    }
}

#[test]
fn no_module_is_a_drawer_for_everything() {
    for folder in ["src", "tests"] {
        for source in sources(folder) {
            let name = Path::new(&source.path).file_stem().unwrap().to_str().unwrap().to_owned();
            let drawer = ["utils", "util", "helpers", "common", "manager", "misc"].contains(&name.as_str());
            assert!(!drawer && !source.path.contains("utils/"), "{folder}/{}", source.path);
        }
    }
}
