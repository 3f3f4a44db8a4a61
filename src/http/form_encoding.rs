//! The encoding `application/x-www-form-urlencoded` of query strings and forms (WHATWG URL section
//! 5).

use std::borrow::Cow;
use std::str::Utf8Error;

use percent_encoding::percent_decode_str;

/// Splits `text` into its `name=value` pairs: the pair as sent, the name and the value, all still
/// encoded. Empty pairs are skipped.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (pair, name, value)
    })
}

/// Decodes a name or a value: `+` is a space and `%XX` is a byte.
///
/// # Errors
///
/// [`Utf8Error`] if the decoded bytes are not UTF-8.
pub fn decode(text: &str) -> Result<String, Utf8Error> {
    let spaced =
        if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    Ok(percent_decode_str(&spaced).decode_utf8()?.into_owned())
}
