//! References by values that people know, in place of ids.

use std::sync::LazyLock;

use super::{ALL, Field, FieldError, Json, Resource, Value};

/// A member of a body, or a column of a file, that stands for a reference: `customer_number` for
/// `customer_id`.
#[derive(Debug, PartialEq, Eq)]
pub struct NaturalKey {
    pub name: String,
    /// The reference.
    pub field: &'static Field,
    /// The resource to which the reference leads.
    pub target: &'static Resource,
    /// The field of `target` that has the value.
    pub key: &'static Field,
}

impl NaturalKey {
    /// Checks a value by the rules of the field of `target`, under the own name.
    pub fn check(&'static self, input: &Json) -> Result<Value, Vec<FieldError>> {
        Field { name: &self.name, ..*self.key }.check(input)
    }
}

impl Resource {
    /// The natural keys that can stand for the references of a record.
    pub fn natural_references(&self) -> &'static [NaturalKey] {
        static BY_RESOURCE: LazyLock<[Vec<NaturalKey>; ALL.len()]> =
            LazyLock::new(|| ALL.map(natural_references_of));
        self.by_resource::<Vec<NaturalKey>>(&BY_RESOURCE)
    }
}

fn natural_references_of(resource: &'static Resource) -> Vec<NaturalKey> {
    let mut references = Vec::new();
    for field in resource.fields {
        let Some(target) = field.references else { continue };
        for key in target.natural_keys.iter().filter_map(|name| target.field(name)) {
            // `customer_number` contains the name of its resource; `email` needs it as a prefix.
            let prefix = format!("{}_", target.name);
            let name = match key.name.starts_with(&prefix) {
                true => key.name.to_owned(),
                false => prefix + key.name,
            };
            references.push(NaturalKey { name, field, target, key });
        }
    }
    references
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CUSTOMER, EMPLOYEE, HARDWARE};

    #[test]
    fn a_natural_key_names_its_resource() {
        let names = |resource: &Resource| {
            let keys = resource.natural_references().iter();
            keys.map(|key| (key.name.as_str(), key.field.name)).collect::<Vec<_>>()
        };
        let customer = [("customer_number", "customer_id"), ("customer_email", "customer_id")];
        let employee = [("employee_number", "employee_id"), ("employee_email", "employee_id")];
        assert_eq!(names(&CUSTOMER), []);
        assert_eq!(names(&EMPLOYEE), customer);
        assert_eq!(names(&HARDWARE), [employee, customer].concat());
    }
}
