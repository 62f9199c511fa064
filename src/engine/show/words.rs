//! The texts under the pictures: the sample's name, and the random draws, in torchvision's terms.

use crate::pipeline::PreviewMix;
use base::error::{Error, Result};
use data::dataset::DatasetIndex;
use data::schedule::Draw;
use pixels::augment::{DrawnView, MixRegion};
use serde_json::{Map, Value};

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

pub(super) fn of_view(epoch: u64, number: usize, drawn: &DrawnView) -> Result<Vec<String>> {
    let ([x, y], [width, height]) = (drawn.first_pixel(), drawn.source_pixels());
    let mut lines = vec![format!("epoch {epoch}, view {number}"), format!("crop {x} {y} {width}x{height}")];
    let added = drawn.added_before_resize();
    if added != [0; 4] {
        lines.push(format!("pad {}", added.map(|n| n.to_string()).join(" ")));
    }
    let (x, y) = (&drawn.view.x, &drawn.view.y);
    let (resized, output) = ((x.resized, y.resized), (drawn.width, drawn.height));
    if (x.offset, y.offset) != (0, 0) || output != resized {
        if resized != (x.length, y.length) {
            lines.push(format!("resized {}x{}", resized.0, resized.1));
        }
        lines.push(format!("window {} {} {}x{}", x.offset, y.offset, output.0, output.1));
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

/// Returns the lines that describe the mixing of an image: the transform with its λ and its rectangle (left, top,
/// right, bottom), and the partner's lines from `named`.
pub(super) fn of_mix(mixed: &PreviewMix, named: impl Fn(Draw) -> Vec<String>) -> Vec<String> {
    let PreviewMix::With { partner, drawn } = mixed else {
        return vec!["not mixed: no partner in this epoch".into()];
    };
    let mut line = format!("{} lam={}", drawn.name(), rounded(drawn.share));
    if let MixRegion::Rectangle { left, top, right, bottom } = drawn.region {
        line += &format!(" box={left},{top},{right},{bottom}");
    }
    let mut partner = named(*partner);
    if let Some(name) = partner.first_mut() {
        name.insert_str(0, "with ");
    }
    std::iter::once(line).chain(partner).collect()
}

/// Returns an operation and its parameter, such as `adjust_hue 0.05`. Several parameters are shown with their names.
fn of_op(op: &Value) -> String {
    let Value::Object(parameters) = op else { return op.to_string() };
    // Erasures after Normalize have no operation name.
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
            ("v", Value::Object(written)) => written_by_erasing(written),
            (_, value) if given.len() == 1 => number(value),
            (parameter, value) => format!("{parameter}={}", number(value)),
        });
    }
    words.join(" ")
}

fn number(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => rounded(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(number).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

fn rounded(number: f64) -> String {
    ((number * 1000.0).round() / 1000.0).to_string()
}

/// Returns the fill of an erasure: `v=0.1,0.2,0.3`, or noise with its mean and standard deviation.
fn written_by_erasing(written: &Map<String, Value>) -> String {
    let noise = written.get("noise").and_then(Value::as_object);
    let numbers = noise.into_iter().flatten().filter(|(name, _)| *name != "key");
    let numbers: Vec<_> = numbers.map(|(name, value)| format!(" {name}={}", number(value))).collect();
    match written.get("values") {
        Some(values) => format!("v={}", number(values)),
        None => format!("v=noise{}", numbers.concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pixels::augment::{DrawnMix, Fidelity, MemoryFormat, Recipe, Transforms};
    use serde_json::json;

    /// Returns the lines for the first view that the transforms `list` draw for an image of 500×375 pixels.
    fn lines(list: &str) -> Vec<String> {
        let request = Transforms::from_json(list).unwrap();
        let recipe = Recipe::new(&request, MemoryFormat::Nchw, Fidelity::Fast).unwrap();
        let drawn = recipe.draw(&recipe.keys(5, 0), 3, 0, (500, 375)).unwrap();
        of_view(2, 0, &drawn.views()[0]).unwrap()
    }

    #[test]
    fn what_is_cut_after_a_resize_is_told() {
        let resized = lines(r#"[{"Resize": {"size": 256}}, {"CenterCrop": {"size": [224, 224]}}]"#);
        assert_eq!(
            resized,
            ["epoch 2, view 0", "crop 0 0 500x375", "resized 341x256", "window 58 16 224x224"]
        );
        let cut = lines(r#"[{"RandomCrop": {"size": [32, 32], "padding": 4}}]"#);
        assert_eq!(cut[1], "crop 0 0 500x375");
        assert!(cut[2].starts_with("window ") && cut[2].ends_with(" 32x32"), "{cut:?}");
        assert_eq!(lines(r#"[{"RandomResizedCrop": {"size": [32, 32]}}]"#).len(), 2);
    }

    #[test]
    fn a_pair_is_named_with_its_share() {
        let of_mix = |mixed| of_mix(&mixed, |draw| vec![format!("sample {}", draw.sample), "class 2".into()]);
        let region = MixRegion::Rectangle { left: 79, top: 0, right: 151, bottom: 90 };
        let with = |region| PreviewMix::With {
            partner: Draw::first(17),
            drawn: DrawnMix { share: 0.81919, region },
        };
        assert_eq!(of_mix(with(region)), ["CutMix lam=0.819 box=79,0,151,90", "with sample 17", "class 2"]);
        let blended = of_mix(with(MixRegion::Everywhere));
        assert_eq!(blended, ["MixUp lam=0.819", "with sample 17", "class 2"]);
        assert_eq!(of_mix(PreviewMix::Alone), ["not mixed: no partner in this epoch"]);
    }

    #[test]
    fn operations_are_named_with_their_numbers() {
        assert_eq!(of_op(&json!({"op": "adjust_hue", "hue_factor": -0.04567})), "adjust_hue -0.046");
        assert_eq!(of_op(&json!({"op": "affine", "translate": [3, 0], "fill": null})), "affine 3,0");
        let erased = json!({"i": 1, "j": 2, "h": 3, "w": 4, "v": {"values": [0.1, 0.2, 0.5]}});
        assert_eq!(of_op(&erased), "erase h=3 i=1 j=2 v=0.1,0.2,0.5 w=4");
        let noise = json!({"h": 3, "v": {"noise": {"key": 77, "mean": [0.0], "std": [1.25]}}});
        assert_eq!(of_op(&noise), "erase h=3 v=noise mean=0 std=1.25");
        let chains = json!({"op": "augmix", "chains": [[{"op": "invert"}, {"op": "posterize", "bits": 4}]]});
        assert_eq!(of_op(&chains), "augmix [invert, posterize 4]");
    }
}
