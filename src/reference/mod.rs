//! The reference of the API: the OpenAPI document and the documentation page. Both are generated
//! from the declarations.

mod compressed;
pub mod docs;
pub mod openapi;
