//! The places of a field's views in a batch.

use crate::batch::Ticket;
use pixels::augment::Recipe;
use std::ops::Range;

/// Places of a field's views in a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ViewPlaces {
    /// Index of the tensor or value list that holds the first view.
    pub first: usize,
    /// Number of views. Their indices are consecutive.
    pub views: usize,
    /// Whether the indices refer to tensors or to value lists.
    pub kind: ViewKind,
}

/// Storage of one view of all samples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewKind {
    /// One tensor, because all samples have one size.
    Tensors,
    /// One value for each sample, because sizes differ.
    Values,
}

impl ViewPlaces {
    /// Returns the indices of all views.
    pub fn numbers(self) -> Range<usize> {
        self.first..self.first + self.views
    }

    /// Clears these places for a sample that does not have the field: no value, or zeros in the tensors. `tensor`
    /// returns a tensor by its index.
    pub fn clear(self, ticket: &mut Ticket, tensor: fn(&mut Ticket, usize) -> &mut [u8]) {
        for number in self.numbers() {
            match self.kind {
                ViewKind::Tensors => tensor(ticket, number).fill(0),
                ViewKind::Values => ticket.put(number, None),
            }
        }
    }
}

impl ViewKind {
    /// Returns the storage of the views that `recipe` makes: values if images keep their own sizes.
    pub(super) fn of(recipe: &Recipe) -> Self {
        let has_own_sizes = recipe.views().iter().any(|view| view.size().is_none());
        if has_own_sizes { Self::Values } else { Self::Tensors }
    }
}
