//! What stands under the pictures: the sample's name, and what was drawn, in torchvision's terms.

use crate::augment::DrawnView;
use crate::dataset::DatasetIndex;
use crate::error::{Error, Result};
use crate::schedule::Draw;
use serde_json::Value;

/// The name of a sample, in lines: its number, its class and its file.
pub(super) fn of_sample(index: &DatasetIndex, draw: Draw) -> Vec<String> {
    let mut lines = vec![format!("sample {}", draw.sample)];
    if index.is_labeled() {
        let label = index.label(draw.sample);
        let class = index.classes().get(label as usize);
        lines.push(class.map_or_else(|| format!("class {label}"), |name| format!("class {label} {name}")));
    }
    let path = index.path(index.extent(draw.sample).file);
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    lines.extend(name);
    lines
}

/// What was drawn for a view, in lines: the crop, the flip, and each operation.
pub(super) fn of_view(epoch: u64, number: usize, drawn: &DrawnView) -> Result<Vec<String>> {
    let ([x, y], [width, height]) = (drawn.first_pixel(), drawn.source_pixels());
    let mut lines = vec![format!("epoch {epoch}, view {number}"), format!("crop {x} {y} {width}x{height}")];
    let added = drawn.added_before_resize();
    if added != [0; 4] {
        lines.push(format!("pad {}", added.map(|n| n.to_string()).join(" ")));
    }
    let flips = [(drawn.view.flip, "horizontal_flip"), (drawn.view.vertical_flip, "vertical_flip")];
    lines.extend(flips.into_iter().filter(|(is_drawn, _)| *is_drawn).map(|(_, name)| name.to_owned()));
    let listed = |value: serde_json::Result<Value>| {
        let value = value.map_err(|error| Error::Internal(error.to_string()))?;
        Ok::<_, Error>(value.as_array().into_iter().flatten().map(of_op).collect::<Vec<_>>())
    };
    lines.extend(listed(serde_json::to_value(&drawn.ops))?);
    lines.extend(listed(serde_json::to_value(&drawn.erasures))?);
    Ok(lines)
}

/// An operation and its numbers: `adjust_hue 0.05`, with their names where there are several.
fn of_op(op: &Value) -> String {
    let Value::Object(parameters) = op else { return op.to_string() };
    // Erasures behind Normalize have no name of their own.
    let name = parameters.get("op").and_then(Value::as_str).unwrap_or("erase");
    let given = parameters.iter().filter(|(parameter, value)| *parameter != "op" && !value.is_null());
    let given: Vec<(&String, &Value)> = given.collect();
    let mut words = vec![name.to_owned()];
    for (parameter, value) in &given {
        words.push(match (parameter.as_str(), value) {
            ("chains", Value::Array(chains)) => {
                let of_chain =
                    |chain: &Value| chain.as_array().into_iter().flatten().map(of_op).collect::<Vec<_>>();
                let chains = chains.iter().map(|chain| format!("[{}]", of_chain(chain).join(", ")));
                chains.collect::<Vec<_>>().join(" ")
            }
            (_, value) if given.len() == 1 => number(value),
            (parameter, value) => format!("{parameter}={}", number(value)),
        });
    }
    words.join(" ")
}

/// A parameter, its numbers with up to three digits behind the point.
fn number(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded = (number.as_f64().unwrap_or(f64::NAN) * 1000.0).round() / 1000.0;
            rounded.to_string()
        }
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(number).collect::<Vec<_>>().join(","),
        Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_are_named_with_their_numbers() {
        assert_eq!(of_op(&json!({"op": "adjust_hue", "hue_factor": -0.04567})), "adjust_hue -0.046");
        assert_eq!(of_op(&json!({"op": "affine", "translate": [3, 0], "fill": null})), "affine 3,0");
        assert_eq!(of_op(&json!({"i": 1, "j": 2, "h": 3, "w": 4})), "erase h=3 i=1 j=2 w=4");
        let chains = json!({"op": "augmix", "chains": [[{"op": "invert"}, {"op": "posterize", "bits": 4}]]});
        assert_eq!(of_op(&chains), "augmix [invert, posterize 4]");
    }
}
