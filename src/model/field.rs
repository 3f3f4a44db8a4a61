//! What a resource and a field declare, and stored values (contract section 2).

use std::collections::BTreeMap;

use serde::Serialize;

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
pub const fn text(name: &'static str) -> Field {
    field(name, Kind::Text { min: 0, max: usize::MAX })
}

pub const fn email(name: &'static str) -> Field {
    field(name, Kind::Email)
}

pub const fn integer(name: &'static str) -> Field {
    field(name, Kind::Integer)
}

pub const fn boolean(name: &'static str) -> Field {
    field(name, Kind::Boolean)
}

pub const fn date(name: &'static str) -> Field {
    field(name, Kind::Date)
}

const fn timestamp(name: &'static str) -> Field {
    field(name, Kind::Timestamp).required().example("\"2026-11-20T19:30:00Z\"")
}

/// Declares a field that holds one of the `allowed` values.
pub const fn choice(name: &'static str, allowed: &'static [&'static str]) -> Field {
    field(name, Kind::Choice(allowed))
}

impl Field {
    /// Sets the minimum and maximum length of a text, in characters.
    pub const fn between(mut self, min: usize, max: usize) -> Field {
        self.kind = Kind::Text { min, max };
        self
    }

    pub const fn at_most(self, max: usize) -> Field {
        self.between(0, max)
    }

    pub const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    pub const fn default(mut self, value: &'static str) -> Field {
        self.default = Some(value);
        self
    }

    /// Makes the field a reference to a record of `resource`.
    pub const fn references(mut self, resource: &'static Resource) -> Field {
        self.references = Some(resource);
        self
    }

    /// Takes the field out of sorts and filters of lists: the table has no index of it.
    pub const fn unindexed(mut self) -> Field {
        self.is_indexed = false;
        self
    }

    /// Sets the description for the API reference: one sentence.
    pub const fn about(mut self, sentence: &'static str) -> Field {
        self.about = sentence;
        self
    }

    /// Sets the example value, as JSON.
    pub const fn example(mut self, json: &'static str) -> Field {
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
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
