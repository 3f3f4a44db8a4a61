//! The resource `customers`.

use super::field::{CUSTOM, choice, date, email, text};
use super::{Resource, ResourceKind};

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
