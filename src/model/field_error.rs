//! The errors of single fields.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCode {
    Required,
    InvalidEmail,
    InvalidInt,
    InvalidDate,
    InvalidBool,
    TooLong,
    TooShort,
    NotInList,
}

impl FieldCode {
    /// Every code with its meaning, for the API reference.
    pub const ALL: [(FieldCode, &'static str); 8] = [
        (FieldCode::Required, "A required field is empty."),
        (FieldCode::InvalidEmail, "The value is not an e-mail address."),
        (FieldCode::InvalidInt, "The value is not a 64-bit integer."),
        (FieldCode::InvalidDate, "The value is not an existing date in the form YYYY-MM-DD."),
        (FieldCode::InvalidBool, "The value is none of true, false, 1 and 0."),
        (FieldCode::TooLong, "The value has more characters than the field takes."),
        (FieldCode::TooShort, "The value has fewer characters than the field needs."),
        (FieldCode::NotInList, "The value is not one of the allowed ones."),
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            FieldCode::Required => "required",
            FieldCode::InvalidEmail => "invalid_email",
            FieldCode::InvalidInt => "invalid_int",
            FieldCode::InvalidDate => "invalid_date",
            FieldCode::InvalidBool => "invalid_bool",
            FieldCode::TooLong => "too_long",
            FieldCode::TooShort => "too_short",
            FieldCode::NotInList => "not_in_list",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: &'static str,
    pub code: FieldCode,
    /// One sentence that says what was sent and what is expected.
    pub message: String,
}
