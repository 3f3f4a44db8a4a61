//! The resources and their fields, and what follows from the references among them.

use std::sync::LazyLock;

use super::field::{
    CREATED_AT, CUSTOM, Field, ID, Resource, ResourceKind, UPDATED_AT, Value, boolean, choice,
    date, email, integer, text,
};
use super::validation::{FieldError, Json};

/// The references by which a device belongs to its employee and its customer.
pub const CUSTOMER_ID: &str = "customer_id";
pub const EMPLOYEE_ID: &str = "employee_id";

/// An organisation that the shop works for.
pub static CUSTOMER: Resource = Resource {
    kind: ResourceKind::Customers,
    name: "customer",
    plural: "customers",
    path: "/customers.php",
    about: "An organisation that the shop works for.",
    fields: &[
        text("name")
            .between(2, 200)
            .required()
            .about("The customer's name.")
            .example("\"Müller & Söhne GmbH\""),
        text("customer_number")
            .at_most(50)
            .about("The shop's own number for the customer.")
            .example("\"C-1042\""),
        email("email")
            .about("Where the customer is written to.")
            .example("\"office@mueller.example\""),
        text("phone")
            .at_most(50)
            .about("A telephone number, in any notation.")
            .example("\"+49 30 1234567\""),
        text("street").at_most(200).about("Street and house number.").example("\"Hauptstraße 12\""),
        text("postal_code").at_most(20).about("The postal code.").example("\"10115\""),
        text("city").at_most(100).about("The city.").example("\"Berlin\""),
        text("country")
            .between(2, 2)
            .about("An ISO 3166-1 alpha-2 code; only its length is checked.")
            .example("\"DE\""),
        choice("status", &["prospect", "active", "inactive"])
            .default("active")
            .about("Where the customer stands.")
            .example("\"active\""),
        date("customer_since").about("The day the customer became one.").example("\"2019-04-01\""),
        text("notes")
            .at_most(5000)
            .unindexed()
            .about("Anything else.")
            .example("\"Invoices by e-mail only.\""),
        CUSTOM,
    ],
    natural_keys: &["customer_number", "email"],
};

/// A person who works for a customer.
pub static EMPLOYEE: Resource = Resource {
    kind: ResourceKind::Employees,
    name: "employee",
    plural: "employees",
    path: "/employees.php",
    about: "A person who works at a customer.",
    fields: &[
        integer(CUSTOMER_ID)
            .required()
            .references(&CUSTOMER)
            .about("The customer that the employee works at.")
            .example("1"),
        text("employee_number")
            .at_most(50)
            .about("The shop's own number for the employee, such as the one of its directory.")
            .example("\"E-0815\""),
        email("email").about("The employee's address.").example("\"eva@mueller.example\""),
        text("first_name").at_most(100).about("The given name.").example("\"Eva\""),
        text("last_name").at_most(100).about("The family name.").example("\"Müller\""),
        text("phone")
            .at_most(50)
            .about("A telephone number, in any notation.")
            .example("\"+49 30 1234567-12\""),
        text("department").at_most(50).about("The department.").example("\"Accounting\""),
        text("job_title").at_most(100).about("The job title.").example("\"Head of Accounting\""),
        boolean("is_active")
            .default("true")
            .about("Whether the person works there now.")
            .example("true"),
        date("start_date").about("The first day.").example("\"2021-02-01\""),
        date("end_date").about("The last day.").example("null"),
        text("notes")
            .at_most(5000)
            .unindexed()
            .about("Anything else.")
            .example("\"Works from home on Fridays.\""),
        CUSTOM,
    ],
    natural_keys: &["employee_number", "email"],
};

/// A device that the shop looks after.
pub static HARDWARE: Resource = Resource {
    kind: ResourceKind::Hardware,
    name: "hardware",
    plural: "hardware",
    path: "/hardware.php",
    about: "A device that the shop looks after, such as an employee's laptop or a customer's server.",
    fields: &[
        text("name")
            .between(2, 200)
            .required()
            .about("What people call the device.")
            .example("\"Eva's laptop\""),
        integer(EMPLOYEE_ID)
            .references(&EMPLOYEE)
            .about("The employee who has the device; null where nobody does.")
            .example("1"),
        integer(CUSTOMER_ID)
            .references(&CUSTOMER)
            .about(
                "The customer to whom the device belongs. While an employee has it: the \
                 employee's customer.",
            )
            .example("1"),
        choice(
            "type",
            &[
                "laptop",
                "desktop",
                "server",
                "monitor",
                "phone",
                "tablet",
                "printer",
                "network",
                "peripheral",
                "other",
            ],
        )
        .default("other")
        .about("What kind of device it is.")
        .example("\"laptop\""),
        text("manufacturer").at_most(100).about("Who made it.").example("\"Lenovo\""),
        text("model").at_most(100).about("The model.").example("\"ThinkPad T14\""),
        text("serial_number")
            .at_most(100)
            .about("The maker's serial number.")
            .example("\"PF-3X9Q7\""),
        text("asset_tag")
            .at_most(50)
            .about("The shop's own number for the device.")
            .example("\"A-0117\""),
        choice("status", &["in_use", "in_stock", "in_repair", "retired", "lost"])
            .default("in_stock")
            .about("Where the device is.")
            .example("\"in_use\""),
        date("purchase_date").about("The day it was bought.").example("\"2024-09-30\""),
        date("warranty_until").about("The last day of the warranty.").example("\"2027-09-30\""),
        integer("purchase_cost_cents")
            .about("What it cost, in hundredths of the shop's currency.")
            .example("129900"),
        boolean("is_leased").default("false").about("Whether it is leased.").example("false"),
        date("lease_until").about("The last day of the lease.").example("\"2027-09-30\""),
        text("notes")
            .at_most(5000)
            .unindexed()
            .about("Anything else.")
            .example("\"Docking station on the desk.\""),
        CUSTOM,
    ],
    natural_keys: &["asset_tag", "serial_number"],
};

/// Every resource. A resource refers only to those before it.
pub static ALL: [&Resource; 3] = [&CUSTOMER, &EMPLOYEE, &HARDWARE];

/// The read-only fields: `id` precedes the fields of a resource, the others follow them (contract
/// section 2).
pub const READ_ONLY: [&str; 3] = [ID.name, CREATED_AT.name, UPDATED_AT.name];

impl Resource {
    pub fn find(plural: &str) -> Option<&'static Resource> {
        ALL.into_iter().find(|resource| resource.plural == plural)
    }

    /// Returns the element for this resource of an array that has the order of [`ALL`].
    pub fn by_resource<'a, T>(&self, elements: &'a [T; ALL.len()]) -> &'a T {
        let [customers, employees, hardware] = elements;
        match self.kind {
            ResourceKind::Customers => customers,
            ResourceKind::Employees => employees,
            ResourceKind::Hardware => hardware,
        }
    }

    /// The natural keys that can stand for the references of a record.
    pub fn natural_references(&self) -> &'static [NaturalKey] {
        static BY_RESOURCE: LazyLock<[Vec<NaturalKey>; ALL.len()]> =
            LazyLock::new(|| ALL.map(natural_references_of));
        self.by_resource::<Vec<NaturalKey>>(&BY_RESOURCE)
    }

    /// The records that a record of the resource can include.
    pub fn inclusions(&self) -> &'static [Inclusion] {
        static BY_RESOURCE: LazyLock<[Vec<Inclusion>; ALL.len()]> =
            LazyLock::new(|| ALL.map(inclusions_of));
        self.by_resource::<Vec<Inclusion>>(&BY_RESOURCE)
    }
}

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

    #[test]
    fn arrays_by_resource_have_the_order_of_all() {
        for resource in ALL {
            assert_eq!(*resource.by_resource(&ALL), resource);
        }
    }

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
