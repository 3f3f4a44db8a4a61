//! The text form of integers.

/// Returns whether `text` is an integer as JSON writes it (RFC 8259 section 6): digits without a
/// leading zero, after an optional minus sign. The number of digits is not limited.
pub fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

/// Returns whether `text` is a positive integer: digits without a sign or a leading zero.
pub fn is_positive_integer(text: &str) -> bool {
    is_integer(text) && !text.starts_with(['-', '0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_the_form_of_json() {
        for valid in ["0", "12", "-5", "-0", "99999999999999999999"] {
            assert!(is_integer(valid), "{valid}");
        }
        for invalid in ["", "-", "007", "+5", "1.0", "1e2", " 1", "12 ", "٣"] {
            assert!(!is_integer(invalid), "{invalid}");
        }
    }

    #[test]
    fn positive_integers_have_no_sign() {
        assert!(is_positive_integer("1") && is_positive_integer("10"));
        for invalid in ["", "0", "-1", "01", "x"] {
            assert!(!is_positive_integer(invalid), "{invalid}");
        }
    }
}
