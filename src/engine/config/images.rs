//! The image fields of a sample. Each primary image has its own recipe (compiled list of transforms) and random
//! numbers. Secondary images follow a primary image: they use its recipe and the same random numbers, and so get the
//! same geometry.

use super::fields::{Field, FieldContent, Fields};
use super::requested::{FieldSource, RequestedFields};
use super::{FieldOptions, LoaderKind, LoaderOptions};
use base::error::{Error, Result};
use data::dataset::{FieldKind, IMAGE};
use pixels::augment::{ImageTransforms, Recipe, RecipeKeys, RecipeView};

/// The image fields of a loader.
#[derive(Debug, Clone)]
pub struct Images {
    /// The primary images, then the secondary images. Each group is in the order in which the user requested the
    /// fields.
    list: Vec<ImageField>,
    recipes: Vec<Recipe>,
    /// For each recipe, the index of the boxes field that its transforms need to choose a crop; `None` if they need no
    /// boxes.
    boxes: Vec<Option<usize>>,
}

/// A field whose members are images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageField {
    /// The field's name.
    pub name: String,
    /// Index of the field among the requested fields.
    pub field: usize,
    /// Index of the primary image whose recipe and random numbers this image uses. For a primary image, this is its own
    /// index.
    pub primary: usize,
}

impl Images {
    /// Returns the image fields. Other code refers to them by their index in this list.
    pub fn list(&self) -> &[ImageField] {
        &self.list
    }

    /// Returns the recipes of the primary images. Secondary images use the recipe of their primary image.
    pub fn recipes(&self) -> &[Recipe] {
        &self.recipes
    }

    /// Returns the recipe of the image with the index `image`.
    pub fn recipe(&self, image: usize) -> &Recipe {
        &self.recipes[self.list[image].primary]
    }

    /// Returns the index of the boxes field by which the transforms of the image with the index `image` choose a crop;
    /// `None` if they need no boxes.
    pub fn boxes(&self, image: usize) -> Option<usize> {
        self.boxes[self.list[image].primary]
    }

    /// For each recipe that chooses a crop by boxes, finds the boxes field among `fields` that follows its image.
    ///
    /// # Errors
    /// [`Error::Config`] if no boxes field, or several, follow the image.
    pub(super) fn find_boxes(&mut self, fields: &Fields) -> Result<()> {
        for (primary, recipe) in self.recipes.iter().enumerate() {
            let Some(transform) = recipe.chooses_by_boxes() else { continue };
            let has_this_primary = |field: &Field| match field.content {
                FieldContent::Boxes { image, .. } => self.list[image].primary == primary,
                _ => false,
            };
            let found: Vec<usize> =
                (0..fields.list.len()).filter(|&of| has_this_primary(&fields.list[of])).collect();
            let image = self.list.get(primary).map_or(IMAGE, |image| &image.name);
            let message = match found.as_slice() {
                [only] => {
                    self.boxes[primary] = Some(*only);
                    continue;
                }
                [] => format!(
                    "has no boxes that follow {image:?}, but {transform} chooses its crop by boxes: add \
                     foreload.fields.Boxes(...)"
                ),
                several => format!(
                    "has several boxes that follow {image:?} ({}), but {transform} chooses its crop by one field: keep \
                     one, or put all boxes into one member",
                    listed_names(several.iter().map(|&of| fields.list[of].name.as_str()))
                ),
            };
            return Err(Error::config("fields", message));
        }
        Ok(())
    }

    /// Returns the index of the image that the user requested first.
    pub fn first(&self) -> Option<usize> {
        (0..self.list.len()).min_by_key(|&image| self.list[image].field)
    }

    /// Returns the recipe of the image that the user requested first. If there are no image fields, returns the recipe
    /// that an image field would have.
    pub fn first_recipe(&self) -> &Recipe {
        self.first().map_or(&self.recipes[0], |image| self.recipe(image))
    }

    /// Returns the views of all images, one image after another.
    pub fn views(&self) -> impl Iterator<Item = &RecipeView> {
        (0..self.list.len()).flat_map(|image| self.recipe(image).views())
    }

    /// Whether any transform of the images is random.
    pub fn are_random(&self) -> bool {
        self.recipes.iter().any(Recipe::is_random)
    }

    /// Returns an epoch's keys for random numbers, for each recipe. All keys depend on the field's name, except the
    /// keys of the first primary image.
    pub fn keys(&self, seed: u64, epoch: u64) -> Vec<RecipeKeys> {
        let of = |(primary, recipe): (usize, &Recipe)| match primary {
            0 => recipe.keys(seed, epoch),
            _ => recipe.keys_of_field(seed, epoch, &self.list[primary].name),
        };
        self.recipes.iter().enumerate().map(of).collect()
    }

    /// Returns the index of the image with this name.
    pub fn named(&self, name: &str) -> Option<usize> {
        self.list.iter().position(|image| image.name == name)
    }

    /// Returns the index of the image whose geometry the mask or the boxes of `field` follow: the image that the field
    /// names, or else the first image.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no such image.
    pub(super) fn followed_by(&self, field: &FieldOptions) -> Result<usize> {
        let Some(first) = self.first() else {
            let message = format!(
                "has {}, but no image whose crop it could follow: add \"image\", or read its bytes with \
                 foreload.fields.Bytes({:?})",
                field.shown(),
                field.source
            );
            return Err(Error::config("fields", message));
        };
        let Some(follows) = &field.follows else { return Ok(first) };
        self.named(follows).ok_or_else(|| no_image(field, follows, &self.names()))
    }

    fn names(&self) -> Vec<&str> {
        self.list.iter().map(|image| image.name.as_str()).collect()
    }

    fn new(
        asked: &[RequestedImage<'_>],
        primaries: &[RequestedImage<'_>],
        recipes: Vec<Recipe>,
    ) -> Result<Self> {
        let position = |name: &str| primaries.iter().position(|primary| primary.options.name == name);
        let image = |asked: &RequestedImage<'_>, primary| ImageField {
            name: asked.options.name.clone(),
            field: asked.field,
            primary,
        };
        let mut list: Vec<ImageField> =
            primaries.iter().enumerate().map(|(number, primary)| image(primary, number)).collect();
        for secondary in asked.iter().filter(|asked| position(&asked.options.name).is_none()) {
            let follows = secondary.options.follows.as_deref();
            let follows = follows.or(primaries.first().map(|primary| primary.options.name.as_str()));
            let follows = follows.unwrap_or_default();
            let primary = position(follows).ok_or_else(|| {
                let names: Vec<&str> = asked.iter().map(|image| image.options.name.as_str()).collect();
                match names.contains(&follows) {
                    false => no_image(secondary.options, follows, &names),
                    true => {
                        let message = format!(
                            "has {:?}, which follows {follows:?}, but that follows another image itself: name that \
                             other image",
                            secondary.options.name
                        );
                        Error::config("fields", message)
                    }
                }
            })?;
            list.push(image(secondary, primary));
        }
        let boxes = vec![None; recipes.len()];
        Ok(Self { list, recipes, boxes })
    }
}

#[derive(Clone, Copy)]
struct RequestedImage<'a> {
    field: usize,
    options: &'a FieldOptions,
}

impl LoaderOptions {
    /// Returns the images among the `asked` fields, with their transforms.
    ///
    /// # Errors
    /// [`Error::Config`] that names the setting, the field and the transform.
    pub(super) fn images(&self, asked: Option<&RequestedFields<'_>>) -> Result<Images> {
        let usual = [FieldOptions::named(IMAGE)];
        let usual = RequestedFields::new(&usual, &[]);
        let asked = asked.unwrap_or(&usual).iter().enumerate();
        let is_image = |(_, (source, options)): &(usize, (FieldSource, &FieldOptions))| {
            *source == FieldSource::Member && options.kind() == FieldKind::Image
        };
        let asked: Vec<RequestedImage<'_>> =
            asked.filter(is_image).map(|(field, (_, options))| RequestedImage { field, options }).collect();
        let lists = match &self.transforms {
            Some(ImageTransforms::ByField(lists)) => lists,
            Some(ImageTransforms::Same(list)) => return with_first_as_primary(&asked, self.compiled(list)?),
            None => {
                let recipe = self.default_recipe()?;
                // Images that come as they are need not be of one size, so each has its own geometry.
                let own = |image: &&RequestedImage<'_>| image.options.follows.is_none();
                let own: Vec<_> = match self.kind {
                    LoaderKind::Fields => asked.iter().filter(own).copied().collect(),
                    LoaderKind::Images | LoaderKind::Files => Vec::new(),
                };
                return match own.len() {
                    0 => with_first_as_primary(&asked, recipe),
                    count => Images::new(&asked, &own, vec![recipe; count]),
                };
            }
        };
        let refused = |message: String| Err(Error::config("transforms", message));
        let names: Vec<&str> = asked.iter().map(|image| image.options.name.as_str()).collect();
        if lists.is_empty() {
            return refused(format!("is empty, must name an image field: {}", listed(&names)));
        }
        if let Some(other) = lists.keys().find(|name| !names.contains(&name.as_str())) {
            return refused(format!("names {other:?}, which is not an image field: {}", listed(&names)));
        }
        let (mut primaries, mut recipes) = (Vec::new(), Vec::new());
        for image in &asked {
            let FieldOptions { name, follows, .. } = image.options;
            match (lists.get(name), follows) {
                (Some(list), None) => {
                    primaries.push(*image);
                    recipes.push(self.compiled(list).map_err(|error| error.of_field(name))?);
                }
                (None, Some(_)) => {}
                (Some(_), Some(primary)) => {
                    return refused(format!(
                        "has a list for {name:?}, which follows {primary:?} and uses its transforms: remove the list, \
                         or follows="
                    ));
                }
                (None, None) => {
                    return refused(format!(
                        "has no list for the image {name:?}: add one, or let it follow another image with \
                         fields.Image({name:?}, follows=...)"
                    ));
                }
            }
        }
        Images::new(&asked, &primaries, recipes)
    }
}

fn with_first_as_primary(asked: &[RequestedImage<'_>], recipe: Recipe) -> Result<Images> {
    let first = asked.iter().find(|image| image.options.follows.is_none());
    Images::new(asked, first.map(std::slice::from_ref).unwrap_or_default(), vec![recipe])
}

fn no_image(field: &FieldOptions, follows: &str, names: &[&str]) -> Error {
    let message = format!(
        "has {:?}, which follows {follows:?}, but that is not an image field: {}",
        field.name,
        listed(names)
    );
    Error::config("fields", message)
}

fn listed(names: &[&str]) -> String {
    match names {
        [] => "there is none".into(),
        _ => format!("there are {}", listed_names(names.iter().copied())),
    }
}

fn listed_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
