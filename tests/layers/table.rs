//! The table of modules in ARCHITECTURE.md.

use crate::source::Source;

const HEADER: &str = "| module | responsibility | may name |";

/// The table, from the highest layer to the lowest.
pub(crate) struct Table {
    rows: Vec<Row>,
}

struct Row {
    /// `api` for `api/`, `clock` for `clock.rs`.
    modules: Vec<String>,
    /// The crates that only the rows that list them may name, as in Cargo.toml.
    crates: Vec<String>,
}

impl Table {
    /// The table in `document`.
    pub(crate) fn parse(document: &str) -> Table {
        let lines = document.lines().skip_while(|line| *line != HEADER).skip(2);
        let rows =
            lines.take_while(|line| line.starts_with('|')).map(Row::parse).collect::<Vec<_>>();
        assert!(!rows.is_empty(), "the document has the table {HEADER:?}");
        Table { rows }
    }

    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().flat_map(|row| &row.modules).map(String::as_str)
    }

    /// Every crate that a row lists.
    pub(crate) fn crates(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().flat_map(|row| &row.crates).map(String::as_str)
    }

    /// What `source` uses and the table does not allow, one sentence for each.
    pub(crate) fn violations(&self, source: &Source) -> Vec<String> {
        let (file, module) = (&source.file, source.top_module());
        let Some(layer) = self.layer(module) else {
            return vec![format!("{file} is not in the table")];
        };
        let modules = source.modules.iter().filter_map(|path| path.first());
        let mut upward: Vec<&String> = modules
            .filter(|used| *used != module && self.layer(used).is_some_and(|other| other <= layer))
            .collect();
        upward.dedup();
        let own = &self.rows.get(layer).expect("a layer is the number of a row").crates;
        let foreign = self.crates().filter(|name| {
            let is_named = source.crates.contains(&name.replace('-', "_"));
            is_named && !own.iter().any(|own| own == name)
        });
        let mut foreign: Vec<&str> = foreign.collect();
        foreign.sort_unstable();
        foreign.dedup();
        let upward =
            upward.into_iter().map(|used| format!("{file} uses `{used}`, which is not below it"));
        upward
            .chain(foreign.into_iter().map(|name| format!("{file} names the crate `{name}`")))
            .collect()
    }

    /// The number of the row that lists `module`.
    fn layer(&self, module: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.modules.iter().any(|listed| listed == module))
    }
}

impl Row {
    fn parse(line: &str) -> Row {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let [modules, _, crates] = *cells.as_slice() else {
            panic!("a row has three cells: {line}")
        };
        let names = |cell: &str| -> Vec<String> {
            let names = cell.split(',').map(|name| name.trim().trim_matches('`'));
            names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let module = |name: String| name.trim_end_matches('/').trim_end_matches(".rs").to_owned();
        Row { modules: names(modules).into_iter().map(module).collect(), crates: names(crates) }
    }
}
