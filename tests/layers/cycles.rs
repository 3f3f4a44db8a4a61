//! Cycles between the files of one directory.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::Source;

/// The files of a directory, a directory inside it being one of them, and for each the others that
/// it uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Every set of files that use each other in a cycle, in the directory of the module `directory`.
/// Its own `mod.rs` is none of them: it has what all of them share.
pub(crate) fn within(directory: &[String], sources: &[Source]) -> Vec<Vec<String>> {
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

fn graph(directory: &[String], sources: &[Source]) -> Graph {
    let depth = directory.len();
    let inside: Vec<&Source> =
        sources.iter().filter(|source| source.module.starts_with(directory)).collect();
    let files: BTreeSet<String> =
        inside.iter().filter_map(|source| source.module.get(depth).cloned()).collect();
    let root = inside.iter().find(|source| source.module.len() == depth);
    let reexports = root.map_or(&[][..], |root| &root.reexports);
    // The file that has what a path names, where a re-export stands for the file that it is from.
    let file_of_item = |path: &Vec<String>| {
        let name = path.get(depth).filter(|_| path.starts_with(directory))?;
        if files.contains(name) {
            return Some(name.clone());
        }
        let (_, origin) = reexports.iter().find(|(reexported, _)| reexported == name)?;
        origin.get(depth).cloned()
    };
    let mut graph = Graph::new();
    for source in &inside {
        let Some(file) = source.module.get(depth) else { continue };
        let others = source.modules.iter().filter_map(file_of_item).filter(|other| other != file);
        graph.entry(file.clone()).or_default().extend(others);
    }
    graph
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
