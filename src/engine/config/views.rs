//! Where the views of a field are in a batch.

use crate::batch::Ticket;
use pixels::augment::Recipe;
use std::ops::Range;

/// The positions of a field's views in a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ViewPlaces {
    /// Index of the first view among the tensors or the value lists of the batch.
    pub first: usize,
    /// Number of views. Their indices are consecutive, from `first` on.
    pub views: usize,
    /// Whether the indices refer to tensors or to value lists.
    pub kind: ViewKind,
}

/// How one view of all samples of a batch is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewKind {
    /// One tensor, because all samples have one size.
    Tensors,
    /// One value for each sample, because sizes differ.
    Values,
    /// Rows of patches, and after them rows with the positions of the patches. There is one view.
    Patches,
}

impl ViewPlaces {
    /// Returns the indices of all views.
    pub fn numbers(self) -> Range<usize> {
        self.first..self.first + self.views
    }

    /// Clears the views of a sample that does not have the field: no value, or zeros in the tensors. `tensor` returns
    /// the sample's part of a tensor by the tensor's index.
    pub fn clear(self, ticket: &mut Ticket, tensor: fn(&mut Ticket, usize) -> &mut [u8]) {
        for number in self.numbers() {
            match self.kind {
                ViewKind::Tensors => tensor(ticket, number).fill(0),
                ViewKind::Values => ticket.put(number, None),
                ViewKind::Patches => {
                    ticket.put(number, None);
                    ticket.put(number + 1, None);
                }
            }
        }
    }
}

impl ViewKind {
    pub(super) fn of(recipe: &Recipe) -> Self {
        if recipe.patch().is_some() { Self::Patches } else { Self::of_masks(recipe) }
    }

    /// Returns how masks that follow the images of `recipe` are stored.
    pub(super) fn of_masks(recipe: &Recipe) -> Self {
        let has_own_sizes = recipe.views().iter().any(|view| view.size().is_none());
        if has_own_sizes { Self::Values } else { Self::Tensors }
    }
}
