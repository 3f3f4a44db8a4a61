//! The resource `employees`.

use super::field::{CUSTOM, boolean, date, email, integer, text};
use super::{CUSTOMER, Resource, ResourceKind};

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
        email("email")
            .required()
            .about("The employee's address.")
            .example("\"eva@mueller.example\""),
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
