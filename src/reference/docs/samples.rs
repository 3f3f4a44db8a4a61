//! Examples of requests in curl, Python and JavaScript.

use serde_json::{Map, Value};

use crate::http::Method;
use crate::model::{Field, Resource};
use crate::reference::openapi::example_of;

/// A language of the examples.
#[derive(Clone, Copy)]
pub struct Language {
    /// For anchors and classes.
    pub id: &'static str,
    /// The name on the page.
    pub name: &'static str,
}

impl Language {
    /// Every language.
    pub const ALL: [Language; 3] = [
        Language { id: "curl", name: "curl" },
        Language { id: "python", name: "Python" },
        Language { id: "javascript", name: "JavaScript" },
    ];
}

/// One example.
pub struct Sample {
    /// Its language.
    pub language: Language,
    /// The code.
    pub code: String,
}

/// The request in every language. `address` is an absolute URL without characters that need quoting.
pub fn of(method: &Method, address: &str, body: Option<&Value>) -> Vec<Sample> {
    let codes = [curl(method, address, body), python(method, address, body), javascript(method, address, body)];
    Language::ALL.into_iter().zip(codes).map(|(language, code)| Sample { language, code }).collect()
}

/// A body with the required fields and two others.
pub fn short(resource: &'static Resource) -> Value {
    let (required, others): (Vec<_>, Vec<_>) = resource.fields.iter().partition(|field| field.required);
    let few = required.into_iter().chain(others.into_iter().take(2));
    let body: Map<String, Value> = few.map(|field: &Field| (field.name.to_owned(), example_of(field))).collect();
    Value::Object(body)
}

fn is_write(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::DELETE)
}

fn curl(method: &Method, address: &str, body: Option<&Value>) -> String {
    let mut lines = match *method {
        Method::GET => vec![format!("curl '{address}'")],
        _ => vec![format!("curl -X {method} '{address}'")],
    };
    lines.push("  -H \"Authorization: Bearer $TENANTDESK_KEY\"".to_owned());
    if is_write(method) {
        lines.push("  -H \"Idempotency-Key: $(uuidgen)\"".to_owned());
    }
    if let Some(body) = body {
        lines.push("  -H 'Content-Type: application/json'".to_owned());
        lines.push(format!("  -d '{}'", format!("{body:#}").replace('\'', "'\\''")));
    }
    lines.join(" \\\n")
}

fn python(method: &Method, address: &str, body: Option<&Value>) -> String {
    let mut code = String::from(if is_write(method) { "import os, uuid\n" } else { "import os\n" });
    code.push_str("import requests\n\n");
    code.push_str(&format!("response = requests.{}(\n    \"{address}\",\n", method.as_str().to_lowercase()));
    code.push_str("    headers={\n        \"Authorization\": f\"Bearer {os.environ['TENANTDESK_KEY']}\",\n");
    if is_write(method) {
        code.push_str("        \"Idempotency-Key\": str(uuid.uuid4()),\n");
    }
    code.push_str("    },\n");
    if let Some(Value::Object(members)) = body {
        code.push_str("    json={\n");
        for (name, value) in members {
            code.push_str(&format!("        \"{name}\": {},\n", python_literal(value)));
        }
        code.push_str("    },\n");
    }
    code.push_str("    timeout=10,\n)\nresponse.raise_for_status()\n");
    if *method != Method::DELETE {
        code.push_str("print(response.json())\n");
    }
    code.trim_end().to_owned()
}

/// Strings and numbers are written as in JSON.
fn python_literal(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        other => other.to_string(),
    }
}

fn javascript(method: &Method, address: &str, body: Option<&Value>) -> String {
    let mut code = format!("const response = await fetch(\"{address}\", {{\n");
    if *method != Method::GET {
        code.push_str(&format!("  method: \"{}\",\n", method.as_str()));
    }
    code.push_str("  headers: {\n    \"Authorization\": `Bearer ${process.env.TENANTDESK_KEY}`,\n");
    if is_write(method) {
        code.push_str("    \"Idempotency-Key\": crypto.randomUUID(),\n");
    }
    if body.is_some() {
        code.push_str("    \"Content-Type\": \"application/json\",\n");
    }
    code.push_str("  },\n");
    if let Some(body) = body {
        let indented = format!("{body:#}").replace('\n', "\n  ");
        code.push_str(&format!("  body: JSON.stringify({indented}),\n"));
    }
    code.push_str("});\nif (!response.ok) throw new Error((await response.json()).error.message);\n");
    if *method != Method::DELETE {
        code.push_str("console.log(await response.json());\n");
    }
    code.trim_end().to_owned()
}
