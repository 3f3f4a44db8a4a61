//! The resources and their fields.

use super::field::{CUSTOM, boolean, choice, date, email, integer, text};
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

/// A person who works for a customer.
pub static EMPLOYEE: Resource = Resource {
    kind: ResourceKind::Employees,
    name: "employee",
    plural: "employees",
    path: "/employees.php",
    about: "A person who works at a customer.",
    fields: &[
        integer("customer_id")
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
        integer("employee_id")
            .references(&EMPLOYEE)
            .about("The employee who has the device; null where nobody does.")
            .example("1"),
        integer("customer_id")
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
