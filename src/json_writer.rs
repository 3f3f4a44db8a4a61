//! Writes JSON text piece by piece, for documents that contain JSON text already.
//!
//! serde_json's own way to insert JSON text is its feature `raw_value`. With that feature, a client
//! could have a text in a body parsed as JSON, past the limit of the nesting.

use serde::Serialize;

/// JSON text that is being written. The writer puts the commas; the caller ends what it begins.
///
/// Example: `begin_object`, `member("id", &7)`, `name("tags")`, `raw(b"[]")` and `end_object` write
/// `{"id":7,"tags":[]}`.
#[derive(Debug, Default)]
pub struct JsonWriter {
    text: Vec<u8>,
    /// A value stands before the next name or value in the same object or array.
    needs_comma: bool,
}

impl JsonWriter {
    pub fn with_capacity(bytes: usize) -> JsonWriter {
        JsonWriter { text: Vec::with_capacity(bytes), needs_comma: false }
    }

    pub fn begin_object(&mut self) {
        self.begin(b'{');
    }

    pub fn end_object(&mut self) {
        self.end(b'}');
    }

    pub fn begin_array(&mut self) {
        self.begin(b'[');
    }

    pub fn end_array(&mut self) {
        self.end(b']');
    }

    /// Writes the name of a member. The value must follow. Names that the program declares contain
    /// no character that JSON escapes.
    pub fn name(&mut self, name: &'static str) {
        self.separate();
        self.text.push(b'"');
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b"\":");
        self.needs_comma = false;
    }

    pub fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        self.separate();
        // Writing to a `Vec` cannot fail. Serializing can, but only for maps without text as names.
        let _ = serde_json::to_writer(&mut self.text, value);
    }

    /// Writes a text. Most texts have no character that JSON escapes, and are copied whole.
    ///
    /// serde_json looks at one byte at a time. This check looks at 16 bytes at a time, because it
    /// does not end early.
    pub fn text(&mut self, text: &str) {
        let is_escaped = |byte: &u8| *byte < b' ' || *byte == b'"' || *byte == b'\\';
        if text.as_bytes().iter().fold(false, |found, byte| found | is_escaped(byte)) {
            return self.value(text);
        }
        self.separate();
        self.text.push(b'"');
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(b'"');
    }

    pub fn member(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) {
        self.name(name);
        self.value(value);
    }

    /// Writes a value that is JSON text already.
    pub fn raw(&mut self, json: &[u8]) {
        self.separate();
        self.text.extend_from_slice(json);
    }

    /// The length in bytes of the text since the last [`JsonWriter::take`].
    pub fn written(&self) -> usize {
        self.text.len()
    }

    /// Returns the text since the last call. The text after the call continues the document.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    fn begin(&mut self, bracket: u8) {
        self.separate();
        self.text.push(bracket);
        self.needs_comma = false;
    }

    fn end(&mut self, bracket: u8) {
        self.text.push(bracket);
        self.needs_comma = true;
    }

    fn separate(&mut self) {
        if self.needs_comma {
            self.text.push(b',');
        }
        self.needs_comma = true;
    }
}
