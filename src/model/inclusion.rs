//! The values of `include`: the records that a record belongs to (contract section 4).

use std::sync::LazyLock;

use super::{ALL, Field, Resource};

/// A record that another one belongs to, directly or through further records.
#[derive(Debug, PartialEq, Eq)]
pub struct Inclusion {
    pub resource: &'static Resource,
    pub reference: &'static Field,
    /// The inclusion that has the reference; `None` if the record itself has it.
    pub through: Option<&'static str>,
}

impl Inclusion {
    /// The name in `include`, and of the member in a response: the reference without `_id`.
    pub fn name(&self) -> &'static str {
        name(self.reference)
    }
}

fn name(reference: &Field) -> &'static str {
    reference.name.strip_suffix("_id").unwrap_or(reference.name)
}

impl Resource {
    /// The records that a record of the resource can include. `customer` stands behind `employee`,
    /// through which it is reached.
    pub fn inclusions(&self) -> &'static [Inclusion] {
        static BY_RESOURCE: LazyLock<[Vec<Inclusion>; ALL.len()]> =
            LazyLock::new(|| ALL.map(|resource| behind(resource, None)));
        self.by_resource::<Vec<Inclusion>>(&BY_RESOURCE)
    }
}

fn behind(resource: &'static Resource, through: Option<&'static str>) -> Vec<Inclusion> {
    let mut inclusions = Vec::new();
    for reference in resource.fields {
        let Some(target) = reference.references else { continue };
        inclusions.push(Inclusion { resource: target, reference, through });
        inclusions.extend(behind(target, Some(name(reference))));
    }
    inclusions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::READ_ONLY;

    #[test]
    fn no_two_members_of_a_record_have_the_same_name() {
        for resource in ALL {
            let fields = resource.fields.iter().map(|field| field.name);
            let included = resource.inclusions().iter().map(Inclusion::name);
            let mut names: Vec<&str> =
                READ_ONLY.into_iter().chain(fields).chain(included).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", resource.plural);
        }
    }
}
