//! What a resource and a field declare, and the resources (contract section 2): their fields, and
//! what follows from the references among them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The kind of value that a field holds, with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text of limited length.
    Text {
        /// The minimum length in Unicode scalar values.
        min: usize,
        /// The maximum length in Unicode scalar values.
        max: usize,
    },
    Email,
    Integer,
    Boolean,
    /// An existing date, `YYYY-MM-DD`.
    Date,
    Choice(&'static [&'static str]),
    /// The shop's own texts by name.
    Custom,
    /// A moment in UTC, RFC 3339. Only the service sets it.
    Timestamp,
}

/// The first member of every record.
pub static ID: Field =
    integer("id").required().about("The number of the record. It is never reused.").example("1");
/// The last two members of every record but `etag`.
pub static CREATED_AT: Field = timestamp("created_at").about("The time of creation.");
pub static UPDATED_AT: Field = timestamp("updated_at").about("The time of the last change.");

/// The last field of every resource.
pub const CUSTOM: Field = field("custom", Kind::Custom)
    .unindexed()
    .about("The shop's own texts by name, at most 20.")
    .example("{\"room\": \"2.14\", \"os\": \"Debian 13\"}");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, which is also the name of the column.
    pub name: &'static str,
    pub kind: Kind,
    pub required: bool,
    /// The value of an absent or empty field in the syntax of a query parameter. Without a default
    /// the field is null.
    pub default: Option<&'static str>,
    /// The resource to which the field refers by id.
    pub references: Option<&'static Resource>,
    /// The table has an index of the field, so lists can be sorted and filtered by it.
    pub is_indexed: bool,
    /// One sentence for the API reference.
    pub about: &'static str,
    /// An example value, as JSON.
    pub example: &'static str,
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        required: false,
        default: None,
        references: None,
        is_indexed: true,
        about: "",
        example: "null",
    }
}

/// Declares a text field of unlimited length. [`Field::at_most`] or [`Field::between`] limits it.
const fn text(name: &'static str) -> Field {
    field(name, Kind::Text { min: 0, max: usize::MAX })
}

const fn email(name: &'static str) -> Field {
    field(name, Kind::Email)
}

const fn integer(name: &'static str) -> Field {
    field(name, Kind::Integer)
}

const fn boolean(name: &'static str) -> Field {
    field(name, Kind::Boolean)
}

const fn date(name: &'static str) -> Field {
    field(name, Kind::Date)
}

const fn timestamp(name: &'static str) -> Field {
    field(name, Kind::Timestamp).required().example("\"2026-11-20T19:30:00Z\"")
}

/// Declares a field that holds one of the `allowed` values.
const fn choice(name: &'static str, allowed: &'static [&'static str]) -> Field {
    field(name, Kind::Choice(allowed))
}

impl Field {
    /// Sets the minimum and maximum length of a text, in characters.
    const fn between(mut self, min: usize, max: usize) -> Field {
        self.kind = Kind::Text { min, max };
        self
    }

    const fn at_most(self, max: usize) -> Field {
        self.between(0, max)
    }

    const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    const fn default(mut self, value: &'static str) -> Field {
        self.default = Some(value);
        self
    }

    /// Makes the field a reference to a record of `resource`.
    const fn references(mut self, resource: &'static Resource) -> Field {
        self.references = Some(resource);
        self
    }

    /// Takes the field out of sorts and filters of lists: the table has no index of it.
    const fn unindexed(mut self) -> Field {
        self.is_indexed = false;
        self
    }

    /// Sets the description for the API reference: one sentence.
    const fn about(mut self, sentence: &'static str) -> Field {
        self.about = sentence;
        self
    }

    /// Sets the example value, as JSON.
    const fn example(mut self, json: &'static str) -> Field {
        self.example = json;
        self
    }

    pub const fn is_nullable(&self) -> bool {
        !self.required && self.default.is_none() && !matches!(self.kind, Kind::Custom)
    }

    /// Returns whether the search parameter `q` covers the field. It covers text and e-mail fields.
    pub const fn is_searched(&self) -> bool {
        matches!(self.kind, Kind::Text { .. } | Kind::Email)
    }

    /// Whether the values are texts of one line: all texts and e-mail addresses but `notes`.
    pub const fn has_one_line(&self) -> bool {
        self.is_searched() && self.is_indexed
    }

    pub fn default_value(&self) -> Value {
        match (self.default, self.kind) {
            (None, Kind::Custom) => Value::Custom(Custom::new()),
            (None, _) => Value::Null,
            (Some(word), Kind::Boolean) => Value::Boolean(word == "true"),
            (Some(word), _) => Value::of(word),
        }
    }
}

/// The custom fields of a record by name. In a change, an empty text removes its custom field.
pub type Custom = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    #[default]
    Null,
    Integer(i64),
    Boolean(bool),
    /// Text of any kind, including dates and choices.
    Text(String),
    Custom(Custom),
}

impl Value {
    /// Returns whether the value is null or has no custom field.
    pub fn is_absent(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Custom(custom) => custom.is_empty(),
            _ => false,
        }
    }

    pub fn of(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

/// How a filter compares a field with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Null finds nulls.
    Equal,
    /// The value or a greater one. Nulls do not match.
    From,
    /// The value or a smaller one. Nulls do not match.
    To,
}

/// Which resource it is. With this type the compiler checks that nothing forgets a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    Customers,
    Employees,
    Hardware,
}

#[derive(Debug)]
pub struct Resource {
    pub kind: ResourceKind,
    /// The singular name for messages: `customer`.
    pub name: &'static str,
    /// The plural name, which is also the name of the table and the first half of the scopes:
    /// `customers`.
    pub plural: &'static str,
    /// The path: `/customers.php`.
    pub path: &'static str,
    /// One sentence for the API reference.
    pub about: &'static str,
    /// The writable fields in the order of contract section 2, which is also their order in
    /// responses.
    pub fields: &'static [Field],
    /// Fields by which people identify a record. A body or a file can use them in place of an id.
    /// They need not be unique.
    pub natural_keys: &'static [&'static str],
}

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

    /// The fields by whose value `update_by` finds a record: text and e-mail but `notes`.
    pub fn lookup_fields(&self) -> impl Iterator<Item = &'static Field> + Clone {
        self.fields.iter().filter(|field| field.has_one_line())
    }

    /// The fields by which lists can be sorted: `id`, the fields with an index, and the timestamps.
    pub fn sortable_fields(&self) -> impl Iterator<Item = &'static Field> + Clone {
        let fields = self.fields.iter().filter(|field| field.is_indexed);
        [&ID].into_iter().chain(fields).chain([&CREATED_AT, &UPDATED_AT])
    }

    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The value of a field among the values of a record.
    pub fn value<'a>(&self, values: &'a [Value], name: &str) -> Option<&'a Value> {
        values.get(self.fields.iter().position(|field| field.name == name)?)
    }

    pub fn value_mut<'a>(&self, values: &'a mut [Value], name: &str) -> Option<&'a mut Value> {
        values.get_mut(self.fields.iter().position(|field| field.name == name)?)
    }

    /// The error code of a reference to a record of this resource that does not exist.
    pub const fn missing_code(&self) -> &'static str {
        match self.kind {
            ResourceKind::Customers => "customer_not_found",
            ResourceKind::Employees => "employee_not_found",
            // No field refers to hardware; a test notices the first one.
            ResourceKind::Hardware => "hardware_not_found",
        }
    }

    /// Returns the message about `field`, which refers to the record `id` of this resource, if that
    /// record does not exist.
    pub fn missing_message(&self, field: &Field, id: i64) -> String {
        let name = self.name;
        let instead = if field.required { "" } else { ", or send null" };
        format!(
            "There is no {name} with the id {id} for \"{}\". Create the {name} first{instead}.",
            field.name
        )
    }
}

/// Each resource is one static.
impl PartialEq for Resource {
    fn eq(&self, other: &Resource) -> bool {
        self.kind == other.kind
    }
}

impl Eq for Resource {}

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
    about: "A device that the shop looks after, such as an employee's laptop or a customer's \
            server.",
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
