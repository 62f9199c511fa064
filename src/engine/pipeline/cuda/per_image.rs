//! A list with one value for each image of a sample.

use base::error::Result;

/// One value for each image of a sample, in the order of [`Images::list`](crate::config::Images::list). For the usual
/// case of one image, nothing is allocated.
#[derive(Debug)]
pub(crate) struct PerImage<T> {
    first: T,
    others: Vec<T>,
}

impl<T> PerImage<T> {
    pub(crate) fn one(value: T) -> Self {
        Self { first: value, others: Vec::new() }
    }

    /// Calls `make` with the index of each of `images` images; `images` is at least 1.
    pub(crate) fn new(images: usize, mut make: impl FnMut(usize) -> T) -> Self {
        Self { first: make(0), others: (1..images).map(make).collect() }
    }

    /// Calls `make` with the index of each of `images` images; `images` is at least 1.
    ///
    /// # Errors
    /// The errors of `make`.
    pub(crate) fn try_new(images: usize, mut make: impl FnMut(usize) -> Result<T>) -> Result<Self> {
        Ok(Self { first: make(0)?, others: (1..images).map(make).collect::<Result<_>>()? })
    }

    pub(crate) fn try_map<U>(self, mut make: impl FnMut(usize, T) -> Result<U>) -> Result<PerImage<U>> {
        let first = make(0, self.first)?;
        let others =
            (1..).zip(self.others).map(|(image, value)| make(image, value)).collect::<Result<_>>()?;
        Ok(PerImage { first, others })
    }

    pub(crate) fn map<U>(&self, mut make: impl FnMut(&T) -> U) -> PerImage<U> {
        PerImage { first: make(&self.first), others: self.others.iter().map(make).collect() }
    }

    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    pub(crate) fn get(&self, image: usize) -> &T {
        if image == 0 { &self.first } else { &self.others[image - 1] }
    }

    pub(crate) fn get_mut(&mut self, image: usize) -> &mut T {
        if image == 0 { &mut self.first } else { &mut self.others[image - 1] }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    pub(crate) fn set_all(&mut self, mut make: impl FnMut() -> T) {
        self.iter_mut().for_each(|value| *value = make());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_value_for_each_image() {
        let mut values = PerImage::try_new(3, |image| Ok(10 * image)).unwrap();
        *values.get_mut(2) += 1;
        assert_eq!((values.len(), *values.get(0), *values.get(2)), (3, 0, 21));
        assert_eq!(values.map(|value| value + 1).iter().copied().collect::<Vec<_>>(), [1, 11, 22]);
        let sums = values.try_map(|image, value| Ok(image + value)).unwrap();
        assert_eq!(sums.iter().copied().collect::<Vec<_>>(), [0, 11, 23]);
        let mut one = PerImage::one(7);
        one.set_all(|| 8);
        assert_eq!((one.len(), *one.get(0)), (1, 8));
    }
}
