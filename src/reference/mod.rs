//! The reference for client programmers: the OpenAPI document and the documentation page, both made from the declarations.

pub mod docs;
pub mod openapi;
