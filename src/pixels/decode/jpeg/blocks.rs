//! The way of decoded blocks to their planes: each is transformed when the next one ends, or two together, as many as
//! AVX-512's vectors hold.

use std::marker::PhantomData;

#[cfg(target_arch = "x86_64")]
use super::idct::avx512::{transform, transform_alone};
use super::idct::{IdctBlock, InverseDct, OutOfRange, PLACES, dc_only};
use super::scan::Component;
use crate::decode::Plane;

/// A place for a block's samples: the component's number in the scan, and where they begin in its plane.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockPlace {
    pub(super) component: usize,
    pub(super) at: usize,
}

impl BlockPlace {
    /// The component, the plane's samples from the place on, and the bytes from one row to the next.
    #[inline(always)]
    fn find<'a>(
        self,
        components: &'a [Component],
        planes: &'a mut [Plane],
    ) -> (&'a Component, &'a mut [u8], usize) {
        let component = &components[self.component];
        let plane = &mut planes[component.plane];
        (component, &mut plane.data[self.at..], plane.stride)
    }

    /// Writes a block of which only the DC coefficient is not zero. The block is zero afterwards.
    #[inline(always)]
    pub(super) fn write_dc(
        self,
        components: &[Component],
        planes: &mut [Plane],
        block: &mut IdctBlock,
    ) -> Result<(), OutOfRange> {
        let (component, out, stride) = self.find(components, planes);
        dc_only(std::mem::take(&mut block.0[0]), &component.quantisation, out, stride)
    }
}

/// An order of the coefficients in a block.
pub(super) trait CoefficientOrder {
    /// Where in a block coefficient `k` in coding order is stored. Indices from 64 to 255, as damaged files have them,
    /// lead to unused places.
    fn index(k: usize) -> usize;
}

/// The order in which coefficients are coded.
pub(super) struct CodingOrder;

impl CoefficientOrder for CodingOrder {
    #[inline(always)]
    fn index(k: usize) -> usize {
        k & 255
    }
}

/// Takes blocks, one after another.
pub(super) trait BlockSink: CoefficientOrder {
    fn new() -> Self;

    /// The block to decode into, which is zero.
    fn block(&mut self) -> &mut IdctBlock;

    /// Takes the block. Its samples are written now or later.
    fn put(
        &mut self,
        components: &[Component],
        planes: &mut [Plane],
        place: BlockPlace,
    ) -> Result<(), OutOfRange>;

    /// Writes what has not been written yet.
    fn flush(&mut self, components: &[Component], planes: &mut [Plane]) -> Result<(), OutOfRange>;
}

/// Transforms each block when the next one has been read. By then the coefficients, which are stored one by one, have
/// left the store buffer: a vector load that needs several pending stores would have to wait for it.
pub(super) struct OneByOne<T> {
    blocks: [IdctBlock; 2],
    /// Which of the blocks is decoded into.
    current: usize,
    /// The place of the other block, where it waits to be transformed.
    waiting: Option<BlockPlace>,
    by: PhantomData<T>,
}

impl<T> CoefficientOrder for OneByOne<T> {
    #[inline(always)]
    fn index(k: usize) -> usize {
        usize::from(PLACES[k & 255])
    }
}

impl<T: InverseDct> OneByOne<T> {
    /// Transforms the block that waits, if there is one.
    #[inline(always)]
    fn transform_waiting(
        &mut self,
        waiting: Option<BlockPlace>,
        components: &[Component],
        planes: &mut [Plane],
    ) -> Result<(), OutOfRange> {
        let Some(place) = waiting else { return Ok(()) };
        let (component, out, stride) = place.find(components, planes);
        T::block(&mut self.blocks[1 - (self.current & 1)], &component.quantisation, out, stride)
    }
}

impl<T: InverseDct> BlockSink for OneByOne<T> {
    fn new() -> Self {
        Self { blocks: [const { IdctBlock::new() }; 2], current: 0, waiting: None, by: PhantomData }
    }

    #[inline(always)]
    fn block(&mut self) -> &mut IdctBlock {
        &mut self.blocks[self.current & 1]
    }

    #[inline(always)]
    fn put(
        &mut self,
        components: &[Component],
        planes: &mut [Plane],
        place: BlockPlace,
    ) -> Result<(), OutOfRange> {
        let before = self.waiting.replace(place);
        let done = self.transform_waiting(before, components, planes);
        self.current ^= 1;
        done
    }

    #[inline(always)]
    fn flush(&mut self, components: &[Component], planes: &mut [Plane]) -> Result<(), OutOfRange> {
        let waiting = self.waiting.take();
        self.transform_waiting(waiting, components, planes)
    }
}

/// Transforms blocks two by two, when the one after them has been read, for the reason above. Coefficients are stored
/// in coding order, which costs less than to look up their places; the transform brings a block's 64 in order by two
/// permutations.
#[cfg(target_arch = "x86_64")]
pub(super) struct TwoByTwo {
    /// Two pairs that take turns: while one waits, the other is decoded into.
    blocks: [[IdctBlock; 2]; 2],
    places: [[BlockPlace; 2]; 2],
    /// The number of blocks so far, by which pairs take turns.
    count: usize,
}

#[cfg(target_arch = "x86_64")]
impl CoefficientOrder for TwoByTwo {
    #[inline(always)]
    fn index(k: usize) -> usize {
        CodingOrder::index(k)
    }
}

#[cfg(target_arch = "x86_64")]
impl TwoByTwo {
    /// The pair that is decoded into, and the number of its block.
    #[inline(always)]
    fn current(&self) -> (usize, usize) {
        (self.count / 2 % 2, self.count % 2)
    }

    /// Transforms the blocks of a pair, of which both have been read.
    #[inline(always)]
    fn transform_pair(
        &mut self,
        pair: usize,
        components: &[Component],
        planes: &mut [Plane],
    ) -> Result<(), OutOfRange> {
        let (blocks, places) = (&mut self.blocks[pair], self.places[pair]);
        let tables = places.map(|place| &components[place.component].quantisation);
        // SAFETY: whoever names this type has detected AVX-512.
        match unsafe { transform(blocks, tables) } {
            Some(samples) => {
                let [first, second] = places;
                // SAFETY: as above.
                unsafe {
                    if second.component == first.component && second.at == first.at + 8 {
                        let (_, out, stride) = first.find(components, planes);
                        samples.write_side_by_side(out, stride);
                    } else {
                        for (samples, place) in samples.each().into_iter().zip(places) {
                            let (_, out, stride) = place.find(components, planes);
                            samples.write(out, stride);
                        }
                    }
                }
            }
            None => {
                for (block, place) in blocks.iter_mut().zip(places) {
                    let (component, out, stride) = place.find(components, planes);
                    transform_alone(block, &component.quantisation, out, stride)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
impl BlockSink for TwoByTwo {
    fn new() -> Self {
        let nowhere = BlockPlace { component: 0, at: 0 };
        Self { blocks: [const { [const { IdctBlock::new() }; 2] }; 2], places: [[nowhere; 2]; 2], count: 0 }
    }

    #[inline(always)]
    fn block(&mut self) -> &mut IdctBlock {
        let (pair, number) = self.current();
        &mut self.blocks[pair][number]
    }

    #[inline(always)]
    fn put(
        &mut self,
        components: &[Component],
        planes: &mut [Plane],
        place: BlockPlace,
    ) -> Result<(), OutOfRange> {
        let (pair, number) = self.current();
        self.places[pair][number] = place;
        self.count += 1;
        // The first block of a pair has been read: now the pair before it can be transformed.
        if number == 0 && self.count > 1 { self.transform_pair(1 - pair, components, planes) } else { Ok(()) }
    }

    #[inline(always)]
    fn flush(&mut self, components: &[Component], planes: &mut [Plane]) -> Result<(), OutOfRange> {
        let (pair, number) = self.current();
        if std::mem::take(&mut self.count) == 0 {
            return Ok(());
        }
        if number == 0 {
            return self.transform_pair(1 - pair, components, planes);
        }
        // All whole pairs are transformed, and one block is left.
        let (component, out, stride) = self.places[pair][0].find(components, planes);
        transform_alone(&mut self.blocks[pair][0], &component.quantisation, out, stride)
    }
}
