//! The layers of ARCHITECTURE.md. A module uses only modules in lower rows of the table. A crate in
//! the last column is named only in the rows that list the crate. The files of a directory form no
//! cycle. Unit tests are exempt.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Segments = Vec<String>;

/// A source file: its path below `src`, its module, and each path in its code.
struct Source {
    file: String,
    module: Segments,
    paths: Vec<Segments>,
}

impl Source {
    fn parse(file: &str, text: &str) -> Source {
        let module = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let tokens = tokens(&code.collect::<Vec<_>>().join("\n"));
        let mut paths = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            at = read_path(&tokens, at, &[], &mut paths);
        }
        let module = module.split('/').map(str::to_owned).collect();
        Source { file: file.to_owned(), module, paths }
    }

    /// The paths into this crate, from its root: `super::a` in `store/b.rs` is `store`, `a`.
    fn own_paths(&self) -> impl Iterator<Item = Segments> {
        self.paths.iter().filter_map(|path| match path[0].as_str() {
            "crate" | "tenantdesk" => Some(path[1..].to_vec()),
            "super" => {
                let levels = path.iter().take_while(|segment| *segment == "super").count();
                let parent = &self.module[..self.module.len().checked_sub(levels)?];
                Some([parent, &path[levels..]].concat())
            }
            _ => None,
        })
    }
}

/// Identifiers, `::` and single characters.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut last = ' ';
    for letter in code.chars() {
        let joins = (is_word(letter) && is_word(last)) || (letter == ':' && last == ':');
        match tokens.last_mut() {
            Some(token) if joins => token.push(letter),
            _ if letter.is_whitespace() => {}
            _ => tokens.push(letter.to_string()),
        }
        last = letter;
    }
    tokens
}

/// Reads the path at `at` after `prefix`, and returns the position behind it. The tree
/// `a::{b, c::d}` has two paths. A name alone is none.
fn read_path(tokens: &[String], at: usize, prefix: &[String], paths: &mut Vec<Segments>) -> usize {
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let is_name =
        |text: &str| text.starts_with(|first: char| first.is_alphabetic() || first == '_');
    if !is_name(token(at)) {
        return at + 1;
    }
    let path = [prefix, &tokens[at..=at]].concat();
    match token(at + 2) {
        name if token(at + 1) == "::" && is_name(name) => read_path(tokens, at + 2, &path, paths),
        "{" if token(at + 1) == "::" => {
            let mut inside = at + 3;
            while !matches!(token(inside), "}" | "") {
                inside = read_path(tokens, inside, &path, paths);
            }
            inside + 1
        }
        _ => {
            if path.len() > 1 {
                paths.push(path);
            }
            at + 1
        }
    }
}

/// A row of the table: modules such as `api` and `clock`, and the crates that they may name.
type Row = (Vec<String>, Vec<String>);

fn table(document: &str) -> Vec<Row> {
    let lines =
        document.lines().skip_while(|line| *line != "| module | responsibility | may name |");
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let names = |cell: &str| -> Vec<String> {
        let names = cell.split(',').map(|name| name.trim().trim_matches('`'));
        let names = names.map(|name| name.trim_end_matches('/').trim_end_matches(".rs"));
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let cells = rows.map(|row| row.trim_matches('|').split('|').collect::<Vec<_>>());
    cells.map(|cells| (names(cells[0]), names(cells[2]))).collect()
}

/// Lists each use in `source` that the table does not allow.
fn violations(table: &[Row], source: &Source) -> BTreeSet<String> {
    let (file, module) = (&source.file, &source.module[0]);
    let layer = |module: &String| table.iter().position(|(modules, _)| modules.contains(module));
    let Some(own) = layer(module) else {
        return BTreeSet::from([format!("{file} is not in the table")]);
    };
    let used = source.own_paths().filter_map(|path| path.into_iter().next());
    let upward = used.filter(|used| used != module && layer(used).is_some_and(|used| used <= own));
    let upward = upward.map(|used| format!("{file} uses `{used}`, which is not below it"));
    let named: BTreeSet<&String> = source.paths.iter().map(|path| &path[0]).collect();
    let crates = table.iter().flat_map(|(_, crates)| crates);
    let foreign = crates
        .filter(|name| named.contains(&name.replace('-', "_")) && !table[own].1.contains(name));
    upward.chain(foreign.map(|name| format!("{file} names the crate `{name}`"))).collect()
}

/// The files of the module `directory` that are in a cycle or use a file in it. `mod.rs` has what
/// they share, so it may use each of them.
fn cycle(directory: &[String], sources: &[Source]) -> Vec<String> {
    let depth = directory.len();
    let inside = sources.iter().filter(|source| source.module.starts_with(directory));
    let (roots, files): (Vec<&Source>, Vec<&Source>) =
        inside.partition(|source| source.module.len() == depth);
    let is_file = |name: &String| files.iter().any(|source| source.module[depth] == *name);
    // An item that `mod.rs` takes from a file stands for that file.
    let items = roots.iter().flat_map(|root| &root.paths).filter(|path| is_file(&path[0]));
    let origins: BTreeMap<&String, &String> =
        items.map(|path| (path.last().unwrap(), &path[0])).collect();
    let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in &files {
        let paths = source.own_paths().filter(|path| path.starts_with(directory));
        let names = paths.filter_map(|path| path.get(depth).cloned());
        let names = names.map(|name| origins.get(&name).map_or(name.clone(), |&file| file.clone()));
        let used = names.filter(|name| is_file(name) && *name != source.module[depth]);
        users.entry(source.module[depth].clone()).or_default().extend(used);
    }
    // A file that uses no remaining file is in no cycle.
    while let Some(file) =
        users.iter().find(|(_, used)| used.iter().all(|one| !users.contains_key(one)))
    {
        let file = file.0.clone();
        users.remove(&file);
    }
    users.into_keys().collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
    files
}

/// The source files, except files of unit tests.
fn sources() -> Vec<Source> {
    let directory = root().join("src");
    let files = rust_files(&directory).into_iter();
    let shipped = files.filter(|path| !path.to_str().unwrap().ends_with("tests.rs"));
    let parse = |path: PathBuf| {
        let file = path.strip_prefix(&directory).unwrap().to_str().unwrap();
        Source::parse(file, &fs::read_to_string(&path).unwrap())
    };
    shipped.map(parse).collect()
}

#[test]
fn every_module_uses_only_modules_below_it_and_its_own_crates() {
    let table = table(&fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap());
    let sources = sources();
    let found: BTreeSet<String> =
        sources.iter().flat_map(|source| violations(&table, source)).collect();
    assert!(found.is_empty(), "{found:#?}");
    let modules: BTreeSet<&String> = sources.iter().map(|source| &source.module[0]).collect();
    let listed: Vec<&String> = table.iter().flat_map(|(modules, _)| modules).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), modules);
    assert_eq!(listed.len(), modules.len(), "a module is in the table twice");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for name in table.iter().flat_map(|(_, crates)| crates) {
        assert!(manifest.contains(&format!("\n{name} = ")), "{name} is no dependency");
    }
}

#[test]
fn the_files_of_a_directory_form_no_cycle() {
    let sources = sources();
    let parents = sources
        .iter()
        .flat_map(|source| (1..source.module.len()).map(|depth| &source.module[..depth]));
    for directory in parents.collect::<BTreeSet<_>>() {
        assert_eq!(cycle(directory, &sources), Vec::<String>::new(), "in {directory:?}");
    }
}

#[test]
fn no_file_is_a_collection_of_leftovers() {
    let files = ["src", "tests"].map(|directory| rust_files(&root().join(directory)));
    for path in files.iter().flatten() {
        let parts = path.with_extension("");
        let leftovers = ["utils", "util", "helpers", "common", "manager", "misc"];
        let is_leftovers = parts.iter().any(|part| leftovers.contains(&part.to_str().unwrap()));
        assert!(!is_leftovers, "{}", path.display());
    }
}

#[test]
fn what_is_not_allowed_is_found() {
    let table = table(
        "| module | responsibility | may name |\n|---|---|---|\n\
         | `api/` | the API | governor |\n| `store/` | the databases | rusqlite |\n",
    );
    let upward = "store/writer.rs uses `api`, which is not below it";
    let foreign = "api/list.rs names the crate `rusqlite`";
    for (file, text, expected) in [
        ("api/list.rs", "use crate::store::{Tenant, writer::Writer};\nuse governor::Quota;", None),
        ("store/writer.rs", "// crate::api\n#[cfg(test)]\nmod tests { use crate::api::A; }", None),
        ("store/writer.rs", "use crate::{store, api::{self, answer}};", Some(upward)),
        ("store/writer.rs", "use super::super::api;", Some(upward)),
        ("store/writer.rs", "fn a(x: Vec<&'static crate::api::A>) {}", Some(upward)),
        ("api/list.rs", "use {governor::Quota, rusqlite::Row};", Some(foreign)),
        ("api/list.rs", "fn a() -> ::rusqlite::Result<()> { Ok(()) }", Some(foreign)),
        ("lib.rs", "", Some("lib.rs is not in the table")),
    ] {
        let found = violations(&table, &Source::parse(file, text));
        assert_eq!(found.into_iter().next().as_deref(), expected, "{text}");
    }
    let sources = [
        Source::parse("store/mod.rs", "mod a; mod b; mod c; pub use a::First;"),
        Source::parse("store/a.rs", "use super::b::Second;"),
        Source::parse("store/b.rs", "use crate::store::c;"),
        Source::parse("store/c/mod.rs", "use super::First;"),
    ];
    assert_eq!(cycle(&["store".to_owned()], &sources), ["a", "b", "c"]);
}
