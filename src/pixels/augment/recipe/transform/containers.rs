//! Containers: transforms that apply some of the transforms inside of them, in some order.

use super::table::transform;
use super::values::{BadParameter, check_choice, check_probability};
use super::{PixelDraw, PixelPlace, PixelTransform, Transform};
use crate::augment::recipe::distributions::shuffle;

transform! {
    /// Applies all transforms of a list, or none of them, at random.
    pub RandomApply(Container) {
        /// Transforms that change pixels, flips, and other containers.
        transforms: Vec<Transform>;
        /// The probability that they are applied.
        p: f64 = 0.5;
    }
}

impl PixelTransform for RandomApply {
    fn check(&self) -> Result<(), BadParameter> {
        check_probability("p", self.p)?;
        check_within("RandomApply", &self.transforms)
    }

    fn children(&self) -> Option<&[Transform]> {
        Some(&self.transforms)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        if draw.with_probability(self.p) {
            (0..self.transforms.len()).try_for_each(|child| draw.child(child))?;
        }
        Ok(())
    }
}

transform! {
    /// Applies one transform of a list.
    pub RandomChoice(Choice) {
        /// Transforms that change pixels, flips, and other containers. For `mix=` of a loader: `MixUp` and `CutMix`, of
        /// which one is drawn for each batch.
        transforms: Vec<Transform>, typed("Sequence[Transform] | Sequence[Mix]");
        /// The weight of each transform. Weights need not add up to 1. None: all are equally likely.
        p: Option<Vec<f64>> = null, must("a list of weights, one for each transform");
    }
}

impl PixelTransform for RandomChoice {
    fn check(&self) -> Result<(), BadParameter> {
        check_within("RandomChoice", &self.transforms)?;
        check_choice(self.transforms.len(), self.p.as_deref())
    }

    fn children(&self) -> Option<&[Transform]> {
        Some(&self.transforms)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let count = self.transforms.len();
        let Some(weights) = &self.p else {
            let chosen = draw.stream.below(count as u64) as usize;
            return draw.child(chosen);
        };
        let mut left = draw.stream.unit() * weights.iter().sum::<f64>();
        let chosen = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        // If rounding errors leave no choice, the last transform with a positive weight is chosen.
        let last = || weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0);
        draw.child(chosen.unwrap_or_else(last))
    }
}

transform! {
    /// Applies all transforms of a list in random order.
    pub RandomOrder(Container) {
        /// Transforms that change pixels, flips, and other containers.
        transforms: Vec<Transform>;
    }
}

impl PixelTransform for RandomOrder {
    fn check(&self) -> Result<(), BadParameter> {
        check_within("RandomOrder", &self.transforms)
    }

    fn children(&self) -> Option<&[Transform]> {
        Some(&self.transforms)
    }

    fn draw(&self, draw: &mut PixelDraw<'_>) -> Result<(), String> {
        let mut order: Vec<usize> = (0..self.transforms.len()).collect();
        shuffle(&mut draw.stream, &mut order);
        order.into_iter().try_for_each(|child| draw.child(child))
    }
}

fn check_within(container: &'static str, transforms: &[Transform]) -> Result<(), BadParameter> {
    let all = transforms.len();
    for (number, transform) in transforms.iter().enumerate() {
        let wrong = |what: String| {
            let message = format!("step {} of {all}, {}: {what}", number + 1, transform.name());
            Err(BadParameter::new("transforms", message))
        };
        if transform.pixels().is_none() && !transform.mirrors() {
            return wrong(format!(
                "cannot be in {container}, which takes only transforms that change pixels, and flips: put it before \
                 the {container}"
            ));
        }
        if let Err(BadParameter { parameter, message }) = transform.check() {
            return wrong(format!("{parameter}: {message}"));
        }
    }
    Ok(())
}

pub(super) fn check_children_places(transforms: &[Transform], place: PixelPlace) -> Result<(), String> {
    let pixels = transforms.iter().filter_map(|transform| Some((transform.name(), transform.pixels()?)));
    for (name, transform) in pixels {
        transform.check_place(place).map_err(|why| format!("contains {name}, which {why}"))?;
    }
    Ok(())
}
