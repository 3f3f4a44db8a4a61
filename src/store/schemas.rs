//! The schemas of the two kinds of database. `migrations/README.md` says how to change one.

use super::database::{Migration, Schema};
use super::records;

pub(crate) static REGISTRY: Schema = Schema {
    name: "registry",
    version: 3,
    sql: include_str!("registry/schema.sql"),
    migrations: &[
        Migration::new(include_str!("migrations/registry/2.sql")),
        Migration::new(include_str!("migrations/registry/3.sql")),
    ],
};

pub(crate) static TENANT: Schema = Schema {
    name: "tenant",
    version: 4,
    sql: include_str!("../../schema.sql"),
    migrations: &[
        Migration::new(include_str!("migrations/tenant/2.sql")),
        Migration::new(include_str!("migrations/tenant/3.sql")),
        Migration { sql: include_str!("migrations/tenant/4.sql"), then: records::build_search },
    ],
};
