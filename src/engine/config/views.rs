//! Where the views of a field lie in a batch.

use crate::batch::Ticket;
use pixels::augment::Recipe;
use std::ops::Range;

/// The places of a field's views in a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ViewPlaces {
    /// The number of the first view's tensor or value.
    pub first: usize,
    /// The number of views, which follow one another.
    pub views: usize,
    /// What these numbers are of.
    pub kind: ViewKind,
}

/// What holds a view of all samples of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewKind {
    /// A tensor, because all have one size.
    Tensors,
    /// A value for each sample, among those whose lengths differ.
    Values,
}

impl ViewPlaces {
    /// The numbers of all views.
    pub fn numbers(self) -> Range<usize> {
        self.first..self.first + self.views
    }

    /// Fills these places of a sample that does not have the field: with no value, or with zeros in the tensors, which
    /// `tensor` finds by their numbers.
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
    /// What holds the views that `recipe` makes: values where images have sizes of their own.
    pub(super) fn of(recipe: &Recipe) -> Self {
        let has_own_sizes = recipe.views().iter().any(|view| view.size().is_none());
        if has_own_sizes { Self::Values } else { Self::Tensors }
    }
}
