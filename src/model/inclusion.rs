//! The values of `include`: the records that a record belongs to (contract section 4).

use std::sync::LazyLock;

use super::{ALL, Field, Resource};

/// A record that another one refers to.
#[derive(Debug, PartialEq, Eq)]
pub struct Inclusion {
    pub resource: &'static Resource,
    pub reference: &'static Field,
}

impl Inclusion {
    /// The name in `include`, and of the member in a response: the reference without `_id`.
    pub fn name(&self) -> &'static str {
        let name = self.reference.name;
        name.strip_suffix("_id").unwrap_or(name)
    }
}

impl Resource {
    /// The records that a record of the resource can include.
    pub fn inclusions(&self) -> &'static [Inclusion] {
        static BY_RESOURCE: LazyLock<[Vec<Inclusion>; ALL.len()]> =
            LazyLock::new(|| ALL.map(inclusions_of));
        self.by_resource::<Vec<Inclusion>>(&BY_RESOURCE)
    }
}

fn inclusions_of(resource: &'static Resource) -> Vec<Inclusion> {
    let mut inclusions = Vec::new();
    for reference in resource.fields {
        if let Some(resource) = reference.references {
            inclusions.push(Inclusion { resource, reference });
        }
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
