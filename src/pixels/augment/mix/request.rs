//! The user's list of how to mix the images of a batch: MixUp, CutMix, or a random choice of these, with torchvision
//! v2's names, parameters and defaults.

use crate::augment::recipe::table::{ParameterKind, parameter_types, transform};
use crate::augment::recipe::{BadParameter, check_choice};
use base::error::{Error, Result};
use base::json;
use serde::{Deserialize, Serialize};
use serde_json::Number;

parameter_types! {
    Number: ParameterKind::new("int", "classes");
}

transform! {
    /// Blends each image with its partner, λ·image + (1 - λ)·partner, and their labels in the same way.
    ///
    /// λ is drawn for each global batch from Beta(alpha, alpha), as in Zhang et al., "mixup: Beyond Empirical Risk
    /// Minimization".
    #[derive(Serialize)]
    pub(in crate::augment) MixUp(Mix) {
        /// Both parameters of the Beta distribution, above 0.
        alpha: f64 = 1.0, checked_by("above_0");
        /// The length of the soft labels, float32 [n, num_classes]. None: class numbers are not mixed, and
        /// `Batch.mixed` has those of the partners, and λ.
        num_classes: Option<Number> = null;
    }
}

transform! {
    /// Pastes a rectangle of the partner into each image, and mixes their labels in proportion to the areas.
    ///
    /// λ and the rectangle are drawn for each global batch, λ from Beta(alpha, alpha). The sides of the rectangle are
    /// √(1 - λ) of the image's, and its centre is any pixel. λ then becomes the share of the image that is left. This
    /// follows torchvision, and Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with
    /// Localizable Features".
    #[derive(Serialize)]
    pub(in crate::augment) CutMix(Mix) {
        /// Both parameters of the Beta distribution, above 0.
        alpha: f64 = 1.0, checked_by("above_0");
        /// The length of the soft labels, as for `MixUp`.
        num_classes: Option<Number> = null;
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum MixTransform {
    MixUp(MixUp),
    CutMix(CutMix),
    RandomChoice {
        transforms: Vec<MixTransform>,
        /// The weight of each transform in the choice; `None`: all are equally likely.
        #[serde(default)]
        p: Option<Vec<f64>>,
    },
}

/// How the images of a batch are mixed: one of the [choices](MixChoice), at random.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixing {
    text: String,
    pub(super) choices: Vec<MixChoice>,
    num_classes: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MixChoice {
    pub kind: MixKind,
    /// Both parameters of the Beta distribution.
    pub alpha: f64,
    /// The index of this choice among the choices of the same kind in the list. It is part of the key of the random
    /// numbers.
    pub nth: u32,
    /// The probability that this choice or an earlier choice is taken; 1 for the last choice.
    pub up_to: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MixKind {
    MixUp,
    CutMix,
}

impl MixKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MixUp => "MixUp",
            Self::CutMix => "CutMix",
        }
    }
}

impl Mixing {
    /// Reads a JSON text: a list of one transform, for example `[{"MixUp": {"alpha": 0.2, "num_classes": 1000}}]` or
    /// `[{"RandomChoice": {"transforms": [...], "p": [1, 3]}}]`.
    ///
    /// # Errors
    /// [`Error::Config`] for `mix`, naming the transform and its parameter.
    pub fn from_json(text: &str) -> Result<Self> {
        let list = json::settings(text).map_err(|wrong| refused(format!("is {wrong}")))?;
        let list: Vec<MixTransform> = serde_json::from_value(list).map_err(|error| {
            refused(format!("{error}: must be one of MixUp, CutMix, or RandomChoice of these"))
        })?;
        Self::new(&list)
    }

    fn new(list: &[MixTransform]) -> Result<Self> {
        let (transforms, weights) = match list {
            [MixTransform::RandomChoice { transforms, p }] => (&transforms[..], p.as_deref()),
            [_] => (list, None),
            [] => return Err(refused("is empty: give one transform, or omit mix=".into())),
            _ => {
                let message = "has several transforms, but a batch is mixed once: use RandomChoice([...]) to draw one \
                               of them for each batch";
                return Err(refused(message.into()));
            }
        };
        check_choice(transforms.len(), weights).map_err(|BadParameter { parameter, message }| {
            refused(format!("RandomChoice: {parameter}: {message}"))
        })?;
        let weight = |number: usize| weights.map_or(1.0, |weights| weights[number]);
        let total: f64 = (0..transforms.len()).map(weight).sum();
        let (mut choices, mut sum, mut lengths) = (Vec::<MixChoice>::new(), 0.0, Vec::new());
        for (number, transform) in transforms.iter().enumerate() {
            let (kind, alpha, num_classes) = match transform {
                MixTransform::MixUp(mix) => (MixKind::MixUp, mix.alpha, &mix.num_classes),
                MixTransform::CutMix(mix) => (MixKind::CutMix, mix.alpha, &mix.num_classes),
                MixTransform::RandomChoice { .. } => {
                    let message = "RandomChoice: contains a RandomChoice, must contain only MixUp and CutMix";
                    return Err(refused(message.into()));
                }
            };
            let name = kind.name();
            if !(alpha > 0.0 && alpha.is_finite()) {
                return Err(refused(format!("{name}: alpha: is {alpha}, must be a number above 0")));
            }
            lengths.push(
                num_classes
                    .as_ref()
                    .map(classes)
                    .transpose()
                    .map_err(|wrong| refused(format!("{name}: num_classes: {wrong}")))?,
            );
            let nth = choices.iter().filter(|choice| choice.kind == kind).count() as u32;
            sum += weight(number);
            choices.push(MixChoice { kind, alpha, nth, up_to: sum / total });
        }
        let num_classes = lengths[0];
        if let Some(other) = lengths.iter().find(|length| **length != num_classes) {
            let shown = |length: &Option<u32>| length.map_or("None".to_owned(), |length| length.to_string());
            return Err(refused(format!(
                "RandomChoice: num_classes: is {} and {}, must be the same for all transforms",
                shown(&num_classes),
                shown(other)
            )));
        }
        // Choices of weight 0 are removed, so that rounding cannot choose them.
        let mut number = 0..;
        choices.retain(|_| number.next().is_some_and(|number| weight(number) > 0.0));
        if let Some(last) = choices.last_mut() {
            last.up_to = 1.0;
        }
        let text = serde_json::to_string(list).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(Self { text, choices, num_classes })
    }

    /// Returns the list in JSON, with all parameters, as a checkpoint keeps it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the length of the soft labels, or `None` if class numbers are not mixed.
    pub fn num_classes(&self) -> Option<u32> {
        self.num_classes
    }

    /// Returns whether a rectangle may be pasted (CutMix), which requires that all images have the same size.
    pub fn pastes(&self) -> bool {
        self.choices.iter().any(|choice| choice.kind == MixKind::CutMix)
    }
}

fn classes(given: &Number) -> Result<u32, String> {
    let number = given.as_u64().and_then(|number| u32::try_from(number).ok());
    let wrong = || format!("is {given}, must be a whole number from 1 to {}, or None", u32::MAX);
    number.filter(|number| *number > 0).ok_or_else(wrong)
}

fn refused(message: String) -> Error {
    Error::config("mix", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_with_its_defaults() {
        let mixing = Mixing::from_json(r#"[{"MixUp": {}}]"#).unwrap();
        assert_eq!((mixing.choices[0].alpha, mixing.num_classes(), mixing.pastes()), (1.0, None, false));
        assert_eq!(mixing.text(), r#"[{"MixUp":{"alpha":1.0,"num_classes":null}}]"#);
        assert_eq!(Mixing::from_json(mixing.text()).unwrap(), mixing);
        let choice = r#"[{"RandomChoice": {"transforms": [{"MixUp": {"alpha": 0.2, "num_classes": 7}},
            {"CutMix": {"num_classes": 7}}, {"MixUp": {"num_classes": 7}}], "p": [1, 0, 3]}}]"#;
        let mixing = Mixing::from_json(choice).unwrap();
        let parts: Vec<_> = mixing.choices.iter().map(|c| (c.kind, c.alpha, c.nth, c.up_to)).collect();
        assert_eq!(parts, [(MixKind::MixUp, 0.2, 0, 0.25), (MixKind::MixUp, 1.0, 1, 1.0)]);
        assert_eq!((mixing.num_classes(), mixing.pastes()), (Some(7), false));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        for (list, said) in [
            ("[]", "is empty"),
            (r#"[{"MixUp": {}}, {"CutMix": {}}]"#, "several transforms"),
            (r#"[{"MixUp": {"alpha": 0}}]"#, "MixUp: alpha: is 0"),
            (r#"[{"CutMix": {"alpha": -1.5}}]"#, "CutMix: alpha: is -1.5"),
            (
                r#"[{"CutMix": {"num_classes": 0}}]"#,
                "CutMix: num_classes: is 0, must be a whole number from 1 to",
            ),
            (r#"[{"CutMix": {"num_classes": -1}}]"#, "CutMix: num_classes: is -1, must be"),
            (r#"[{"CutMix": {"num_classes": 1e30}}]"#, "CutMix: num_classes: is 1e+30, must be"),
            (r#"[{"CutMix": {"beta": 1}}]"#, "unknown field `beta`"),
            (r#"[{"Resize": {}}]"#, "unknown variant `Resize`"),
            (r#"[{"RandomChoice": {"transforms": []}}]"#, "transforms: is empty"),
            (r#"[{"RandomChoice": {"transforms": [{"MixUp": {}}], "p": [1, 2]}}]"#, "p: has 2 weights"),
            (r#"[{"RandomChoice": {"transforms": [{"MixUp": {}}], "p": [-1]}}]"#, "p: is [-1.0]"),
            (r#"[{"RandomChoice": {"transforms": [{"MixUp": {}}], "p": [0]}}]"#, "p: is [0.0]"),
            (
                r#"[{"RandomChoice": {"transforms": [{"MixUp": {"num_classes": 3}}, {"CutMix": {}}]}}]"#,
                "num_classes: is 3 and None",
            ),
            (
                r#"[{"RandomChoice": {"transforms": [{"RandomChoice": {"transforms": []}}]}}]"#,
                "contains a RandomChoice",
            ),
            ("{", "not JSON"),
        ] {
            let error = Mixing::from_json(list).unwrap_err().to_string();
            assert!(error.starts_with("config: mix: ") && error.contains(said), "{list}: {error}");
        }
    }
}
