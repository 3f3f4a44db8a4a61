//! "Did you mean": messages about a name that is not known.

/// What is said of a name that is not known, with the known one that is closest to it.
pub fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match closest(name, known.clone()) {
        Some(meant) => format!("Unknown {what} {name:?}. Did you mean \"{meant}\"?"),
        None if known.clone().next().is_none() => format!("Unknown {what} {name:?}. None is known here; leave it out."),
        None => format!("Unknown {what} {name:?}. Known here: {}.", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The known name that `name` was probably meant to be.
fn closest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// From here on two names are alike: `cutsomer_id` and `customer_id`, but not `page` and `name`.
    const ALIKE: f64 = 0.6;
    if name.len() > 100 {
        return None;
    }
    let name = name.to_lowercase();
    known
        .map(|candidate| (strsim::normalized_damerau_levenshtein(&name, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}
