//! Cycles between the files of one directory.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// The files of a directory, a directory inside it being one of them, and for each the others that
/// it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The name of the directory's own `mod.rs`.
const ROOT: &str = "mod";

/// Every set of files in the directory `src/<directory>` that use each other in a cycle.
pub(crate) fn within(directory: &str, sources: &[Source]) -> Vec<Vec<String>> {
    let graph = graph(directory, sources);
    let reachable: Graph =
        graph.keys().map(|file| (file.clone(), reachable_from(file, &graph))).collect();
    let mut cycles: Vec<Vec<String>> = Vec::new();
    for (file, others) in &reachable {
        let is_mutual =
            |other: &&String| reachable.get(*other).is_some_and(|back| back.contains(file));
        let cycle: Vec<String> = others.iter().filter(is_mutual).cloned().collect();
        if cycle.len() > 1 && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}

fn graph(directory: &str, sources: &[Source]) -> Graph {
    let inside = |source: &&Source| source.top_module() == directory;
    let file_of = |source: &Source| source.module.get(1).map_or(ROOT, String::as_str).to_owned();
    let files: BTreeSet<String> = sources.iter().filter(inside).map(file_of).collect();
    let root = sources.iter().filter(inside).find(|source| source.module.len() == 1);
    let mut graph = Graph::new();
    for source in sources.iter().filter(inside) {
        let file = file_of(source);
        let used = source
            .modules
            .iter()
            .filter(|path| path.first().is_some_and(|first| first == directory));
        let others =
            used.filter_map(|path| file_of_item(path, &files, root)).filter(|other| *other != file);
        graph.entry(file.clone()).or_default().extend(others.collect::<Vec<_>>());
    }
    graph
}

/// The file that has what `path` names, where re-exports of `mod.rs` stand for the files that they
/// are from.
fn file_of_item(
    path: &[String],
    files: &BTreeSet<String>,
    root: Option<&Source>,
) -> Option<String> {
    let name = path.get(1)?;
    if files.contains(name) {
        return Some(name.clone());
    }
    let reexports = root.map_or(&[][..], |root| &root.reexports);
    let origin = reexports
        .iter()
        .find(|(reexported, _)| reexported == name)
        .and_then(|(_, path)| path.get(1));
    Some(origin.map_or_else(|| ROOT.to_owned(), String::clone))
}

/// Every file that `start` uses, directly or through others.
fn reachable_from(start: &str, graph: &Graph) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![start];
    while let Some(file) = waiting.pop() {
        for other in graph.get(file).into_iter().flatten() {
            if found.insert(other.clone()) {
                waiting.push(other);
            }
        }
    }
    found
}
