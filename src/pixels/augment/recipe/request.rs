//! The user's request for images: lists of transforms, views, and the fields that they apply to. The request is one
//! JSON text from Python or a file.

use super::transform::{BadParameter, SizeParameter, Transform};
use crate::augment::ImageSize;
use base::error::{Error, Result};
use base::json;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Several views of an image. Each is an independent draw of the same list.
#[derive(Debug, Clone, PartialEq)]
pub struct Views {
    /// The number of views.
    pub n: u32,
    /// The transforms that make each view.
    pub transforms: Vec<Transform>,
}

/// The user's request: one list that makes one image, or several views of each image.
#[derive(Debug, Clone, PartialEq)]
pub struct Transforms {
    pub(super) returns_tuple: bool,
    /// The lists, each with the number of its views.
    pub(super) views: Vec<Views>,
}

const MAX_VIEWS: u32 = 64;

impl Transforms {
    /// Requests one list, which makes one image of each sample.
    pub fn single(transforms: Vec<Transform>) -> Self {
        Self { returns_tuple: false, views: vec![Views { n: 1, transforms }] }
    }

    /// Requests several views of each image; batches then hold a tensor for each view.
    pub fn views(views: Vec<Views>) -> Self {
        Self { returns_tuple: true, views }
    }

    /// Reads a JSON text: a list of transforms, each `{"NAME": {PARAMETERS}}`; or `{"Views": {"n": 2, "transforms":
    /// [...]}}`, or a list of these.
    ///
    /// # Errors
    /// [`Error::Config`] for `transforms`. It names the transform and its place in the list.
    pub fn from_json(text: &str) -> Result<Self> {
        Self::from_value(&parsed(text)?)
    }

    /// Returns these transforms with the size of a bucket in place of `"bucket"`, and whether any had that size.
    fn in_bucket(mut self, bucket: ImageSize) -> (Self, bool) {
        let of_bucket = SizeParameter::Both([bucket.height, bucket.width]);
        let transforms = self.views.iter_mut().flat_map(|views| &mut views.transforms);
        let mut any = false;
        for size in transforms.filter_map(Transform::size_mut) {
            if let SizeParameter::Bucket(_) = size {
                (*size, any) = (of_bucket, true);
            }
        }
        (self, any)
    }

    fn from_value(value: &Value) -> Result<Self> {
        if let Some(views) = of_views(value)? {
            return Ok(Self::views(vec![views]));
        }
        let Value::Array(list) = value else {
            return Err(refused("must be a list of transforms, a Views, or a list of Views"));
        };
        let views = list.iter().map(of_views).collect::<Result<Vec<_>>>()?;
        let count = views.iter().flatten().count();
        if count == 0 {
            return Ok(Self::single(of_list(list, "")?));
        }
        if count < list.len() {
            return Err(refused(
                "mixes Views with other transforms: put these transforms into the list of each Views",
            ));
        }
        Ok(Self::views(views.into_iter().flatten().collect()))
    }

    pub(super) fn check(&self) -> Result<()> {
        let all: u64 = self.views.iter().map(|views| u64::from(views.n)).sum();
        if self.views.iter().any(|views| views.n == 0) || all == 0 {
            return Err(refused("Views: n: is 0, must be at least 1"));
        } else if all > u64::from(MAX_VIEWS) {
            return Err(refused(&format!("Views: n: is {all} in total, must be at most {MAX_VIEWS}")));
        }
        for (group, views) in self.views.iter().enumerate() {
            for (number, transform) in views.transforms.iter().enumerate() {
                transform.check().map_err(|BadParameter { parameter, message }| {
                    self.refusal(group, number, &format!("{parameter}: {message}"))
                })?;
            }
        }
        Ok(())
    }

    /// Returns an error about transform number `number` of list `group`, with the reason `message`.
    pub(super) fn refusal(&self, group: usize, number: usize, message: &str) -> Error {
        let list = &self.views[group].transforms;
        let within = match self.views.len() {
            1 => String::new(),
            all => format!("Views {} of {all}, ", group + 1),
        };
        refused(&format!("{within}{}: {message}", place(number, list.len(), list[number].name())))
    }
}

/// The user's request for all images of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageTransforms {
    /// One list for all image fields: the first field is the primary field, and the other fields follow its geometry.
    Same(Transforms),
    /// A list, or views, for each image field by its name.
    ByField(BTreeMap<String, Transforms>),
}

impl ImageTransforms {
    /// Returns these transforms with the size of a bucket in place of `"bucket"`; `None` if no transform has that size.
    pub fn in_bucket(&self, bucket: ImageSize) -> Option<Self> {
        let (made, any) = match self {
            Self::Same(list) => {
                let (list, any) = list.clone().in_bucket(bucket);
                (Self::Same(list), any)
            }
            Self::ByField(lists) => {
                let each = lists.iter().map(|(name, list)| (name.clone(), list.clone().in_bucket(bucket)));
                let lists: BTreeMap<_, _> = each.collect();
                let any = lists.values().any(|(_, any)| *any);
                (Self::ByField(lists.into_iter().map(|(name, (list, _))| (name, list)).collect()), any)
            }
        };
        any.then_some(made)
    }

    /// Reads a JSON text: either a text for [`Transforms::from_json`], or an object with such a value for each field,
    /// `{"left.jpg": [...]}`.
    ///
    /// # Errors
    /// [`Error::Config`] for `transforms`. It names the field, the transform and its place in the list.
    pub fn from_json(text: &str) -> Result<Self> {
        match parsed(text)? {
            // The keys of members are in lower case, so a field is called "Views" only if the user names it so.
            Value::Object(fields) if !fields.contains_key("Views") => {
                let entry = |(field, value): (String, Value)| {
                    let transforms =
                        Transforms::from_value(&value).map_err(|error| error.of_field(&field))?;
                    Ok((field, transforms))
                };
                fields.into_iter().map(entry).collect::<Result<_>>().map(Self::ByField)
            }
            value => Transforms::from_value(&value).map(Self::Same),
        }
    }
}

impl From<Transforms> for ImageTransforms {
    fn from(all: Transforms) -> Self {
        Self::Same(all)
    }
}

fn parsed(text: &str) -> Result<Value> {
    json::settings(text).map_err(|wrong| refused(&format!("is {wrong}")))
}

fn place(number: usize, all: usize, name: &str) -> String {
    format!("step {} of {all}, {name}", number + 1)
}

fn refused(message: &str) -> Error {
    Error::config("transforms", message)
}

/// Reads `{"Views": {"n": 2, "transforms": [...]}}`. Returns `None` for anything else.
fn of_views(value: &Value) -> Result<Option<Views>> {
    let Some(request) = value.get("Views") else { return Ok(None) };
    let n = request.get("n").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let list = request.get("transforms").and_then(Value::as_array);
    let (Some(n), Some(list)) = (n, list) else {
        return Err(refused("Views: must have n, a whole number, and transforms, a list"));
    };
    Ok(Some(Views { n, transforms: of_list(list, "Views: ")? }))
}

fn of_list(list: &[Value], within: &str) -> Result<Vec<Transform>> {
    let transform = |(number, value): (usize, &Value)| {
        let name = match value {
            Value::Object(map) => map.keys().next().map_or("{}", String::as_str),
            _ => "a transform",
        };
        Transform::deserialize(value)
            .map_err(|error| refused(&format!("{within}{}: {error}", place(number, list.len(), name))))
    };
    list.iter().enumerate().map(transform).collect()
}
