//! The resource `hardware`.

use super::field::{CUSTOM, boolean, choice, date, integer, text};
use super::{CUSTOMER, EMPLOYEE, Resource, ResourceKind};

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
        text("notes")
            .at_most(5000)
            .unindexed()
            .about("Anything else.")
            .example("\"Docking station on the desk.\""),
        CUSTOM,
    ],
    natural_keys: &["asset_tag", "serial_number"],
};
