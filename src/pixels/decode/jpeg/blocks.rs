//! Passes decoded blocks to the inverse DCT and to their planes. A block is transformed after the next block is read.
//! With AVX-512, whose vectors hold two blocks, two blocks are transformed together.

use std::marker::PhantomData;

#[cfg(target_arch = "x86_64")]
use super::idct::avx512::{transform, transform_single};
use super::idct::{IdctBlock, InverseDct, OutOfRange, PLACES, dc_only};
use super::scan::Component;
use crate::decode::Plane;

/// The destination of a block's pixel values: the component's index in the scan, and the offset in its plane.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockPlace {
    pub(super) component: usize,
    pub(super) at: usize,
}

impl BlockPlace {
    /// Returns (the component, the plane's bytes from this place on, the stride in bytes).
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

    /// Writes a block whose only nonzero coefficient is DC, and clears the block.
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

pub(super) trait CoefficientOrder {
    /// The index at which coefficient `k`, in coding order, is stored in a block. Values of `k` from 64 to 255, which
    /// damaged files produce, map to indices that are not used.
    fn index(k: usize) -> usize;
}

pub(super) struct CodingOrder;

impl CoefficientOrder for CodingOrder {
    #[inline(always)]
    fn index(k: usize) -> usize {
        k & 255
    }
}

pub(super) trait BlockSink: CoefficientOrder {
    fn new() -> Self;

    /// The block to decode into. All its coefficients are zero.
    fn block(&mut self) -> &mut IdctBlock;

    /// Accepts the current block. Its pixel values are written now or in a later call.
    fn put(
        &mut self,
        components: &[Component],
        planes: &mut [Plane],
        place: BlockPlace,
    ) -> Result<(), OutOfRange>;

    fn flush(&mut self, components: &[Component], planes: &mut [Plane]) -> Result<(), OutOfRange>;
}

/// Transforms each block after the next block has been read. By then the coefficients, which are stored one by one,
/// have left the processor's store buffer. Before that, a vector load over several of these stores would stall.
pub(super) struct SingleBlockSink<T> {
    blocks: [IdctBlock; 2],
    current: usize,
    /// The location of the previous block, which waits for its transform.
    waiting: Option<BlockPlace>,
    by: PhantomData<T>,
}

impl<T> CoefficientOrder for SingleBlockSink<T> {
    #[inline(always)]
    fn index(k: usize) -> usize {
        usize::from(PLACES[k & 255])
    }
}

impl<T: InverseDct> SingleBlockSink<T> {
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

impl<T: InverseDct> BlockSink for SingleBlockSink<T> {
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

/// Transforms blocks in pairs, after the block that follows them has been read; [`SingleBlockSink`] gives the reason.
/// Coefficients are stored in coding order, because this costs less than looking up each coefficient's position in the
/// block. The transform reorders a block's 64 coefficients with two permutations.
#[cfg(target_arch = "x86_64")]
pub(super) struct PairedBlockSink {
    /// Two pairs of blocks that alternate: one pair receives coefficients while the other waits for its transform.
    blocks: [[IdctBlock; 2]; 2],
    places: [[BlockPlace; 2]; 2],
    count: usize,
}

#[cfg(target_arch = "x86_64")]
impl CoefficientOrder for PairedBlockSink {
    #[inline(always)]
    fn index(k: usize) -> usize {
        CodingOrder::index(k)
    }
}

#[cfg(target_arch = "x86_64")]
impl PairedBlockSink {
    /// Returns (index of the pair that now receives coefficients, index of the block in the pair).
    #[inline(always)]
    fn current(&self) -> (usize, usize) {
        (self.count / 2 % 2, self.count % 2)
    }

    #[inline(always)]
    fn transform_pair(
        &mut self,
        pair: usize,
        components: &[Component],
        planes: &mut [Plane],
    ) -> Result<(), OutOfRange> {
        let (blocks, places) = (&mut self.blocks[pair], self.places[pair]);
        let tables = places.map(|place| &components[place.component].quantisation);
        // SAFETY: code that names this type has detected AVX-512.
        match unsafe { transform(blocks, tables) } {
            Some(samples) => {
                let [first, second] = places;
                // SAFETY: as above.
                unsafe {
                    if second.component == first.component && second.at == first.at + 8 {
                        let (_, out, stride) = first.find(components, planes);
                        samples.write_side_by_side(out, stride);
                    } else {
                        for (block, place) in places.into_iter().enumerate() {
                            let (_, out, stride) = place.find(components, planes);
                            samples.write(block, out, stride);
                        }
                    }
                }
            }
            None => {
                for (block, place) in blocks.iter_mut().zip(places) {
                    let (component, out, stride) = place.find(components, planes);
                    transform_single(block, &component.quantisation, out, stride)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(target_arch = "x86_64")]
impl BlockSink for PairedBlockSink {
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
        // The first block of a pair has been read: now transform the previous pair.
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
        let (component, out, stride) = self.places[pair][0].find(components, planes);
        transform_single(&mut self.blocks[pair][0], &component.quantisation, out, stride)
    }
}
